//! Where the last lines of an output begin: `cove logs --tail`. It sees the output once and keeps one number for each line it wants.

use std::collections::VecDeque;

/// The most lines that can be asked for.
pub const MAX_TAIL_LINES: u64 = 1_000_000;

pub struct Tail {
    lines: usize,
    /// The offsets at which the last lines begin, the first line first.
    starts: VecDeque<u64>,
    /// Whether the next byte begins a line.
    is_new_line: bool,
}

impl Tail {
    pub fn new(lines: u64) -> Self {
        let lines = usize::try_from(lines.min(MAX_TAIL_LINES)).unwrap_or(usize::MAX);
        Self { lines, starts: VecDeque::new(), is_new_line: true }
    }

    /// Notes a piece of output that begins at an offset.
    pub fn add(&mut self, offset: u64, bytes: &[u8]) {
        for (at, byte) in (offset..).zip(bytes) {
            if self.is_new_line {
                self.starts.push_back(at);
                if self.starts.len() > self.lines {
                    self.starts.pop_front();
                }
            }
            self.is_new_line = *byte == b'\n';
        }
    }

    /// Notes that output is missing here.
    pub fn gap(&mut self) {
        self.is_new_line = true;
    }

    /// The offset of the first line of the tail. `end` is that of the output's end.
    pub fn start(&self, end: u64) -> u64 {
        self.starts.front().copied().unwrap_or(end)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tail(lines: u64, text: &str) -> &str {
        let mut tail = Tail::new(lines);
        tail.add(0, text.as_bytes());
        &text[usize::try_from(tail.start(text.len() as u64)).unwrap()..]
    }

    #[test]
    fn the_last_lines_are_those_that_tail_prints() {
        assert_eq!(tail(2, "a\nb\nc\n"), "b\nc\n");
        assert_eq!(tail(2, "a\nb\nc"), "b\nc", "a line without an end is one too");
        assert_eq!(tail(1, "\n\n"), "\n");
        assert_eq!(tail(9, "a\nb\n"), "a\nb\n");
        assert_eq!(tail(0, "a\nb"), "");
        assert_eq!(tail(3, ""), "");
    }

    #[test]
    fn what_comes_after_a_gap_begins_a_line() {
        let mut tail = Tail::new(1);
        tail.add(0, b"lost");
        tail.gap();
        tail.add(100, b"found");
        assert_eq!(tail.start(105), 100);
    }

    proptest! {
        #[test]
        fn however_the_output_is_cut_the_tail_is_the_same(text in "[ab\n]{0,60}", lines in 0u64..8, at in 0usize..60) {
            let at = at.min(text.len());
            let mut cut = Tail::new(lines);
            cut.add(0, &text.as_bytes()[..at]);
            cut.add(at as u64, &text.as_bytes()[at..]);
            let all: Vec<&str> = text.split_inclusive('\n').collect();
            let wanted = all[all.len().saturating_sub(usize::try_from(lines).unwrap())..].concat();
            prop_assert_eq!(&text[usize::try_from(cut.start(text.len() as u64)).unwrap()..], wanted);
        }
    }
}
