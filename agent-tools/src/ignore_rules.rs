//! Which paths git would ignore, by the contents of `.gitignore` files.
//!
//! The rules are git's: the last matching line of the deepest file wins, `!` takes a path back, and what is below an ignored directory is
//! ignored whatever is said about it. `.git` is always ignored. Not read are `.git/info/exclude` and the user's own file.
//!
//! Bounded: long files are cut, and what is beyond the number of files and lines does not count. Then less is ignored than git would.

use crate::wildmatch::Pattern;
use std::collections::HashMap;

/// The rest of a longer file does not count.
pub const MAX_FILE_BYTES: usize = 256 << 10;
/// Files beyond this number do not count.
pub const MAX_FILES: usize = 1024;
/// Lines beyond this number do not count, in all files together.
pub const MAX_RULES: usize = 16_384;
/// A longer line does not count.
pub const MAX_RULE_BYTES: usize = 1024;

/// The rules of the `.gitignore` files of a tree.
#[derive(Clone, Debug, Default)]
pub struct IgnoreRules {
    /// By directory, relative to the root, without slashes at the ends; the root is empty.
    files: HashMap<Vec<u8>, Vec<Rule>>,
    rule_count: usize,
    is_cut: bool,
}

/// A line of a file.
#[derive(Clone, Debug)]
struct Rule {
    is_negated: bool,
    is_only_dir: bool,
    /// Whether it looks at the name alone, at any depth.
    is_name: bool,
    /// The bytes before the first special one.
    literal: Vec<u8>,
    /// What follows them; `None` if nothing does.
    pattern: Option<Pattern>,
}

impl IgnoreRules {
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the file of a directory, which is relative to the root; the root itself is empty. A second file of a directory replaces the first.
    pub fn add(&mut self, directory: &[u8], contents: &[u8]) {
        let directory = trimmed(directory);
        if !self.files.contains_key(directory) && self.files.len() >= MAX_FILES {
            self.is_cut = true;
            return;
        }
        let contents = contents.strip_prefix(b"\xef\xbb\xbf").unwrap_or(contents);
        let kept = &contents[..contents.len().min(MAX_FILE_BYTES)];
        let mut lines: Vec<&[u8]> = kept.split(|byte| *byte == b'\n').collect();
        if kept.len() < contents.len() {
            self.is_cut = true;
            // The last line may be half of one, and half a line ignores other things.
            lines.pop();
        }
        self.rule_count -= self.files.remove(directory).map_or(0, |rules| rules.len());
        let mut rules = Vec::new();
        for line in lines {
            let Some(line) = significant(line) else { continue };
            if line.len() > MAX_RULE_BYTES || self.rule_count >= MAX_RULES {
                self.is_cut = true;
            } else if let Some(rule) = Rule::parse(line) {
                rules.push(rule);
                self.rule_count += 1;
            }
        }
        if !rules.is_empty() {
            self.files.insert(directory.to_vec(), rules);
        }
    }

    /// Whether files or lines do not count because there were too many.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Whether git would ignore a path, which is relative to the root. It looks at all directories above it, too.
    pub fn is_ignored(&self, path: &[u8], is_dir: bool) -> bool {
        let path = trimmed(path);
        if path.split(|byte| *byte == b'/').any(|name| name == b".git") {
            return true;
        }
        // The rules that are known so far, from the root down, each with the length of its directory.
        let mut known: Vec<(usize, &[Rule])> = Vec::new();
        known.extend(self.files.get(&b""[..]).map(|rules| (0, &rules[..])));
        for slash in memchr::memchr_iter(b'/', path) {
            let directory = &path[..slash];
            if verdict(&known, directory, /* is_dir */ true) {
                return true;
            }
            known.extend(self.files.get(directory).map(|rules| (slash + 1, &rules[..])));
        }
        verdict(&known, path, is_dir)
    }
}

/// Whether the last rule that matches ignores the path.
fn verdict(known: &[(usize, &[Rule])], path: &[u8], is_dir: bool) -> bool {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    for (base, rules) in known.iter().rev() {
        let below = &path[*base..];
        if let Some(rule) = rules.iter().rev().find(|rule| rule.matches(below, name, is_dir)) {
            return !rule.is_negated;
        }
    }
    false
}

impl Rule {
    /// Reads a line. `None` if it matches nothing.
    fn parse(line: &[u8]) -> Option<Self> {
        let (is_negated, line) = line.strip_prefix(b"!").map_or((false, line), |line| (true, line));
        let (is_only_dir, line) = line.strip_suffix(b"/").map_or((false, line), |line| (true, line));
        let is_name = !line.contains(&b'/');
        let line = line.strip_prefix(b"/").unwrap_or(line);
        let split = line.iter().position(|byte| b"*?[\\".contains(byte)).unwrap_or(line.len());
        let (literal, rest) = line.split_at(split);
        if line.is_empty() {
            return None;
        }
        // git, too, looks at what follows the literal on its own: a `**` there stands at a start.
        let pattern = if rest.is_empty() { None } else { Some(Pattern::parse(rest)?) };
        Some(Self { is_negated, is_only_dir, is_name, literal: literal.to_vec(), pattern })
    }

