//! Tests of searching files.

use super::*;
use proptest::prelude::*;

const CODE: &str = "use std::io;\n\nfn main() {\n    let x = 1;\n    print(x);\n}\n\nfn other() {}\n";

fn report(options: SearchOptions, files: &[(&str, &[u8])]) -> SearchReport {
    let mut search = Search::new(options).unwrap();
    files.iter().for_each(|(path, bytes)| search.file(path.as_bytes(), bytes));
    search.finish()
}

fn text(options: SearchOptions) -> String {
    report(options, &[("a.rs", CODE.as_bytes()), ("b.rs", b"fn b() {}\r\n"), ("c.rs", b"nothing\n")]).text
}

fn error(pattern: &str) -> PatternError {
    Search::new(SearchOptions::new(pattern)).unwrap_err()
}

#[test]
fn lines_are_grouped_by_file() {
    assert_eq!(text(SearchOptions::new("^fn")), "a.rs\n  3: fn main() {\n  8: fn other() {}\n\nb.rs\n  1: fn b() {}\n");
}

#[test]
fn context_is_shown_once_and_gaps_are_marked() {
    let options = SearchOptions { before: 1, after: 1, ..SearchOptions::new("fn (main|other)|print") };
    assert_eq!(
        text(options),
        "a.rs\n  2- \n  3: fn main() {\n  4-     let x = 1;\n  5:     print(x);\n  6- }\n  7- \n  8: fn other() {}\n"
    );
    let gap = SearchOptions { after: 1, ..SearchOptions::new("^fn|^use") };
    assert_eq!(
        text(gap),
        "a.rs\n  1: use std::io;\n  2- \n  3: fn main() {\n  4-     let x = 1;\n--\n  8: fn other() {}\n\nb.rs\n  1: fn b() {}\n"
    );
}

#[test]
fn options_change_what_matches() {
    let matches = |options: SearchOptions| report(options, &[("x", b"Foo\nfoo.bar\nfooo\nf.o\n")]).matches;
    let new = SearchOptions::new;
    assert_eq!(matches(new("foo")), 2);
    assert_eq!(matches(SearchOptions { ignore_case: true, ..new("foo") }), 3);
    assert_eq!(matches(SearchOptions { smart_case: true, ..new("foo") }), 3);
    assert_eq!(matches(SearchOptions { smart_case: true, ..new("Foo") }), 1);
    assert_eq!(matches(SearchOptions { whole_word: true, ..new("foo") }), 1);
    assert_eq!(matches(new("f.o")), 3);
    assert_eq!(matches(SearchOptions { fixed_string: true, ..new("f.o") }), 1);
    assert_eq!(matches(new("o$")), 3);
    assert_eq!(matches(new("$")), 4);
    assert_eq!(matches(new(r"\z")), 0, "there is no line behind the last line feed");
}

#[test]
fn a_match_is_within_a_line_unless_multiline_is_set() {
    let file: &[(&str, &[u8])] = &[("x", b"a {\n\n}\nb\n")];
    assert_eq!(report(SearchOptions::new(r"\{\s*\}"), file).matches, 0);
    let multiline = SearchOptions { multiline: true, ..SearchOptions::new(r"\{\s*\}") };
    assert_eq!(report(multiline, file).text, "x\n  1: a {\n  2: \n  3: }\n");
}

#[test]
fn lines_end_before_a_carriage_return() {
    for multiline in [false, true] {
        let options = SearchOptions { multiline, ..SearchOptions::new("^b$") };
        assert_eq!(report(options, &[("x", b"a\r\nb\r\n")]).text, "x\n  2: b\n", "{multiline}");
    }
}

#[test]
fn paths_alone_or_counts_can_be_asked_for() {
    assert_eq!(text(SearchOptions { mode: SearchMode::FilesOnly, ..SearchOptions::new("fn") }), "a.rs\nb.rs\n");
    assert_eq!(text(SearchOptions { mode: SearchMode::Counts, ..SearchOptions::new("fn") }), "a.rs: 2\nb.rs: 1\n");
}

#[test]
fn binary_files_are_skipped_and_utf_16_is_read() {
    let report =
        report(SearchOptions::new("a.b"), &[("x", b"a\0b"), ("y", b"\xff\xfea\0.\0b\0\n\0"), ("z", b"a\xe9b\n")]);
    // A byte that is no UTF-8 is no character, so a dot does not match it.
    assert_eq!(report.text, "y\n  1: a.b\n");
    assert_eq!((report.skipped_binary, report.searched_files), (1, 2));
    assert_eq!(self::report(SearchOptions::new("a"), &[("z", b"a\xe9b\n")]).text, "z\n  1: a<0xE9>b\n");
}

#[test]
fn a_long_line_is_cut_around_the_match() {
    let line = format!("{}needle{}\n", "é".repeat(1000), "x".repeat(1000));
    let text = report(SearchOptions::new("needle"), &[("x", line.as_bytes())]).text;
    assert!(
        text.starts_with("x\n  1: [1880 bytes] …éé")
            && text.contains("éneedlexx")
            && text.ends_with("xx… [726 bytes]\n"),
        "{text}"
    );
}

#[test]
fn a_search_that_is_full_says_how_to_narrow_it() {
    let mut search = Search::new(SearchOptions { max_matches: 3, max_per_file: 2, ..SearchOptions::new("x") }).unwrap();
    search.file(b"a", &b"x\n".repeat(5));
    assert!(!search.is_full());
    search.file(b"b", &b"x\n".repeat(5));
    assert!(search.is_full());
    search.file(b"c", b"x\n");
    let report = search.finish();
    assert_eq!(
        report.text,
        "a\n  1: x\n  2: x\n  [more matches in this file; the first 2 are shown]\n\nb\n  1: x\n[stopped after 3 matches in 2 files; there may be more. Narrow the pattern, the path or the file type]\n"
    );
    assert!(report.is_cut);
}

