//! Where views and filters write: failures, the summary, and the rest, each with a bound.
//!
//! The failures are for what a view understood as a failure; they stand first in the result. What no view understands goes to the rest in
//! its order, and a failure there is marked, so that a cut keeps it.

use crate::fold::{Fold, clamp};
use crate::frames::{Frame, Frames};
use crate::section::{Content, Section};

const MAX_FAILURE_BYTES: usize = 1536 * 1024;
const MAX_SUMMARY_BYTES: usize = 64 * 1024;
const MAX_REST_BYTES: usize = 1024 * 1024;
const MAX_FAILURE_CHARS: usize = 4000;

pub(crate) struct Out {
    failures: Section,
    summary: Section,
    rest: Section,
    fold: Fold,
    rest_frames: Frames,
    failure_frames: Frames,
    last_failure: String,
    repeated: u64,
}

impl Out {
    pub(crate) fn new(run_lines: u32) -> Self {
        Self {
            failures: Section::new(MAX_FAILURE_BYTES),
            summary: Section::new(MAX_SUMMARY_BYTES),
            rest: Section::new(MAX_REST_BYTES),
            fold: Fold::new(run_lines),
            rest_frames: Frames::default(),
            failure_frames: Frames::default(),
            last_failure: String::new(),
            repeated: 0,
        }
    }

    /// A line of a failure. Blank lines go, and so do repetitions and the frames of libraries, which are counted.
    pub(crate) fn failure(&mut self, line: &str) {
        if line.trim_ascii().is_empty() || self.failure_frames.line(line) == Frame::Hide {
            return;
        }
        if line == self.last_failure {
            self.repeated += 1;
            return;
        }
        self.flush_failures();
        self.failures.push(&clamp(line, MAX_FAILURE_CHARS), true);
        line.clone_into(&mut self.last_failure);
    }

    fn flush_failures(&mut self) {
        match std::mem::take(&mut self.repeated) {
            0 => {}
            more => self.failures.push(&format!("… {more} more equal to this"), true),
        }
        match self.failure_frames.take_hidden() {
            0 => {}
            hidden => self.failures.push(&format!("  … {hidden} library frames"), true),
        }
    }

    /// A line that says how everything went, such as the number of tests that passed.
    pub(crate) fn summary(&mut self, line: &str) {
        self.summary.push(line.trim_ascii(), true);
    }

    /// A line for the generic filters.
    pub(crate) fn line(&mut self, line: &str) {
        if self.rest_frames.line(line) == Frame::Hide {
            return;
        }
        self.flush_frames();
        self.fold.line(line, &mut self.rest);
    }

    /// A line that stays as it is, because a view made it.
    pub(crate) fn exact(&mut self, line: &str) {
        self.flush_frames();
        self.fold.flush(&mut self.rest);
        self.rest.push(line, false);
    }

    fn flush_frames(&mut self) {
        match self.rest_frames.take_hidden() {
            0 => {}
            hidden => {
                self.fold.flush(&mut self.rest);
                self.rest.push(&format!("    … {hidden} library frames"), false);
            }
        }
    }

    pub(crate) fn held_bytes(&self) -> usize {
        self.failures.held_bytes()
            + self.summary.held_bytes()
            + self.rest.held_bytes()
            + self.fold.held_bytes()
            + self.last_failure.capacity()
    }

    /// Failures, summary and rest.
    pub(crate) fn finish(mut self) -> [Content; 3] {
        self.flush_failures();
        self.flush_frames();
        self.fold.flush(&mut self.rest);
        [self.failures.into_content(), self.summary.into_content(), self.rest.into_content()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(content: &Content) -> Vec<&str> {
        content.head.iter().map(|line| &*line.text).collect()
    }

    #[test]
    fn equal_lines_of_a_failure_are_counted() {
        let mut out = Out::new(12);
        (0..1000).for_each(|_| out.failure("\tat Shop.deep(Shop.java:21)"));
        out.failure("end");
        let [failures, ..] = out.finish();
        assert_eq!(texts(&failures), ["\tat Shop.deep(Shop.java:21)", "… 999 more equal to this", "end"]);
    }

    #[test]
    fn what_a_view_made_is_not_folded() {
        let mut out = Out::new(1);
        (0..5).for_each(|n| out.exact(&format!("a {n}")));
        let [_, _, rest] = out.finish();
        assert_eq!(rest.head.len(), 5);
    }
}
