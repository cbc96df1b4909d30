//! File types by name, as `py` or `rust`, for searches that look at one language.

/// Each type with its other names and its globs, in the order of the names.
const TYPES: &[(&str, &[&str], &[&str])] = &[
    ("asm", &[], &["*.asm", "*.s", "*.S"]),
    ("c", &[], &["*.c", "*.h"]),
    ("clojure", &["clj"], &["*.clj", "*.cljc", "*.cljs", "*.edn"]),
    ("cmake", &[], &["CMakeLists.txt", "*.cmake"]),
    ("config", &["conf"], &["*.cfg", "*.conf", "*.config", "*.ini"]),
    ("cpp", &["c++", "cc", "cxx"], &["*.cc", "*.cpp", "*.cxx", "*.h", "*.hh", "*.hpp", "*.hxx", "*.inl"]),
    ("cs", &["csharp"], &["*.cs"]),
    ("css", &[], &["*.css", "*.less", "*.sass", "*.scss"]),
    ("csv", &[], &["*.csv", "*.tsv"]),
    ("dart", &[], &["*.dart"]),
    (
        "docker",
        &["dockerfile"],
        &["Dockerfile", "Dockerfile.*", "*.dockerfile", "Containerfile", "docker-compose*.y*ml", "compose*.y*ml"],
    ),
    ("elixir", &["ex"], &["*.ex", "*.exs", "*.eex", "*.heex"]),
    ("erlang", &["erl"], &["*.erl", "*.hrl"]),
    ("fsharp", &["fs"], &["*.fs", "*.fsi", "*.fsx"]),
    ("go", &["golang"], &["*.go", "go.mod", "go.sum"]),
    ("gradle", &[], &["*.gradle", "*.gradle.kts"]),
    ("graphql", &["gql"], &["*.graphql", "*.gql"]),
    ("haskell", &["hs"], &["*.hs", "*.lhs", "*.cabal"]),
    ("html", &["htm"], &["*.html", "*.htm", "*.xhtml"]),
    ("java", &[], &["*.java", "*.jsp"]),
    ("js", &["javascript", "jsx", "node"], &["*.js", "*.jsx", "*.mjs", "*.cjs", "*.vue"]),
    ("json", &["jsonc", "jsonl"], &["*.json", "*.json5", "*.jsonc", "*.jsonl"]),
    ("jupyter", &["ipynb", "notebook"], &["*.ipynb"]),
    ("kotlin", &["kt"], &["*.kt", "*.kts"]),
    ("log", &[], &["*.log", "*.log.*"]),
    ("lua", &[], &["*.lua"]),
    ("make", &["makefile"], &["Makefile", "makefile", "GNUmakefile", "*.mk", "*.mak", "Makefile.*"]),
    ("md", &["markdown"], &["*.md", "*.markdown", "*.mdx"]),
    ("nix", &[], &["*.nix"]),
    ("objc", &["objectivec"], &["*.m", "*.mm", "*.h"]),
    ("ocaml", &["ml"], &["*.ml", "*.mli"]),
    ("perl", &["pl"], &["*.pl", "*.pm", "*.t"]),
    ("php", &[], &["*.php", "*.phtml"]),
    ("proto", &["protobuf"], &["*.proto"]),
    ("py", &["python"], &["*.py", "*.pyi", "*.pyx"]),
    ("r", &[], &["*.r", "*.R", "*.Rmd"]),
    ("rst", &[], &["*.rst"]),
    ("ruby", &["rb"], &["*.rb", "*.erb", "*.gemspec", "Gemfile", "Rakefile"]),
    ("rust", &["rs"], &["*.rs"]),
    ("scala", &[], &["*.scala", "*.sbt"]),
    ("sh", &["bash", "shell", "zsh"], &["*.sh", "*.bash", "*.zsh", "*.fish", "*.ksh", ".bashrc", ".profile", ".zshrc"]),
    ("sql", &[], &["*.sql"]),
    ("svelte", &[], &["*.svelte"]),
    ("svg", &[], &["*.svg"]),
    ("swift", &[], &["*.swift"]),
    ("terraform", &["tf"], &["*.tf", "*.tfvars", "*.hcl"]),
    ("tex", &["latex"], &["*.tex", "*.sty", "*.cls", "*.bib"]),
    ("toml", &[], &["*.toml", "Cargo.lock"]),
    ("ts", &["typescript", "tsx"], &["*.ts", "*.tsx", "*.mts", "*.cts"]),
    ("txt", &["text"], &["*.txt"]),
    ("vue", &[], &["*.vue"]),
    ("xml", &[], &["*.xml", "*.xsd", "*.xsl", "*.xslt", "*.plist", "*.csproj"]),
    ("yaml", &["yml"], &["*.yaml", "*.yml"]),
    ("zig", &[], &["*.zig"]),
];

