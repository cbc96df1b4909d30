//! The rules of `.gitignore` files against git itself. Only this test does I/O: it asks `git check-ignore` in a temporary folder.

use agent_tools::ignore_rules::IgnoreRules;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// All directories and files of the test's tree.
const DIRECTORIES: [&str; 7] = ["a", "a/b", "a/b/c", "b", "b/a", "ab", "a/ab"];
const FILES: [&str; 6] = ["a.x", "b.x", "ab.y", "c d", "{a,b}", "[a]"];

fn git(root: &Path, arguments: &[&str], input: &[u8]) -> Vec<u8> {
    let mut child = Command::new("git")
        .arg("-C")
        .arg(root)
        .args(arguments)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_SYSTEM", "/dev/null")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("git is installed");
    child.stdin.take().expect("a pipe").write_all(input).expect("git reads its input");
    child.wait_with_output().expect("git ends").stdout
}

fn all_paths() -> Vec<(String, bool)> {
    let mut paths: Vec<(String, bool)> = DIRECTORIES.iter().map(|path| ((*path).to_owned(), true)).collect();
    for directory in [""].iter().chain(&DIRECTORIES) {
        paths
            .extend(FILES.iter().map(|file| (format!("{directory}/{file}").trim_start_matches('/').to_owned(), false)));
    }
    paths
}

/// What git ignores, with these files in place.
fn asked(root: &Path, files: &[(&str, String)]) -> BTreeSet<String> {
    for directory in [""].iter().chain(&DIRECTORIES) {
        let _ = std::fs::remove_file(root.join(directory).join(".gitignore"));
    }
    for (directory, contents) in files {
        std::fs::write(root.join(directory).join(".gitignore"), contents).expect("a file");
    }
    let input: Vec<u8> = all_paths().into_iter().flat_map(|(path, _)| [path.as_bytes(), b"\0"].concat()).collect();
    let answer = git(root, &["check-ignore", "--no-index", "-z", "--stdin"], &input);
    answer
        .split(|byte| *byte == 0)
        .filter(|path| !path.is_empty())
        .map(|path| String::from_utf8(path.into()).expect("a path of this test"))
        .collect()
}

fn decided(files: &[(&str, String)]) -> BTreeSet<String> {
    let mut rules = IgnoreRules::new();
    files.iter().for_each(|(directory, contents)| rules.add(directory.as_bytes(), contents.as_bytes()));
    all_paths()
        .into_iter()
        .filter(|(path, is_dir)| rules.is_ignored(path.as_bytes(), *is_dir))
        .map(|(path, _)| path)
        .collect()
}

fn tree() -> tempfile::TempDir {
    let root = tempfile::tempdir().expect("a temporary folder");
    git(root.path(), &["init", "-q"], b"");
    for (path, is_dir) in all_paths() {
        if is_dir {
            std::fs::create_dir_all(root.path().join(path)).expect("a directory");
        } else {
            std::fs::write(root.path().join(path), "").expect("a file");
        }
    }
    root
}

#[test]
fn chosen_rules_ignore_what_git_ignores() {
    let root = tree();
    for (lines, is_empty) in [
        ("*.x\n!a.x\n", false),
        ("a/b/\n", false),
        ("/a.x\n", false),
        ("b/\n", false),
        ("a/**\n!a/b\n", false),
        ("**/ab\n", false),
        ("a/**/a.x\n", false),
        ("a**/a.x\n", false),
        ("{a,b}\n", false),
        ("\\[a\\]\n", false),
        ("[[:alpha:]].x\r\n", false),
        ("c d   \n", false),
        ("*\n!*/\n!*.x\n", false),
        ("/\n//\n!\n# a\n[a\na\\\n", true),
    ] {
        let files = [("", lines.to_owned())];
        let asked = asked(root.path(), &files);
        assert_eq!(decided(&files), asked, "{lines:?}");
        assert_eq!(asked.is_empty(), is_empty, "{lines:?}: the rule has no effect in git, so it shows nothing");
    }
}

#[test]
fn any_rules_ignore_what_git_ignores() {
    let root = tree();
    let pieces = [
        "a", "b", "ab", "c", ".x", "*", "**", "?", "/", "/", "[ab]", "[!a]", "[a-c]", "\\", " ", "{a,b}", "[", "]",
        "**/", "/**",
    ];
    let line = (
        prop::sample::select(vec!["", "", "", "!", "/", "!/"]),
        prop::collection::vec(prop::sample::select(pieces.to_vec()), 1..5),
    )
        .prop_map(|(start, pieces)| format!("{start}{}\n", pieces.concat()));
    let file = prop::collection::vec(line, 1..5).prop_map(|lines| lines.concat());
    let files = prop::collection::btree_map(prop::sample::select(vec!["", "a", "a/b", "b"]), file, 1..4);
    let mut runner =
        TestRunner::new(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() });
    runner
        .run(&files, |files| {
            let files: Vec<(&str, String)> = files.into_iter().collect();
            prop_assert_eq!(decided(&files), asked(root.path(), &files));
            Ok(())
        })
        .unwrap();
}
