//! Tests of edits and of what their errors say.

use super::*;
use proptest::prelude::*;

fn edit(old: &str, new: &str) -> Edit {
    Edit { old: old.into(), new: new.into(), replace_all: false }
}

fn all(old: &str, new: &str) -> Edit {
    Edit { replace_all: true, ..edit(old, new) }
}

fn applied(original: &[u8], edits: &[Edit]) -> Result<Edited, EditError> {
    apply(original, edits, &DiffOptions::new(b"x"))
}

fn result(original: &[u8], edits: &[Edit]) -> Vec<u8> {
    applied(original, edits).unwrap().bytes
}

fn error(original: &[u8], edits: &[Edit]) -> String {
    applied(original, edits).unwrap_err().to_string()
}

#[test]
fn edits_apply_in_order_to_the_result_of_the_one_before() {
    let edited = applied(b"one\ntwo\n", &[edit("two", "three"), edit("three", "four")]).unwrap();
    assert_eq!(edited.bytes, b"one\nfour\n");
    assert_eq!((edited.replacements, edited.first_line), (2, 2));
    assert_eq!(edited.diff, "--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n one\n-two\n+four\n");
}

#[test]
fn replace_all_replaces_every_occurrence() {
    let edited = applied(b"a b a\na\n", &[all("a", "c")]).unwrap();
    assert_eq!((edited.bytes, edited.replacements), (b"c b c\nc\n".to_vec(), 3));
}

#[test]
fn an_ambiguous_text_says_how_often_and_where() {
    let error = error(b"x\ny\nx\nx\n", &[edit("x", "z")]);
    assert!(error.starts_with("the text to replace occurs 3 times, at lines 1, 3, 4; add lines"), "{error}");
    let many = applied(&b"x\n".repeat(9), &[edit("x", "z")]).unwrap_err().to_string();
    assert!(many.contains("9 times, at lines 1, 2, 3, 4, 5 and more"), "{many}");
    assert!(applied(b"aaa", &[edit("aa", "b")]).is_err(), "occurrences that overlap are two");
}

#[test]
fn lf_matches_crlf_and_the_replacement_gets_the_endings_of_the_file() {
    assert_eq!(result(b"a\r\nb\r\nc\r\n", &[edit("a\nb\n", "x\ny\nz\n")]), b"x\r\ny\r\nz\r\nc\r\n");
    assert_eq!(result(b"a\r\nb\r\nc\r\n", &[edit("a\r\nb", "x\ny")]), b"x\r\ny\r\nc\r\n");
    assert_eq!(result(b"a\nb\n", &[edit("a\r\nb", "x\r\ny")]), b"x\ny\n");
    assert_eq!(result(b"a\rb\r", &[edit("a\nb", "x\ny\nz")]), b"x\ry\rz\r");
    assert_eq!(result(b"p%\rq%\nb\n", &[edit("q%", "r")]), b"p%\rr\nb\n");
}

#[test]
fn a_file_with_both_endings_keeps_them() {
    let mixed = b"a\r\nb\r\nc\nd\n";
    assert_eq!(result(mixed, &[edit("a\nb", "x\ny")]), b"x\r\ny\r\nc\nd\n");
    assert_eq!(result(mixed, &[edit("c\nd", "x\ny")]), b"a\r\nb\r\nx\ny\n");
    assert_eq!(result(mixed, &[edit("b", "x\ny")]), b"a\r\nx\r\ny\r\nc\nd\n");
    let ambiguous = error(b"a\r\nb\r\na\nb\n", &[edit("a\nb", "x")]);
    assert!(ambiguous.contains("occurs 2 times, at lines 1, 3;"), "{ambiguous}");
    assert_eq!(result(b"a\r\nb\r\na\nb\n", &[all("a\nb", "x\ny")]), b"x\r\ny\r\nx\ny\n");
}