/// How many names an error suggests.
const MAX_SUGGESTIONS: usize = 3;
/// A longer name is not compared.
const MAX_NAME_BYTES: usize = 32;

/// There is no such type.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("there is no file type {name:?}; {}", advice(suggestions))]
pub struct UnknownType {
    name: String,
    /// The nearest names, the nearest one first.
    pub suggestions: Vec<&'static str>,
}

fn advice(suggestions: &[&str]) -> String {
    if suggestions.is_empty() {
        format!("use a glob such as *.ext, or one of {}", names().collect::<Vec<_>>().join(", "))
    } else {
        format!("the nearest are {}; a glob such as *.ext works for every file", suggestions.join(", "))
    }
}

/// The names of all types.
pub fn names() -> impl Iterator<Item = &'static str> {
    TYPES.iter().map(|(name, ..)| *name)
}

/// The globs of a type, for `Globs`.
pub fn globs(name: &str) -> Result<&'static [&'static str], UnknownType> {
    let wanted = name.trim().trim_start_matches('.').to_ascii_lowercase();
    let found = TYPES.iter().find(|(name, others, _)| *name == wanted || others.contains(&wanted.as_str()));
    found
        .map(|(.., globs)| *globs)
        .ok_or_else(|| UnknownType { name: name.chars().take(MAX_NAME_BYTES).collect(), suggestions: nearest(&wanted) })
}

fn nearest(wanted: &str) -> Vec<&'static str> {
    if wanted.len() > MAX_NAME_BYTES {
        return Vec::new();
    }
    let mut near: Vec<(usize, &str)> = TYPES
        .iter()
        .map(|(name, others, _)| {
            let distance = others.iter().chain([name]).map(|other| distance(wanted.as_bytes(), other.as_bytes())).min();
            (distance.unwrap_or(usize::MAX), *name)
        })
        .filter(|(distance, _)| *distance <= 1 + wanted.len() / 4)
        .collect();
    near.sort_unstable();
    near.into_iter().take(MAX_SUGGESTIONS).map(|(_, name)| name).collect()
}

/// How many bytes must be added, removed or replaced to make one name from the other.
fn distance(a: &[u8], b: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, byte) in a.iter().enumerate() {
        let mut diagonal = i;
        row[0] = i + 1;
        for (j, other) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(byte != other);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::globs::Globs;

    #[test]
    fn types_are_found_by_all_their_names() {
        assert_eq!(globs("rust").unwrap(), ["*.rs"]);
        assert_eq!(globs("Python"), globs("py"));
        assert_eq!(globs(".yml"), globs("yaml"));
    }

    #[test]
    fn an_unknown_type_gets_the_nearest_names() {
        assert_eq!(globs("pyton").unwrap_err().suggestions, ["py"]);
        assert!(globs("rsut").unwrap_err().to_string().contains("the nearest are"));
        assert!(globs("quaternion").unwrap_err().to_string().contains("one of asm, c, "));
    }

    #[test]
    fn the_table_is_sorted_has_no_name_twice_and_valid_globs() {
        assert!(names().is_sorted());
        let mut all: Vec<&str> =
            TYPES.iter().flat_map(|(name, others, _)| others.iter().chain([name])).copied().collect();
        all.sort_unstable();
        assert!(all.windows(2).all(|pair| pair[0] != pair[1]), "{all:?}");
        TYPES.iter().for_each(|(.., globs)| assert!(Globs::new(globs).is_ok()));
    }
}