    fn matches(&self, path: &[u8], name: &[u8], is_dir: bool) -> bool {
        if self.is_only_dir && !is_dir {
            return false;
        }
        let subject = if self.is_name { name } else { path };
        match (subject.strip_prefix(&self.literal[..]), &self.pattern) {
            (None, _) => false,
            (Some(rest), None) => rest.is_empty(),
            (Some(rest), Some(pattern)) => pattern.matches(rest),
        }
    }
}

/// A line without its end and without spaces after it. `None` for comments and empty lines.
fn significant(line: &[u8]) -> Option<&[u8]> {
    if line.starts_with(b"#") {
        return None;
    }
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    // git reads lines as C strings.
    let line = line.split(|byte| *byte == 0).next().unwrap_or(line);
    let mut end = 0;
    let mut at = 0;
    while let Some(byte) = line.get(at) {
        match byte {
            b' ' => at += 1,
            b'\\' => {
                at = (at + 2).min(line.len());
                end = at;
            }
            _ => {
                at += 1;
                end = at;
            }
        }
    }
    (end > 0).then(|| &line[..end])
}

fn trimmed(path: &[u8]) -> &[u8] {
    let mut path = path.strip_prefix(b"./").unwrap_or(path);
    while let Some(rest) = path.strip_prefix(b"/") {
        path = rest;
    }
    while let Some(rest) = path.strip_suffix(b"/") {
        path = rest;
    }
    if path == b"." { b"" } else { path }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rules(files: &[(&str, &str)]) -> IgnoreRules {
        let mut rules = IgnoreRules::new();
        files.iter().for_each(|(directory, contents)| rules.add(directory.as_bytes(), contents.as_bytes()));
        rules
    }

    #[test]
    fn the_deepest_file_wins_but_not_below_an_ignored_directory() {
        let rules = rules(&[("", "*.log\nbuild/\n"), ("a", "!keep.log\n"), ("build", "!x\n")]);
        assert!(rules.is_ignored(b"a/b/x.log", false));
        assert!(!rules.is_ignored(b"a/b/keep.log", false));
        assert!(rules.is_ignored(b"keep.log", false));
        assert!(rules.is_ignored(b"build/x", false));
        assert!(!rules.is_ignored(b"build", false), "a file of this name is no directory");
    }

    #[test]
    fn the_folder_of_git_is_ignored_without_a_rule() {
        let rules = IgnoreRules::new();
        assert!(rules.is_ignored(b".git", true));
        assert!(rules.is_ignored(b"sub/.git/config", false));
        assert!(!rules.is_ignored(b".gitignore", false));
    }

    #[test]
    fn spaces_at_the_end_count_only_if_escaped() {
        let rules = rules(&[("", "a  \nb\\ \n#c\n\\#d\n")]);
        assert!(rules.is_ignored(b"a", false) && rules.is_ignored(b"b ", false) && rules.is_ignored(b"#d", false));
        assert!(!rules.is_ignored(b"b", false) && !rules.is_ignored(b"#c", false));
    }

    #[test]
    fn too_long_and_too_many_files_are_cut() {
        let mut rules = IgnoreRules::new();
        rules.add(b"", &[&b"first\n"[..], &b"x".repeat(MAX_FILE_BYTES), b"\nlast\n"].concat());
        assert!(rules.is_ignored(b"first", false) && !rules.is_ignored(b"last", false));
        assert!(rules.is_cut());
        let mut rules = IgnoreRules::new();
        rules.add(b"", &[&b"#".repeat(MAX_FILE_BYTES - 3)[..], b"\nlast\n"].concat());
        assert!(!rules.is_ignored(b"la", false), "half a line is no rule");
        let mut rules = IgnoreRules::new();
        (0..=MAX_RULES).for_each(|n| rules.add(b"", format!("f{n}\n").as_bytes()));
        assert!(!rules.is_cut(), "a file that replaces another does not add to the count");
        rules.add(b"", &b"x\n".repeat(MAX_RULES + 1));
        assert!(rules.is_cut());
        let mut rules = IgnoreRules::new();
        (0..=MAX_FILES).for_each(|n| rules.add(n.to_string().as_bytes(), b"x"));
        assert!(rules.is_ignored(b"0/x", false) && !rules.is_ignored(format!("{MAX_FILES}/x").as_bytes(), false));
    }

    proptest! {
        #[test]
        fn no_rules_and_no_path_make_it_panic(
            contents in prop::collection::vec(prop::sample::select(b"ab*?[]!-:/\\ \n\r\0#\xff".to_vec()), 0..60),
            directory in "[ab/.]{0,4}",
            path in prop::collection::vec(any::<u8>(), 0..20),
        ) {
            let mut rules = IgnoreRules::new();
            rules.add(directory.as_bytes(), &contents);
            rules.add(b"", &contents);
            let below = [&path[..], b"/x"].concat();
            // What is below an ignored directory is ignored.
            prop_assert!(!rules.is_ignored(&path, true) || rules.is_ignored(&below, false));
        }
    }
}
