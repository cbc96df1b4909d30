//! How a command that has run out of time is brought to its end: a pure schedule.
//!
//! ```text
//!  0 ms   INT    the foreground group, as Ctrl-C would
//! 250 ms  TERM   the foreground group
//! 500 ms  KILL   the foreground group, again and again: a loop may start the next program
//! 700 ms  KILL   the shell itself; a new one takes its place
//! ```
//!
//! The whole of it stays below a second, so that the next command runs within a second of the timeout whatever this one does.

use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    Interrupt,
    Terminate,
    Kill,
    ReplaceShell,
}

const TERMINATE_AFTER: Duration = Duration::from_millis(250);
const KILL_AFTER: Duration = Duration::from_millis(500);
const KILL_AGAIN_AFTER: Duration = Duration::from_millis(40);
const REPLACE_AFTER: Duration = Duration::from_millis(700);

/// What to do when `taken` steps were taken already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    Now(Step),
    In(Duration),
    /// The shell has been killed: its exit is all there is to wait for.
    Nothing,
}

pub fn next(taken: u32, since: Duration) -> Next {
    let kill_due = |nth: u32| KILL_AFTER + KILL_AGAIN_AFTER * nth;
    let (step, due) = match taken {
        0 => (Step::Interrupt, Duration::ZERO),
        1 => (Step::Terminate, TERMINATE_AFTER),
        n if kill_due(n - 2) < REPLACE_AFTER => (Step::Kill, kill_due(n - 2)),
        n if n == 2 || kill_due(n - 3) < REPLACE_AFTER => (Step::ReplaceShell, REPLACE_AFTER),
        _ => return Next::Nothing,
    };
    if since >= due { Next::Now(step) } else { Next::In(due - since) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_steps_come_in_order_and_end_with_the_shell() {
        let (mut taken, mut at, mut steps) = (0, Duration::ZERO, Vec::new());
        loop {
            match next(taken, at) {
                Next::Now(step) => {
                    steps.push(step);
                    taken += 1;
                }
                Next::In(wait) => at += wait,
                Next::Nothing => break,
            }
        }
        assert_eq!(&steps[..3], [Step::Interrupt, Step::Terminate, Step::Kill]);
        assert_eq!(steps.iter().filter(|s| **s == Step::ReplaceShell).count(), 1);
        assert_eq!(steps.last(), Some(&Step::ReplaceShell));
        assert!(at < Duration::from_secs(1), "{at:?}");
    }

    #[test]
    fn a_late_timer_takes_the_steps_one_by_one() {
        assert_eq!(next(0, Duration::from_secs(9)), Next::Now(Step::Interrupt));
        assert_eq!(next(1, Duration::from_secs(9)), Next::Now(Step::Terminate));
    }
}
