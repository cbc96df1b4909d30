//! The `read` tool: numbered lines of a text, in pieces.
//!
//! Promises: the text is at most `max_bytes` and a note; a piece has at least one line, so reading on with `next_offset` reaches the end; the
//! note says what is left out. Characters that cannot be seen are shown as `<U+001B>`.

use crate::output::{count, index};
use crate::shown::{push_formatted, push_line};
use crate::text::{Encoding, LineEnding, Text};

/// Lines of a piece, if the caller does not say.
pub const DEFAULT_LIMIT: u64 = 2000;
/// Bytes of a piece, if the caller does not say.
pub const DEFAULT_MAX_BYTES: usize = 64 << 10;
/// A smaller `max_bytes` counts as this one.
pub const MIN_MAX_BYTES: usize = 1 << 10;
/// A longer line is cut.
pub const MAX_LINE_CHARS: usize = 2000;
/// The notes below a piece are never longer.
pub const MAX_NOTE_BYTES: usize = 512;

/// What to read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ViewOptions {
    /// The number of the first line, from 1; 0 counts as 1.
    pub offset: u64,
    /// How many lines at most; 0 counts as 1.
    pub limit: u64,
    pub max_bytes: usize,
}

impl Default for ViewOptions {
    fn default() -> Self {
        Self { offset: 1, limit: DEFAULT_LIMIT, max_bytes: DEFAULT_MAX_BYTES }
    }
}

/// A piece of a text.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct View {
    /// The numbered lines and the notes below them.
    pub text: String,
    /// The number of the first line; 0 if the file is empty.
    pub first_line: u64,
    /// The number of the last line; 0 if the file is empty.
    pub last_line: u64,
    pub total_lines: u64,
    /// How many of the shown lines are cut.
    pub clamped_lines: u64,
    /// Where to read on, if there is more.
    pub next_offset: Option<u64>,
}

/// There is nothing to show at the offset.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the offset {offset} is beyond the end: the file has {total_lines} lines")]
pub struct BeyondEnd {
    pub offset: u64,
    pub total_lines: u64,
}

/// Shows a piece of a text.
pub fn read(text: &Text, options: &ViewOptions) -> Result<View, BeyondEnd> {
    let total_lines = text.line_count();
    let offset = options.offset.max(1);
    if total_lines == 0 && offset == 1 {
        let text = "[the file is empty]\n".to_owned();
        return Ok(View { text, first_line: 0, last_line: 0, total_lines: 0, clamped_lines: 0, next_offset: None });
    }
    if offset > total_lines {
        return Err(BeyondEnd { offset: options.offset, total_lines });
    }
    let max_bytes = options.max_bytes.max(MIN_MAX_BYTES);
    let mut out = String::new();
    let (mut last_line, mut clamped_lines, mut has_unseen) = (offset - 1, 0, false);
    for line in text.lines().skip(index(offset - 1)).take(index(options.limit.max(1))) {
        let before = out.len();
        let mut is_clamped = push_numbered(&mut out, last_line + 1, line, MAX_LINE_CHARS);
        if out.len() > max_bytes {
            out.truncate(before);
            if before > 0 {
                break;
            }
            // A character is shown with at most 9 bytes, so the first line fits now.
            is_clamped = push_numbered(&mut out, last_line + 1, line, max_bytes / 9 - 16);
        }
        has_unseen |= line.chars().take(MAX_LINE_CHARS).any(|c| c != '\t' && crate::shown::is_unseen(c));
        clamped_lines += u64::from(is_clamped);
        last_line += 1;
    }
    let next_offset = (last_line < total_lines).then_some(last_line + 1);
    push_notes(&mut out, text, offset, last_line, total_lines, has_unseen);
    Ok(View { text: out, first_line: offset, last_line, total_lines, clamped_lines, next_offset })
}

/// Adds a line with its number. Returns whether it is cut.
fn push_numbered(out: &mut String, number: u64, line: &str, max_chars: usize) -> bool {
    push_formatted(out, format_args!("{number:>6}\t"));
    let left_out = push_line(out, line, max_chars);
    if left_out > 0 {
        push_formatted(out, format_args!(" … [{} left out]", crate::output::counted(count(left_out), "character")));
    }
    out.push('\n');
    left_out > 0
}

