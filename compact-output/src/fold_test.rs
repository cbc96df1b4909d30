//! Tests of the folding of lines that are equal or alike.

use super::*;

fn folded(lines: &[String]) -> Vec<String> {
    let mut fold = Fold::new(12);
    let mut section = Section::new(1 << 20);
    lines.iter().for_each(|line| fold.line(line, &mut section));
    fold.flush(&mut section);
    section.into_content().head.into_iter().map(|line| line.text.into()).collect()
}

fn numbered(count: usize, text: &str) -> Vec<String> {
    (0..count).map(|n| text.replace('#', &n.to_string())).collect()
}

#[test]
fn a_run_of_alike_lines_keeps_its_start_and_its_last_line() {
    let out = folded(&numbered(100, "row #"));
    assert_eq!(out.len(), 14);
    assert_eq!(out[12..], ["… 87 more like this", "row 99"]);
}

#[test]
fn lines_of_a_log_are_counted_also_if_others_stand_between_them() {
    let lines: Vec<String> = (0..50).flat_map(|n| [format!("INFO got {n}"), format!("DEBUG put {n}")]).collect();
    assert_eq!(folded(&lines).last().unwrap(), "… 94 more like this");
}

#[test]
fn failures_that_differ_in_a_number_all_stay() {
    assert_eq!(folded(&numbered(40, "ERROR worker # lost")).len(), 40);
    assert_eq!(folded(&vec!["ERROR lost".to_owned(); 40]), ["ERROR lost", "… 38 more like this", "ERROR lost"]);
}

#[test]
fn source_code_stays_as_it_is() {
    let code: Vec<String> = ["fn a() {", "    b();", "}", "", "fn c() {", "    b();", "}"].map(str::to_owned).into();
    assert_eq!(folded(&code), code);
}

#[test]
fn blank_lines_fold_into_one() {
    let lines = ["", "a", "", " ", "", "b"].map(str::to_owned);
    assert_eq!(folded(&lines), ["a", "", "b"]);
}

#[test]
fn a_timestamp_is_shown_once_a_minute_and_on_failures() {
    let lines =
        ["2026-01-05 10:00:01 a", "2026-01-05 10:00:02 b", "2026-01-05 10:00:03 error c", "2026-01-05 10:01:00 d"];
    let out = folded(&lines.map(str::to_owned));
    assert_eq!(out, [lines[0], "b", lines[2], lines[3]]);
}

#[test]
fn a_long_line_keeps_both_ends_and_says_what_is_missing() {
    let line = format!("start{}end", "é".repeat(5000));
    let out = clamp(&line, 100);
    assert!(out.starts_with("starté") && out.ends_with("éend"));
    assert!(out.chars().count() < 130 && out.contains("bytes left out"));
}

#[test]
fn folding_what_is_folded_changes_nothing() {
    let lines =
        [numbered(60, "INFO row #"), numbered(9, "data # x"), vec![String::new(), "ERROR a".into(), "b".into()]]
            .concat();
    let once = folded(&lines);
    assert_eq!(folded(&once), once);
}
