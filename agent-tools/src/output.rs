//! A text with a bound, made of whole lines.

/// Collects lines as long as they are within the bounds.
#[derive(Debug)]
pub(crate) struct Output {
    text: String,
    lines_left: usize,
    max_bytes: usize,
    is_full: bool,
}

impl Output {
    pub(crate) fn new(max_lines: usize, max_bytes: usize) -> Self {
        Self { text: String::new(), lines_left: max_lines, max_bytes, is_full: false }
    }

    /// Adds a line, or refuses it and every line after it.
    pub(crate) fn line(&mut self, line: &str) -> bool {
        self.is_full |= self.lines_left == 0 || self.text.len() + line.len() + 1 > self.max_bytes;
        if !self.is_full {
            self.text.push_str(line);
            self.text.push('\n');
            self.lines_left -= 1;
        }
        !self.is_full
    }

    /// Whether a line was refused.
    pub(crate) fn is_full(&self) -> bool {
        self.is_full
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Adds a short line about the text itself, which has room beyond the bounds.
    pub(crate) fn note(&mut self, note: &str) {
        self.text.push_str(note);
        self.text.push('\n');
    }

    pub(crate) fn into_text(self) -> String {
        self.text
    }
}

/// `1 file`, `2 files`.
pub(crate) fn counted(count: u64, noun: &str) -> String {
    let plural = match (count, noun) {
        (1, _) => noun.to_owned(),
        (_, "directory") => "directories".to_owned(),
        (_, "match") => "matches".to_owned(),
        (_, "entry") => "entries".to_owned(),
        _ => format!("{noun}s"),
    };
    format!("{count} {plural}")
}

/// A length as a count. They are equally wide on all targets of Cove.
pub(crate) fn count(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}

/// A count as an index; a count that is too large is beyond every end.
pub(crate) fn index(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_does_not_fit_closes_the_text() {
        let mut output = Output::new(10, 8);
        assert!(output.line("abc"));
        assert!(!output.line("abcd"));
        assert!(!output.line(""), "lines after the refused one would be a gap");
        assert_eq!(output.into_text(), "abc\n");
    }

    #[test]
    fn counts_have_the_right_plural() {
        assert_eq!(
            [counted(1, "directory"), counted(0, "directory"), counted(2, "file")].join(" "),
            "1 directory 0 directories 2 files"
        );
    }
}