#[test]
fn a_match_that_is_larger_than_the_report_is_shown_in_part() {
    let line = format!("x{}\n", "\u{1}".repeat(399)).repeat(100);
    let options = SearchOptions { multiline: true, before: 20, after: 20, ..SearchOptions::new("(?s)x.*") };
    let report = report(options, &[("a", line.as_bytes())]);
    assert!(report.text.starts_with("a\n  1: x<U+0001>") && report.is_cut, "{}", report.text);
    assert!(report.text.len() > MAX_BYTES / 2);
}

#[test]
fn a_file_that_is_too_large_for_multiline_is_counted() {
    let bytes = vec![b'x'; MAX_MULTILINE_BYTES + 1];
    let report = report(SearchOptions { multiline: true, ..SearchOptions::new("y") }, &[("a", &bytes)]);
    assert_eq!(report.text, "no match in 0 files (1 large file skipped)\n");
    assert!(report.is_cut);
}

#[test]
fn no_match_says_how_much_was_searched() {
    let report = report(SearchOptions::new("q"), &[("a", b"x"), ("b", b"\0")]);
    assert_eq!((report.text.as_str(), report.is_cut), ("no match in 1 file (1 binary file skipped)\n", false));
}

#[test]
fn a_wrong_pattern_says_where_and_what_to_do() {
    let message = error("foo(bar").to_string();
    assert!(
        message.contains("foo(bar\n       ^")
            && message.contains("unclosed group")
            && message.contains("set fixed_string"),
        "{message}"
    );
    assert_eq!(error("(?=a)b"), PatternError::LookAround);
    assert_eq!(error("(?<!a)b"), PatternError::LookAround);
    assert_eq!(error(r"(a)\1"), PatternError::Backreference);
    assert_eq!(error(r"a\nb"), PatternError::LineBreak);
    assert_eq!(error(r"(\pL{1000}){1000}"), PatternError::TooLarge);
    assert_eq!(error(""), PatternError::Empty);
    assert_eq!(error(&"a".repeat(MAX_PATTERN_BYTES + 1)), PatternError::TooLong { bytes: MAX_PATTERN_BYTES + 1 });
    assert!(matches!(error(&"(".repeat(2000)), PatternError::Syntax { .. }));
    assert!(matches!(error("a)|(b"), PatternError::Syntax { .. }));
}

/// Lines with a match, found in the simplest way.
fn expected(bytes: &[u8], needle: u8) -> Vec<String> {
    let lines = bytes.split_inclusive(|byte| *byte == b'\n').enumerate();
    lines.filter(|(_, line)| line.contains(&needle)).map(|(at, _)| format!("  {}: ", at + 1)).collect()
}

proptest! {
    #[test]
    fn any_bytes_give_a_bounded_report(
        pattern in "[ab.*+?^$|()\\[\\]\\\\sw{}\n1,-]{1,10}",
        flags in any::<[bool; 5]>(),
        context in (0usize..4, 0usize..4),
        bytes in prop_oneof![prop::collection::vec(any::<u8>(), 0..300), prop::collection::vec(prop::sample::select(b"ab \n\r\xe9".to_vec()), 0..300)],
        mode in prop::sample::select(vec![SearchMode::Lines, SearchMode::FilesOnly, SearchMode::Counts]),
    ) {
        let [fixed_string, ignore_case, smart_case, whole_word, multiline] = flags;
        let options = SearchOptions { fixed_string, ignore_case, smart_case, whole_word, multiline, before: context.0, after: context.1, mode, ..SearchOptions::new(pattern) };
        if let Ok(mut search) = Search::new(options) {
            search.file(b"x", &bytes);
            search.file(b"y", &bytes);
            prop_assert!(search.finish().text.len() <= MAX_BYTES + 300);
        }
    }

    #[test]
    fn every_line_with_a_match_is_found_and_shown_once(
        bytes in prop::collection::vec(prop::sample::select(b"aab \n\n\r".to_vec()), 0..60),
        before in 0usize..3,
        after in 0usize..3,
    ) {
        let report = report(SearchOptions { before, after, ..SearchOptions::new("b") }, &[("x", &bytes)]);
        let matched: Vec<String> = report.text.lines().filter(|line| line.starts_with("  ") && line.contains(": ")).map(|line| line[..=line.find(": ").unwrap() + 1].to_owned()).collect();
        prop_assert_eq!(matched, expected(&bytes, b'b'));
        let numbers: Vec<u64> = report.text.lines().filter_map(|line| line.strip_prefix("  ")?.split([':', '-']).next()?.parse().ok()).collect();
        prop_assert!(numbers.is_sorted_by(|a, b| a < b), "{:?}", numbers);
        // Each line within the context of a match is there.
        let wanted = |line: u64| expected(&bytes, b'b').iter().any(|found| {
            let found: u64 = found.trim().trim_end_matches(':').parse().unwrap();
            line + before as u64 >= found && line <= found + after as u64
        });
        let count = bytes.split_inclusive(|byte| *byte == b'\n').count() as u64;
        prop_assert_eq!(numbers, (1..=count).filter(|line| wanted(*line)).collect::<Vec<_>>());
    }
}
