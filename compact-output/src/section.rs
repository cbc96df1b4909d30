//! A part of the result with a bound: the first lines, the last lines, and from between them the lines that matter.
//!
//! Promises: at most the given number of bytes, whatever comes, and an exact count of what is left out. A line that matters leaves the
//! section only if the lines that matter alone are more than its bound.

use std::collections::VecDeque;

/// What a line costs besides its text, so that many short lines cannot take more memory than few long ones.
const LINE_OVERHEAD: usize = 64;

pub(crate) struct Line {
    pub(crate) text: Box<str>,
    /// The line tells of a failure, so a cut keeps it as long as it can.
    pub(crate) is_important: bool,
}

impl Line {
    fn cost(&self) -> usize {
        self.text.len() + LINE_OVERHEAD
    }
}

/// Lines with a limit on their bytes. When it is reached, the oldest lines leave.
#[derive(Default)]
struct Lines {
    lines: VecDeque<Line>,
    bytes: usize,
}

impl Lines {
    fn push(&mut self, line: Line) {
        self.bytes += line.cost();
        self.lines.push_back(line);
    }

    fn pop(&mut self) -> Option<Line> {
        let line = self.lines.pop_front()?;
        self.bytes -= line.cost();
        Some(line)
    }
}

pub(crate) struct Section {
    limit: usize,
    head: Lines,
    /// Lines that matter, from between head and tail.
    middle: Lines,
    tail: Lines,
    is_head_full: bool,
    lost_lines: u64,
    lost_bytes: u64,
}

/// The lines of a section in order, and what is missing before the tail.
pub(crate) struct Content {
    pub(crate) head: Vec<Line>,
    pub(crate) middle: Vec<Line>,
    pub(crate) tail: Vec<Line>,
    pub(crate) lost_lines: u64,
    pub(crate) lost_bytes: u64,
}

impl Section {
    pub(crate) fn new(limit: usize) -> Self {
        let (head, middle, tail) = Default::default();
        Self { limit, head, middle, tail, is_head_full: false, lost_lines: 0, lost_bytes: 0 }
    }

    pub(crate) fn push(&mut self, text: &str, is_important: bool) {
        let line = Line { text: text.into(), is_important };
        if !self.is_head_full && self.head.bytes + line.cost() <= self.limit / 2 {
            return self.head.push(line);
        }
        self.is_head_full = true;
        self.tail.push(line);
        while self.tail.bytes > self.limit / 4 {
            let Some(old) = self.tail.pop() else { break };
            if old.is_important && self.middle.bytes + old.cost() <= self.limit / 4 {
                self.middle.push(old);
            } else {
                self.lost_lines += 1;
                self.lost_bytes += old.text.len() as u64 + 1;
            }
        }
    }

    pub(crate) fn held_bytes(&self) -> usize {
        self.head.bytes + self.middle.bytes + self.tail.bytes
    }

    pub(crate) fn into_content(self) -> Content {
        let Self { head, middle, tail, lost_lines, lost_bytes, .. } = self;
        Content {
            head: head.lines.into(),
            middle: middle.lines.into(),
            tail: tail.lines.into(),
            lost_lines,
            lost_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_section_keeps_both_ends_and_what_matters() {
        let mut section = Section::new(8192);
        for n in 0..1000 {
            section.push(&format!("line {n}"), n == 500);
            assert!(section.held_bytes() <= 8192);
        }
        let content = section.into_content();
        assert_eq!(&*content.head[0].text, "line 0");
        assert_eq!(&*content.middle[0].text, "line 500");
        assert_eq!(&*content.tail.last().unwrap().text, "line 999");
        let kept = content.head.len() + content.middle.len() + content.tail.len();
        assert_eq!(kept as u64 + content.lost_lines, 1000);
    }

    #[test]
    fn only_lines_that_matter_still_have_a_bound() {
        let mut section = Section::new(4096);
        (0..10_000).for_each(|_| section.push("error", true));
        assert!(section.held_bytes() <= 4096);
        assert!(section.into_content().lost_lines > 9_000);
    }
}