fn push_notes(out: &mut String, text: &Text, first: u64, last: u64, total: u64, has_unseen: bool) {
    if last < total {
        push_formatted(out, format_args!("[lines {first} to {last} of {total}; read on with offset {}]\n", last + 1));
    } else if first > 1 {
        push_formatted(out, format_args!("[lines {first} to {last} of {total}; this is the end]\n"));
    }
    if text.encoding() == Encoding::Latin1 {
        out.push_str("[the file is not UTF-8; it is shown as Latin-1]\n");
    } else if text.encoding() != Encoding::Utf8 {
        push_formatted(out, format_args!("[the file is {}]\n", text.encoding().name()));
    }
    if !matches!(text.line_ending(), LineEnding::None | LineEnding::Lf) {
        push_formatted(out, format_args!("[line endings: {}]\n", text.line_ending().name()));
    }
    if last == total && !text.has_final_newline() {
        out.push_str("[no newline at the end of the file]\n");
    }
    if has_unseen {
        out.push_str("[characters that cannot be seen are shown by their code, as <U+001B> for escape]\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn view(text: &str, options: &ViewOptions) -> View {
        read(&Text::decode(text.as_bytes()).unwrap(), options).unwrap()
    }

    fn numbered(count: u64) -> String {
        (1..=count).map(|n| format!("row {n}\n")).collect()
    }

    #[test]
    fn lines_have_their_numbers() {
        let view = view("fn main() {\n\tx();\n}\n", &ViewOptions::default());
        assert_eq!(view.text, "     1\tfn main() {\n     2\t\tx();\n     3\t}\n");
        assert_eq!((view.first_line, view.last_line, view.next_offset), (1, 3, None));
    }

    #[test]
    fn a_note_says_how_to_read_on() {
        let first = view(&numbered(5310), &ViewOptions::default());
        assert!(first.text.ends_with("  2000\trow 2000\n[lines 1 to 2000 of 5310; read on with offset 2001]\n"));
        assert_eq!((first.last_line, first.next_offset), (2000, Some(2001)));
        let last = view(&numbered(5310), &ViewOptions { offset: 5309, ..ViewOptions::default() });
        assert!(last.text.ends_with("[lines 5309 to 5310 of 5310; this is the end]\n"));
    }

    #[test]
    fn an_offset_beyond_the_end_is_told_the_number_of_lines() {
        let text = Text::decode(b"a\nb\n").unwrap();
        let error = read(&text, &ViewOptions { offset: 3, ..ViewOptions::default() }).unwrap_err();
        assert_eq!(error.to_string(), "the offset 3 is beyond the end: the file has 2 lines");
    }

    #[test]
    fn an_empty_file_says_so() {
        assert_eq!(view("", &ViewOptions::default()).text, "[the file is empty]\n");
    }

    #[test]
    fn a_long_line_says_how_many_characters_are_left_out() {
        let view = view(&format!("{}\nb\n", "é".repeat(2500)), &ViewOptions::default());
        assert!(view.text.contains("éé … [500 characters left out]\n     2\tb\n"), "{}", view.text);
        assert_eq!(view.clamped_lines, 1);
    }

    #[test]
    fn escapes_are_visible() {
        let view = view("a\x1b[2Jb\n", &ViewOptions::default());
        assert!(view.text.starts_with("     1\ta<U+001B>[2Jb\n[characters"), "{}", view.text);
    }

    #[test]
    fn line_endings_and_encodings_are_said() {
        let view = read(&Text::decode(b"a\xe9\r\nb\r\n").unwrap(), &ViewOptions::default()).unwrap();
        assert_eq!(
            view.text,
            "     1\taé\n     2\tb\n[the file is not UTF-8; it is shown as Latin-1]\n[line endings: CRLF]\n"
        );
    }

    proptest! {
        #[test]
        fn pieces_are_bounded_and_together_are_the_whole(
            lines in prop::collection::vec("[a\u{1b}é\t]{0,900}", 1..40),
            limit in 0u64..20,
            max_bytes in 0usize..6000,
        ) {
            let text = Text::decode(lines.iter().map(|line| format!("{line}\n")).collect::<String>().as_bytes()).unwrap();
            let mut next = Some(1);
            let mut seen = 0;
            while let Some(offset) = next {
                let view = read(&text, &ViewOptions { offset, limit, max_bytes }).unwrap();
                prop_assert!(view.text.len() <= max_bytes.max(MIN_MAX_BYTES) + MAX_NOTE_BYTES);
                prop_assert_eq!(view.first_line, seen + 1);
                prop_assert!(view.last_line >= view.first_line && view.last_line - view.first_line < limit.max(1));
                seen = view.last_line;
                next = view.next_offset;
            }
            prop_assert_eq!(seen, lines.len() as u64);
        }
    }
}
