//! Ends a command that has run out of time: a pure schedule of steps.
//!
//! ```text
//!  0 ms   INT    the foreground group, as Ctrl-C would
//! 250 ms  TERM   the foreground group
//! 500 ms  KILL   the foreground group, again and again: a loop may start the next program
//! 700 ms  KILL   bash itself; a new one takes its place
//! ```
//!
//! All steps take less than a second, so the next command runs within a second of the timeout, whatever this one does.

use std::time::{Duration, Instant};

/// The signal to the foreground program of a command that has run out of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Escalation {
    Interrupt,
    Terminate,
    Kill,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Signal(Escalation),
    KillBash,
}

const TERMINATE_AFTER: Duration = Duration::from_millis(250);
const KILL_AFTER: Duration = Duration::from_millis(500);
const KILL_AGAIN_AFTER: Duration = Duration::from_millis(40);
const KILL_BASH_AFTER: Duration = Duration::from_millis(700);

/// A command that has run out of time, with the number of steps taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Timeout {
    since: Instant,
    taken: u32,
}

impl Timeout {
    pub(super) fn new(now: Instant) -> Self {
        Self { since: now, taken: 0 }
    }

    /// When the next step is due. `None` after the last step: then only bash's exit is left to wait for.
    pub(super) fn next_at(&self) -> Option<Instant> {
        step(self.taken).map(|(_, after)| self.since + after)
    }

    /// Takes the next step if it is due. It takes one at a time: even if the timer is late, each step gets its chance.
    pub(super) fn take(&mut self, now: Instant) -> Option<Step> {
        let (due, after) = step(self.taken)?;
        (self.since + after <= now).then(|| {
            self.taken += 1;
            due
        })
    }
}

/// The step after `taken` others, and its time after the timeout.
fn step(taken: u32) -> Option<(Step, Duration)> {
    let kill_due = |nth: u32| KILL_AFTER + KILL_AGAIN_AFTER * nth;
    match taken {
        0 => Some((Step::Signal(Escalation::Interrupt), Duration::ZERO)),
        1 => Some((Step::Signal(Escalation::Terminate), TERMINATE_AFTER)),
        n if kill_due(n - 2) < KILL_BASH_AFTER => Some((Step::Signal(Escalation::Kill), kill_due(n - 2))),
        n if n == 2 || kill_due(n - 3) < KILL_BASH_AFTER => Some((Step::KillBash, KILL_BASH_AFTER)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_steps_come_in_order_and_end_with_bash() {
        let start = Instant::now();
        let mut timeout = Timeout::new(start);
        let (mut at, mut steps) = (start, Vec::new());
        while let Some(due) = timeout.next_at() {
            at = due;
            steps.extend(timeout.take(at));
        }
        assert_eq!(&steps[..3], [Escalation::Interrupt, Escalation::Terminate, Escalation::Kill].map(Step::Signal));
        assert_eq!(steps.iter().filter(|s| **s == Step::KillBash).count(), 1);
        assert_eq!(steps.last(), Some(&Step::KillBash));
        assert!(at - start < Duration::from_secs(1), "{:?}", at - start);
    }

    #[test]
    fn a_late_timer_takes_the_steps_one_by_one_and_an_early_one_takes_none() {
        let start = Instant::now();
        let late = start + Duration::from_secs(9);
        let mut timeout = Timeout::new(start);
        assert_eq!(timeout.take(late), Some(Step::Signal(Escalation::Interrupt)));
        assert_eq!(timeout.take(start), None);
        assert_eq!(timeout.take(late), Some(Step::Signal(Escalation::Terminate)));
    }
}