#[test]
fn the_encoding_and_the_byte_order_mark_stay() {
    assert_eq!(result(b"\xef\xbb\xbfa\n", &[edit("a", "é")]), b"\xef\xbb\xbf\xc3\xa9\n");
    assert_eq!(result(b"\xff\xfea\0", &[edit("a", "é")]), b"\xff\xfe\xe9\0");
    assert_eq!(result(b"\xe9 a", &[edit("é a", "a é")]), b"a \xe9");
    assert!(error(b"\xe9 a", &[edit("a", "→")]).contains("cannot hold the character '→'"));
}

#[test]
fn edits_that_make_no_sense_are_refused_with_a_reason() {
    assert_eq!(applied(b"a", &[]), Err(EditError::NoEdits));
    assert!(error(b"a", &[edit("", "b")]).contains("is empty"));
    assert!(error(b"a", &[edit("a", "a")]).contains("are the same"));
    assert!(error(b"a\nb\n", &[edit("a\n", "a\r\n")]).contains("only in line endings"));
    assert_eq!(applied(b"a", &[edit("a", "b"), edit("b", "a")]), Err(EditError::Unchanged));
    assert_eq!(applied(b"a\0", &[edit("a", "b")]), Err(EditError::NotText(NotText::Binary)));
    assert!(matches!(applied(&vec![b'a'; MAX_BYTES + 1], &[edit("b", "c")]), Err(EditError::TooLarge { .. })));
    assert!(error(&[b'a'; 2000], &[all("a", &"b".repeat(MAX_BYTES / 1000))]).contains("the result would have"));
    assert_eq!(
        error(b"a", &[edit("a", "b"), edit("b", "b")]),
        "edit 2 of 2 (none was applied): the old and the new text are the same"
    );
}

const CODE: &str = "fn main() {\n\tlet name = \"World\";\n\tprintln!(\"Hello, {name}\");\n}\n";

#[test]
fn a_text_with_other_white_space_is_told_what_the_file_has() {
    let error = error(CODE.as_bytes(), &[edit("    let name = \"World\";\n    println!(\"Hello, {name}\");\n", "x")]);
    assert!(
        error.contains("lines 2 to 3 is the same but for this: the indentation is 1 tab, not 4 spaces."),
        "{error}"
    );
    assert!(error.contains("-    let name = \"World\";\n") && error.contains("+\tlet name = \"World\";\n"), "{error}");
}

#[test]
fn other_small_differences_are_named() {
    for (old, words) in [
        ("LET name = \"World\";", "upper and lower case"),
        ("let name = 'World';", "other quotes"),
        ("let name = “World”;", "other quotes"),
        ("\tlet name = \"World\";  \n", "white space at the end of a line: none, not 2 spaces"),
        ("\tlet name  = \"World\";\n", "white space within a line"),
        ("fn main()\n{\n", "1 line instead of 2"),
    ] {
        let error = error(CODE.as_bytes(), &[edit(old, "x")]);
        assert!(error.contains(words), "{old:?}: {error}");
    }
}

#[test]
fn a_text_that_changed_is_told_the_most_similar_lines() {
    let many: String = (0..3000).map(|n| format!("row {n} of the table\n")).collect::<String>() + CODE;
    let error = error(many.as_bytes(), &[edit("\tlet name = \"World\";\n\tprintln!(\"Goodbye, {name}\");\n", "x")]);
    assert!(error.contains("The most similar is lines 3002 to 3003:"), "{error}");
    assert!(error.contains("-\tprintln!(\"Goodbye, {name}\");\n+\tprintln!(\"Hello, {name}\");"), "{error}");
    let second = self::error(many.as_bytes(), &[edit("\tlet nom = 1;\n\tprintln!(\"Hello, {name}\");\n", "x")]);
    assert!(second.contains("The most similar is lines 3002 to 3003:"), "{second}");
    let one_line = self::error(many.as_bytes(), &[edit("println!(\"Hello, {the_name}\");", "x")]);
    assert!(one_line.contains("The most similar is line 3003:"), "{one_line}");
}

