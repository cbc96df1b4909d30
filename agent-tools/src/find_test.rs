//! Tests of finding entries.

use super::*;
use proptest::prelude::*;

const NOW: i64 = 1_000_000;

fn file(path: &str, size: u64, age: i64) -> Entry {
    Entry { path: path.into(), kind: EntryKind::File, size, modified: NOW - age, link_target: None }
}

fn directory(path: &str) -> Entry {
    Entry { kind: EntryKind::Directory, ..file(path, 4096, 0) }
}

fn found(options: FindOptions) -> FindReport {
    let mut find = Find::new(options, NOW).unwrap();
    let link = Entry { kind: EntryKind::Symlink, link_target: Some(b"src/a\n".to_vec()), ..file("link", 5, 10) };
    for entry in [
        directory("src"),
        file("src/main.rs", 2000, 50),
        file("src/a/b.rs", 10, 9000),
        directory("target"),
        file("target/x.rs", 1, 1),
        file("README.md", 70_000, 500_000),
        link,
    ] {
        find.push(entry);
    }
    find.finish()
}

fn globs(globs: &[&str]) -> Vec<String> {
    globs.iter().map(|glob| (*glob).to_owned()).collect()
}

#[test]
fn names_are_found_at_any_depth_and_excluded_directories_are_left_out() {
    let options = FindOptions { globs: globs(&["*.rs"]), exclude: globs(&["target"]), ..FindOptions::default() };
    assert_eq!(found(options).text, "src/a/b.rs\nsrc/main.rs\n");
}

#[test]
fn kinds_are_shown_by_their_form() {
    let options = FindOptions { kinds: vec![EntryKind::Directory, EntryKind::Symlink], ..FindOptions::default() };
    assert_eq!(found(options).text, "link -> $'src/a\\n'\nsrc/\ntarget/\n");
}

#[test]
fn sizes_ages_and_depths_are_conditions() {
    let text = |options| found(options).text;
    let sizes =
        FindOptions { min_size: Some(10), max_size: Some(size::parse("2k").unwrap()), ..FindOptions::default() };
    assert_eq!(text(sizes), "src/a/b.rs  10 B\nsrc/main.rs  2.0 KiB\n");
    let within = FindOptions { modified_within: Some(60), kinds: vec![EntryKind::File], ..FindOptions::default() };
    assert_eq!(text(within), "src/main.rs  50 s ago\ntarget/x.rs  1 s ago\n");
    let future = file("x", 1, -100);
    let find = Find::new(FindOptions { modified_within: Some(60), ..FindOptions::default() }, NOW).unwrap();
    assert!(find.matches(&future) && !find.matches(&file("x", 1, 61)));
    let newer = FindOptions { newer_than: Some(NOW - 10_000), globs: globs(&["b.rs"]), ..FindOptions::default() };
    assert_eq!(text(newer), "src/a/b.rs  2 h ago\n");
    let depth = FindOptions { max_depth: Some(1), kinds: vec![EntryKind::File], ..FindOptions::default() };
    assert_eq!(text(depth), "README.md\n");
}

#[test]
fn the_first_of_the_order_are_shown_with_a_note() {
    let report =
        found(FindOptions { kinds: vec![EntryKind::File], sort: Sort::Size, limit: 2, ..FindOptions::default() });
    assert!(
        report.text.starts_with("README.md  68 KiB\nsrc/main.rs  2.0 KiB\n[2 of 4 entries shown;"),
        "{}",
        report.text
    );
    assert_eq!((report.total, report.shown), (4, 2));
    let newest =
        found(FindOptions { kinds: vec![EntryKind::File], sort: Sort::Modified, limit: 1, ..FindOptions::default() });
    assert!(newest.text.starts_with("target/x.rs  1 s ago\n["), "{}", newest.text);
}

#[test]
fn a_walk_leaves_out_what_cannot_match() {
    let find =
        Find::new(FindOptions { exclude: globs(&["target"]), max_depth: Some(2), ..FindOptions::default() }, NOW)
            .unwrap();
    assert!(find.prunes(&directory("target")) && find.prunes(&directory("a/b")) && !find.prunes(&directory("a")));
}

#[test]
fn nothing_and_nonsense_are_said() {
    assert_eq!(found(FindOptions { globs: globs(&["*.py"]), ..FindOptions::default() }).text, "nothing matches\n");
    let sizes = FindOptions { min_size: Some(2), max_size: Some(1), ..FindOptions::default() };
    assert!(Find::new(sizes, NOW).unwrap_err().to_string().contains("nothing can match"));
}

proptest! {
    #[test]
    fn a_result_is_bounded_and_is_the_start_of_all(sizes in prop::collection::vec(any::<u8>(), 0..200), limit in 1usize..30, name in "(?s).{0,40}") {
        let mut find = Find::new(FindOptions { limit, sort: Sort::Size, ..FindOptions::default() }, NOW).unwrap();
        for (at, size) in sizes.iter().enumerate() {
            find.push(file(&format!("{at}{name}"), u64::from(*size), 0));
            prop_assert!(find.found.len() < 2 * limit);
        }
        let report = find.finish();
        prop_assert!(report.text.len() <= MAX_BYTES + 200);
        prop_assert!(report.text.lines().count() <= limit + 1);
        prop_assert_eq!(report.total, sizes.len() as u64);
        let mut sorted = sizes.clone();
        sorted.sort_unstable_by(|a, b| b.cmp(a));
        let shown: Vec<String> = report.text.lines().take(limit.min(sizes.len())).map(|line| line.rsplit("  ").next().unwrap().to_owned()).collect();
        let wanted: Vec<String> = sorted.iter().take(limit).map(|size| format!("{size} B")).collect();
        prop_assert_eq!(shown, wanted);
    }
}
