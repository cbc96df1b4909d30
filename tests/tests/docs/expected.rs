//! Decides whether a program printed what a document says. Pure.
//!
//! `…` within a line stands for any text of that line. A line of `…` alone stands for any number of lines, also none. Spaces
//! at the end of a line and empty lines at the end of the text do not count, because nobody sees them.

use std::fmt;

const ANYTHING: &str = "…";

pub fn compare(expected: &str, printed: &str) -> Result<(), String> {
    let expected: Vec<&str> = expected.trim_end().lines().map(str::trim_end).collect();
    let printed: Vec<&str> = printed.trim_end().lines().map(str::trim_end).collect();
    first_difference(&expected, &printed).map_or(Ok(()), |difference| Err(difference.to_string()))
}

/// The first line that differs. A missing line is `None`.
#[derive(Debug, Clone, Copy)]
struct Difference<'a> {
    expected: Option<&'a str>,
    printed: Option<&'a str>,
}

impl fmt::Display for Difference<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.expected, self.printed) {
            (None, Some(text)) => write!(f, "it printed more than is documented: {text:?}"),
            (Some(line), None) => write!(f, "it did not print what is documented: {line:?}"),
            (line, text) => {
                write!(f, "documented is {:?}, printed was {:?}", line.unwrap_or_default(), text.unwrap_or_default())
            }
        }
    }
}

fn first_difference<'a>(expected: &[&'a str], printed: &[&'a str]) -> Option<Difference<'a>> {
    let Some((line, rest)) = expected.split_first() else {
        return printed.first().map(|text| Difference { expected: None, printed: Some(text) });
    };
    if *line == ANYTHING {
        let mut tries = (0..=printed.len()).map(|skipped| first_difference(rest, &printed[skipped..])).peekable();
        // Of all attempts, the one that skips nothing gives the best message.
        let first = *tries.peek()?;
        return if tries.any(|difference| difference.is_none()) { None } else { first };
    }
    match printed.split_first() {
        Some((text, others)) if line_matches(line, text) => first_difference(rest, others),
        other => Some(Difference { expected: Some(line), printed: other.map(|(text, _)| *text) }),
    }
}

fn line_matches(expected: &str, text: &str) -> bool {
    let Some((head, rest)) = expected.split_once(ANYTHING) else { return expected == text };
    let Some(mut text) = text.strip_prefix(head) else { return false };
    let mut pieces = rest.split(ANYTHING).peekable();
    while let Some(piece) = pieces.next() {
        if pieces.peek().is_none() {
            return text.ends_with(piece);
        }
        match text.find(piece) {
            Some(at) => text = &text[at + piece.len()..],
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_documented_is_what_must_be_printed() {
        assert!(compare("a\nb\n", "a\nb\n").is_ok());
        assert!(compare("", "").is_ok());
        assert!(compare("a\n", "a\nb\n").is_err());
        assert!(compare("a\nb\n", "a\n").is_err());
        assert!(compare("a\n", "b\n").is_err());
        assert!(compare("", "sh: no such command\n").is_err());
    }

    #[test]
    fn three_dots_stand_for_anything_in_a_line() {
        assert!(compare("id …, …ms", "id 17, 3 ms").is_ok());
        assert!(compare("id …, …ms", "id 17, 3 s").is_err());
        assert!(compare("…a…", "bab").is_ok());
        assert!(compare("a…a", "a").is_err());
        assert!(compare("a…c\nd", "abc\nd").is_ok());
    }

    #[test]
    fn three_dots_alone_stand_for_any_lines() {
        assert!(compare("a\n…\nd", "a\nb\nc\nd").is_ok());
        assert!(compare("a\n…\nd", "a\nd").is_ok());
        assert!(compare("…\nd\n…", "a\nd").is_ok());
        assert!(compare("a\n…\nd", "a\nb").is_err());
    }
}
