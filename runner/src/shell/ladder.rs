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

/// The step that is due `since` the timeout when `taken` steps were taken already, or how long until the next one.
pub fn next(taken: u32, since: Duration) -> Result<Step, Duration> {
    let (step, due) = match taken {
        0 => (Step::Interrupt, Duration::ZERO),
        1 => (Step::Terminate, TERMINATE_AFTER),
        n => {
            let due = KILL_AFTER + KILL_AGAIN_AFTER * (n - 2);
            if due < REPLACE_AFTER { (Step::Kill, due) } else { (Step::ReplaceShell, REPLACE_AFTER) }
        }
    };
    if since >= due { Ok(step) } else { Err(due - since) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_steps_come_in_order_and_end_with_the_shell() {
        let (mut taken, mut at, mut steps) = (0, Duration::ZERO, Vec::new());
        loop {
            match next(taken, at) {
                Ok(step) => {
                    steps.push(step);
                    taken += 1;
                    if step == Step::ReplaceShell {
                        break;
                    }
                }
                Err(wait) => at += wait,
            }
        }
        assert_eq!(&steps[..3], [Step::Interrupt, Step::Terminate, Step::Kill]);
        assert!(at < Duration::from_secs(1), "{at:?}");
    }

    #[test]
    fn a_late_timer_takes_the_steps_one_by_one() {
        assert_eq!(next(0, Duration::from_secs(9)), Ok(Step::Interrupt));
        assert_eq!(next(1, Duration::from_secs(9)), Ok(Step::Terminate));
    }
}
