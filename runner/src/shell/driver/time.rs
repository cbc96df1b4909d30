//! What happens when nothing else does: deadlines, the ladder, and looking at a command that says nothing.

use std::time::Duration;

use tokio::time::Instant;

use super::super::ladder::{self, Next, Step};
use super::super::script;
use super::starting::STARTUP_DEADLINE;
use super::{Driver, End, Unheard};

/// First and longest interval of looking at a command: whether a program waits at the terminal, whether it is over unsaid.
pub(super) const FIRST_LOOK: Duration = Duration::from_millis(100);
const LONGEST_LOOK: Duration = Duration::from_secs(2);

impl Driver {
    pub(super) fn next_wake(&self) -> Option<Instant> {
        let mut times = vec![
            self.start_at.filter(|_| self.bash.is_none()),
            self.starting.as_ref().map(|s| s.deadline),
            self.suspect_until,
        ];
        if let Some(current) = &self.current {
            match current.ladder {
                Some((since, taken)) => {
                    let now = Instant::now();
                    times.push(match ladder::next(taken, since.elapsed()) {
                        Next::Now(_) => Some(now),
                        Next::In(wait) => Some(now + wait),
                        Next::Nothing => None,
                    });
                }
                None => {
                    let unheard = current.unheard.as_ref().map(Unheard::at);
                    times.extend([current.deadline, Some(current.look.0), unheard]);
                }
            }
        }
        times.into_iter().flatten().min()
    }

    pub(super) fn on_time(&mut self) {
        let now = Instant::now();
        if self.starting.as_ref().is_some_and(|s| s.deadline <= now) {
            tracing::warn!(shell = %self.shared.view.borrow().name, "a shell did not come up in time");
            self.replace_bash();
            if let Some(starting) = &mut self.starting {
                starting.deadline = now + STARTUP_DEADLINE;
            }
        }
        if self.suspect_until.take_if(|until| *until <= now).is_some() {
            self.replace_bash();
        }
        let (Some(current), Some(bash)) = (&mut self.current, &self.bash) else { return };
        if current.ladder.is_none() && current.deadline.is_some_and(|d| d <= now) {
            current.awaiting_input = bash.is_awaiting_input() == Some(true);
            current.ladder = Some((now, 0));
        }
        if current
            .unheard
            .as_mut()
            .is_some_and(|unheard| unheard.at() <= now && unheard.is_settled(bash, &current.mark))
        {
            current.unheard = None;
        }
        if current.ladder.is_some() {
            self.climb();
        } else if current.look.0 <= now {
            self.look();
        }
    }

    pub(super) fn climb(&mut self) {
        let (Some(current), Some(bash)) = (&mut self.current, &self.bash) else { return };
        let Some((since, taken)) = &mut current.ladder else { return };
        let Next::Now(step) = ladder::next(*taken, since.elapsed()) else { return };
        *taken += 1;
        let shell = bash.pid();
        match step {
            Step::Interrupt => {
                let _ = bash.signal_foreground(libc::SIGINT);
                let _ = bash.signal_foreground(libc::SIGCONT);
            }
            Step::Terminate | Step::Kill => {
                let number = if step == Step::Kill { libc::SIGKILL } else { libc::SIGTERM };
                // Bash itself is not killed here: it may be between two programs, and has its own step.
                if bash.foreground().is_some_and(|group| group != shell) {
                    let _ = bash.signal_foreground(number);
                    let _ = bash.signal_foreground(libc::SIGCONT);
                }
            }
            Step::ReplaceShell => bash.watch.signal(libc::SIGKILL),
        }
        bash.feed_tail(&current.mark);
    }

    pub(super) fn look(&mut self) {
        let (Some(current), Some(bash)) = (&mut self.current, &self.bash) else { return };
        let interval = (current.look.1 * 2).min(LONGEST_LOOK);
        current.look = (Instant::now() + interval, interval);
        match current.end {
            End::Unsuspected if bash.sleeps() => {
                bash.feed_tail(&current.mark);
                current.end = End::Asked;
            }
            End::Asked if bash.sleeps() && bash.has_read_all() => {
                tracing::warn!(shell = %self.shared.view.borrow().name, "replacing a shell that cannot report");
                let _ = bash.feed(&script::exit_line(&current.mark));
                current.end = End::ToldToExit;
                current.look = (Instant::now() + FIRST_LOOK, FIRST_LOOK);
                return;
            }
            End::ToldToExit => {
                bash.watch.signal(libc::SIGKILL);
                current.end = End::Unknown;
                return;
            }
            _ => {}
        }
        let waits = bash.is_awaiting_input() == Some(true);
        if waits && !current.awaiting_input {
            current.job.exec.note_waiting();
        }
        current.awaiting_input = waits;
    }
}
