//! Tests of the unified diff, with a small program that applies it.

use super::*;
use proptest::prelude::*;

fn diff(old: &str, new: &str) -> Difference {
    of_files(old.as_bytes(), new.as_bytes(), &DiffOptions::new(b"x"))
}

/// Applies a diff that is not cut.
fn patched(old: &str, diff: &str) -> String {
    let old: Vec<&str> = old.split_inclusive('\n').collect();
    let mut new = String::new();
    let mut at = 0;
    let mut lines = diff.split_inclusive('\n').skip(2).peekable();
    while let Some(line) = lines.next() {
        let (sign, body) = line.split_at(1);
        let is_last = lines.peek().is_some_and(|next| next.starts_with('\\'));
        let body = if is_last { body.strip_suffix('\n').unwrap() } else { body };
        match sign {
            "@" => {
                let range = body.split([' ', '@']).find_map(|word| word.strip_prefix('-')).unwrap();
                let (start, len) = range.split_once(',').unwrap_or((range, "1"));
                let start: usize = start.parse().unwrap();
                let start = if len == "0" { start } else { start - 1 };
                new.push_str(&old[at..start].concat());
                at = start;
            }
            " " | "-" => {
                assert_eq!(old[at], body, "the diff does not fit");
                at += 1;
                if sign == " " {
                    new.push_str(body);
                }
            }
            "+" => new.push_str(body),
            "\\" => {}
            other => panic!("{other:?}"),
        }
    }
    new.push_str(&old[at..].concat());
    new
}

#[test]
fn a_change_is_shown_with_three_lines_around_it() {
    let old: String = (1..=9).map(|n| format!("{n}\n")).collect();
    let diff = diff(&old, &old.replace("5\n", "five\n"));
    assert_eq!(diff.text, "--- a/x\n+++ b/x\n@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n");
    assert_eq!((diff.added_lines, diff.removed_lines), (1, 1));
}

#[test]
fn a_missing_newline_at_the_end_is_shown() {
    assert_eq!(diff("a\n", "a").text, "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+a\n\\ No newline at end of file\n");
    assert_eq!(diff("", "a\n").text, "--- a/x\n+++ b/x\n@@ -0,0 +1 @@\n+a\n");
}

#[test]
fn what_is_no_difference_of_lines_is_said_in_words() {
    assert_eq!(diff("a\n", "a\n").text, "x is unchanged\n");
    assert_eq!(diff("a\n", "a\r\n").text, "x: the lines are equal; the line endings change from LF to CRLF\n");
    assert_eq!(diff("a\n", "\u{feff}a\n").text.matches("byte order mark").count(), 1);
    assert_eq!(diff("a\0", "b\0").text, "binary files differ: x\n");
    assert!(diff("a\n", "b\r\n").text.ends_with("-a\n+b\n[the line endings change from LF to CRLF]\n"));
    assert!(diff("a\r\nb\r\n", "a\r\nb\n").text.contains("-b<U+000D>\n+b\n"), "one line of a mixed file");
}

#[test]
fn few_changes_in_a_huge_file_are_found() {
    let old: String = (0..200_000).map(|n| format!("line {n}\n")).collect();
    let new =
        old.replace("line 7\n", "seven\n").replace("line 100000\n", "").replace("line 199990\n", "x\nline 199990\n");
    let diff = diff(&old, &new);
    assert_eq!((diff.added_lines, diff.removed_lines), (2, 2));
    assert_eq!(patched(&old, &diff.text), new);
}

#[test]
fn huge_files_without_common_lines_are_one_replacement_that_is_cut() {
    let old: String = (0..100_000).map(|n| format!("a{}\n", n % 5)).collect();
    let new: String = (0..100_000).map(|n| format!("b{}\na{}\n", n % 7, n % 3)).collect();
    let diff = diff(&old, &new);
    assert!(diff.text.len() <= DEFAULT_MAX_BYTES + 200);
    assert!(diff.left_out_lines > 200_000 && diff.text.ends_with("more lines of the diff left out]\n"));
}

fn texts() -> impl Strategy<Value = String> {
    (prop::collection::vec("[abc]{0,2}", 0..30), any::<bool>()).prop_map(|(lines, is_ended)| {
        let text = lines.join("\n");
        if is_ended { text + "\n" } else { text }
    })
}

proptest! {
    #[test]
    fn applying_a_diff_gives_the_new_text(old in texts(), new in texts()) {
        let diff = diff(&old, &new);
        if old != new {
            prop_assert_eq!(patched(&old, &diff.text), new);
        }
    }

    #[test]
    fn a_diff_is_bounded(old in prop::collection::vec(any::<u8>(), 0..900), new in prop::collection::vec(any::<u8>(), 0..900), max_lines in 0usize..20, max_bytes in 0usize..300) {
        let diff = of_files(&old, &new, &DiffOptions { path: b"x", max_lines, max_bytes });
        prop_assert!(diff.text.len() <= max_bytes + 512);
        // Each line may be followed by one about its newline, and there are five lines around them.
        prop_assert!(diff.text.lines().count() <= 2 * max_lines + 5);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn the_fixed_points_of_large_texts_give_a_diff_that_applies(old in texts(), new in texts(), has_same_end in any::<bool>()) {
        // Enough lines that an exact comparison is refused.
        let filler = |name: &str| (0..5000).map(|n| format!("{name}{n}\n")).collect::<String>();
        let old = format!("{}{old}\nsame\n{}", filler("x"), filler("y"));
        let new = format!("{}{new}\nsame\n{}", filler("z"), filler(if has_same_end { "y" } else { "w" }));
        let options = DiffOptions { path: b"x", max_lines: usize::MAX, max_bytes: usize::MAX };
        let diff = of_files(old.as_bytes(), new.as_bytes(), &options);
        // Between two changes it must be found; before a common end it may be too far from the change to be shown.
        prop_assert!(has_same_end || diff.text.contains("\n same\n"));
        prop_assert_eq!(patched(&old, &diff.text), new);
    }
}