#[test]
fn a_text_without_any_likeness_is_told_to_read_again() {
    let error = error(CODE.as_bytes(), &[edit("SELECT 1 FROM t", "x")]);
    assert!(error.contains("Nothing in its 4 lines is similar"), "{error}");
}

#[test]
fn line_numbers_and_codes_of_the_view_are_recognised() {
    let numbers = error(CODE.as_bytes(), &[edit("     1\tfn main() {\n     2\t\tlet name = \"World\";\n", "x")]);
    assert!(numbers.contains("leave out the numbers"), "{numbers}");
    assert!(error(b"a\x1bb\n", &[edit("a<U+001B>b", "x")]).contains("give the character itself"));
    assert!(!error(b"a b\n", &[edit("a<U+001B>b", "x")]).contains("give the character itself"), "the file has none");
}

#[test]
fn an_explanation_is_bounded_for_any_size() {
    let lines: Vec<u8> = b"abc def\n".repeat(100_000);
    let error = error(&lines, &[edit(&"abd  deg xyz\n".repeat(5000), "x")]);
    assert!(error.len() < 8 << 10, "{}", error.len());
}

fn small_text() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(vec!["a", "b", "ab", "\n", "\r\n", " ", "é", "\t"]), 0..12)
        .prop_map(|parts| parts.concat())
}

proptest! {
    #[test]
    fn edits_are_all_or_none(
        original in small_text(),
        edits in prop::collection::vec((small_text(), small_text(), any::<bool>()), 1..4),
    ) {
        let edits: Vec<Edit> = edits.into_iter().map(|(old, new, replace_all)| Edit { old, new, replace_all }).collect();
        // One by one, each on the result of the one before.
        let mut step_by_step = Ok(original.clone().into_bytes());
        for edit in &edits {
            step_by_step = step_by_step.and_then(|bytes| match applied(&bytes, std::slice::from_ref(edit)) {
                Err(EditError::Unchanged) => Ok(bytes),
                other => other.map(|edited| edited.bytes),
            });
        }
        // Endings are decided once for all edits; so compare where the file has one kind from the start.
        let is_lf = original.contains('\n') && !original.contains('\r') && edits.iter().all(|edit| !edit.new.contains('\r'));
        match (applied(original.as_bytes(), &edits), step_by_step) {
            (Ok(edited), Ok(bytes)) if is_lf => prop_assert_eq!(edited.bytes, bytes),
            (Ok(_), Err(error)) if is_lf => prop_assert!(false, "an edit was left out: {}", error),
            (Err(EditError::Unchanged), Ok(bytes)) if is_lf => prop_assert_eq!(bytes, original.into_bytes()),
            (Err(error), Ok(_)) if is_lf => prop_assert!(false, "refused without a reason: {}", error),
            _ => {}
        }
    }

    #[test]
    fn a_text_that_occurs_once_is_replaced_and_nothing_else(before in "[ab\n]{0,20}", after in "[ab\n]{0,20}", new in "[ab\n]{0,9}", is_crlf in any::<bool>()) {
        let file = |middle: &str| {
            let text = format!("{before}\nXY\n{middle}\n{after}\n");
            if is_crlf { text.replace('\n', "\r\n") } else { text }
        };
        let edited = result(file("Z").as_bytes(), &[edit("Y\nZ", &format!("Y\n{new}"))]);
        prop_assert_eq!(String::from_utf8(edited).unwrap(), file(&new));
    }

    #[test]
    fn errors_are_bounded_for_any_texts(original in "(?s).{0,400}", old in "(?s).{1,400}") {
        if let Err(error) = applied(original.as_bytes(), &[edit(&old, "\u{1}new")]) {
            prop_assert!(error.to_string().len() < 8 << 10);
        }
    }
}
