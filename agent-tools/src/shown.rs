//! Shows names and lines of strangers so that nothing in them is invisible or acts on the reader.
//!
//! A name is one line, and if it needs escapes it has the form `$'…'` of the shell, so that it can be pasted into a command. A line of a
//! file keeps its tabs; characters that cannot be seen are shown as `<U+001B>`, bytes that are no UTF-8 as `<0xFF>`. Source code is full
//! of `\x1b` as text, so a backslash would be mistaken for that.

use std::fmt::{self, Display, Write};

/// A longer name is cut. Linux allows paths of 4,096 bytes.
pub const MAX_NAME_CHARS: usize = 4096;

/// Shows the bytes of a name or path in one line.
#[derive(Clone, Copy, Debug)]
pub struct Escaped<'a>(pub &'a [u8]);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Ok(name) = std::str::from_utf8(self.0)
            && !name.is_empty()
            && !name.starts_with("$'")
            && !name.chars().any(is_unseen)
        {
            return match name.char_indices().nth(MAX_NAME_CHARS) {
                Some((end, _)) => write!(f, "{}…", &name[..end]),
                None => f.write_str(name),
            };
        }
        f.write_str("$'")?;
        let mut left = MAX_NAME_CHARS;
        for chunk in self.0.utf8_chunks() {
            for c in chunk.valid().chars().take(left) {
                left -= 1;
                match c {
                    '\n' => f.write_str("\\n")?,
                    '\r' => f.write_str("\\r")?,
                    '\t' => f.write_str("\\t")?,
                    '\\' => f.write_str("\\\\")?,
                    '\'' => f.write_str("\\'")?,
                    c if c.is_ascii() && is_unseen(c) => write!(f, "\\x{:02x}", u32::from(c))?,
                    c if is_unseen(c) && u32::from(c) <= 0xffff => write!(f, "\\u{:04x}", u32::from(c))?,
                    c if is_unseen(c) => write!(f, "\\U{:08x}", u32::from(c))?,
                    c => f.write_char(c)?,
                }
            }
            for byte in chunk.invalid().iter().take(left) {
                left -= 1;
                write!(f, "\\x{byte:02x}")?;
            }
            if left == 0 {
                f.write_char('…')?;
                break;
            }
        }
        f.write_char('\'')
    }
}

/// Whether a character cannot be seen, breaks the line or changes the direction of the text.
pub(crate) fn is_unseen(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
        || matches!(c, '\u{e0000}'..='\u{e007f}')
}

/// Adds a line of a file to a text, at most `max_chars` characters of it. Returns how many characters are left out.
pub(crate) fn push_line(out: &mut String, line: &str, max_chars: usize) -> usize {
    let end = line.char_indices().nth(max_chars).map_or(line.len(), |(at, _)| at);
    for c in line[..end].chars() {
        if c != '\t' && is_unseen(c) {
            push_code(out, c);
        } else {
            out.push(c);
        }
    }
    line[end..].chars().count()
}

/// Adds bytes that should be UTF-8 to a text.
pub(crate) fn push_bytes(out: &mut String, bytes: &[u8]) {
    for chunk in bytes.utf8_chunks() {
        push_line(out, chunk.valid(), usize::MAX);
        for byte in chunk.invalid() {
            push_formatted(out, format_args!("<0x{byte:02X}>"));
        }
    }
}

fn push_code(out: &mut String, c: char) {
    push_formatted(out, format_args!("<U+{:04X}>", u32::from(c)));
}

/// Adds formatted text. Writing to a string cannot fail.
pub(crate) fn push_formatted(out: &mut String, arguments: fmt::Arguments<'_>) {
    let _ = out.write_fmt(arguments);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_ordinary_name_is_shown_as_it_is() {
        assert_eq!(Escaped("src/für elise.rs".as_bytes()).to_string(), "src/für elise.rs");
        assert_eq!(Escaped(br"a\b").to_string(), r"a\b");
    }

    #[test]
    fn a_name_with_control_characters_or_broken_utf8_can_be_pasted_into_a_shell() {
        assert_eq!(Escaped(b"a\n\x1b[0m'\xff\\").to_string(), r"$'a\n\x1b[0m\'\xff\\'");
        assert_eq!(Escaped("a\u{202e}b".as_bytes()).to_string(), r"$'a\u202eb'");
        assert_eq!(Escaped(b"").to_string(), "$''");
        assert_eq!(Escaped(b"$'a'").to_string(), r"$'$\'a\''");
    }

    #[test]
    fn a_line_keeps_tabs_and_shows_what_cannot_be_seen() {
        let mut out = String::new();
        assert_eq!(push_line(&mut out, "\ta\x1bb\u{85}cdef", 5), 4);
        assert_eq!(out, "\ta<U+001B>b<U+0085>");
    }

    proptest! {
        #[test]
        fn a_name_is_one_visible_line_of_bounded_length(bytes in prop::collection::vec(any::<u8>(), 0..6000)) {
            let shown = Escaped(&bytes).to_string();
            prop_assert!(!shown.chars().any(is_unseen));
            prop_assert!(shown.chars().count() <= 10 * MAX_NAME_CHARS);
            prop_assert!(!shown.is_empty());
        }
    }
}
