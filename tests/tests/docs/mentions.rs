//! Finds what documents point to: links, paths of this repository, and tests.

use std::fmt;
use std::path::{Path, PathBuf};

/// The folders of this repository. A path in backquotes that begins with one of them names a file of the repository.
const FOLDERS: [&str; 14] = [
    "bench/",
    "docs/",
    "fuzz/",
    "network-policy/",
    "network-wire/",
    "orchestrator/",
    "registries/",
    "runner/",
    "scripts/",
    "sdk/",
    "shared-protocol/",
    "tar-unpack/",
    "tests/",
    ".ci/",
];
/// Folders without documents of this repository.
const NOT_OURS: [&str; 2] = ["target", "node_modules"];

pub struct Mention {
    document: PathBuf,
    target: String,
}

impl Mention {
    /// Whether a link works. Links are relative to their document.
    pub fn resolves_beside_its_document(&self) -> bool {
        self.document.parent().is_some_and(|folder| folder.join(&self.target).exists())
    }

    pub fn resolves_below(&self, root: &Path) -> bool {
        root.join(&self.target).exists()
    }
}

impl fmt::Display for Mention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.document.display(), self.target)
    }
}

/// Every Markdown file below `root`.
pub fn documents(root: &Path) -> Vec<PathBuf> {
    let mut documents = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder of ours") {
            let entry = entry.expect("an entry");
            let name = entry.file_name().to_string_lossy().into_owned();
            if entry.file_type().expect("a type").is_dir() {
                if !name.starts_with('.') && !NOT_OURS.contains(&name.as_str()) {
                    folders.push(entry.path());
                }
            } else if name.ends_with(".md") {
                documents.push(entry.path());
            }
        }
    }
    documents.sort();
    documents
}

/// Everything that `find` returns for each Markdown file below `root`.
pub fn in_all_documents(root: &Path, find: fn(&str) -> Vec<String>) -> Vec<Mention> {
    let in_one = |document: PathBuf| {
        let text = std::fs::read_to_string(&document).expect("a document");
        find(&text).into_iter().map(move |target| Mention { document: document.clone(), target })
    };
    documents(root).into_iter().flat_map(in_one).collect()
}

/// The targets of links and pictures to files, without the part after `#`.
pub fn links(text: &str) -> Vec<String> {
    let inline = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let pictures = text.split("src=\"").skip(1).filter_map(|rest| rest.split('"').next());
    let files = inline.chain(pictures).map(|target| target.split('#').next().unwrap_or_default());
    files.filter(|target| !target.is_empty() && !target.contains("://")).map(str::to_owned).collect()
}

/// The paths of this repository in backquotes. A pattern, such as `docs/decisions/NNNN-name.md`, is not a path.
pub fn paths(text: &str) -> Vec<String> {
    let quoted = text.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
    let words = quoted.filter_map(|quoted| quoted.split_whitespace().next());
    let ours = words.filter(|word| FOLDERS.iter().any(|folder| word.starts_with(folder)));
    ours.filter(|word| !word.contains(['*', '{', '…', '<']) && !word.contains("NNNN")).map(str::to_owned).collect()
}

/// The names of tests in backquotes: sentences with underscores. Names of settings and fields are shorter.
pub fn tests(text: &str) -> Vec<String> {
    let is_sentence = |word: &&str| {
        word.matches('_').count() >= 3 && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
    };
    text.lines().flat_map(|line| line.split('`').skip(1).step_by(2)).filter(is_sentence).map(str::to_owned).collect()
}

/// The checks of the probe in backquotes, such as `probe: no other processes`.
pub fn checks_of_the_probe(text: &str) -> Vec<String> {
    let quoted = text.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
    quoted.filter_map(|quoted| quoted.strip_prefix("probe: ")).map(str::to_owned).collect()
}

/// The text of every Rust file below `root`.
pub fn code(root: &Path) -> String {
    let (mut code, mut folders) = (String::new(), FOLDERS.map(|folder| root.join(folder)).to_vec());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder of ours") {
            let path = entry.expect("an entry").path();
            if path.is_dir() && !NOT_OURS.iter().any(|name| path.ends_with(name)) {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                code += &std::fs::read_to_string(&path).expect("a file of ours");
            }
        }
    }
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_to_files_are_found_and_others_are_not() {
        let text = "[a](b/c.md#d) ![p](e.svg) [w](https://x.example) [here](#there) <img src=\"f.svg\">";
        assert_eq!(links(text), ["b/c.md", "e.svg", "f.svg"]);
    }

    #[test]
    fn tests_and_checks_are_told_from_settings() {
        let text = "`a_test_has_a_name`, `queue_timeout_ms`, `server.max_connections_per_client`, `probe: no way out`";
        assert_eq!(super::tests(text), ["a_test_has_a_name"]);
        assert_eq!(checks_of_the_probe(text), ["no way out"]);
    }

    #[test]
    fn paths_of_ours_are_found_and_patterns_are_not() {
        let text =
            "`tests/src/wait.rs` and `scripts/test quick`, `docs/decisions/NNNN-name.md`, `cove ps`, `scripts/*`";
        assert_eq!(paths(text), ["tests/src/wait.rs", "scripts/test"]);
    }
}
