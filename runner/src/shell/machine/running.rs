//! The running command: its deadline, the checks while it is silent, and whether it is over although bash has not reported
//! it.

use std::time::{Duration, Instant};

use super::escalation::{Step, Timeout};
use super::{Effect, Effects, Job, KillReason, Observation, Ticket};

/// The first and the longest interval between checks of a command: whether a program waits at the terminal, and whether the
/// command is over without a report.
const FIRST_CHECK: Duration = Duration::from_millis(100);
const LONGEST_CHECK: Duration = Duration::from_secs(2);

/// The first and the longest interval between checks for a lost interrupt, and for how long they go on. On an overloaded
/// machine, a program can take that long to start.
const FIRST_INTERRUPT_CHECK: Duration = Duration::from_millis(2);
const LONGEST_INTERRUPT_CHECK: Duration = Duration::from_millis(100);
const INTERRUPT_PATIENCE: Duration = Duration::from_secs(10);

/// A schedule of checks with growing intervals.
#[derive(Debug, Clone, Copy)]
struct Schedule {
    at: Instant,
    interval: Duration,
}

impl Schedule {
    fn new(first: Duration, now: Instant) -> Self {
        Self { at: now + first, interval: first }
    }

    fn back_off(&mut self, longest: Duration, now: Instant) {
        let interval = (self.interval * 2).min(longest);
        *self = Self { at: now + interval, interval };
    }
}

/// Whether a command seems to be over although bash has not reported it: its builtins may be disabled, or its report stolen.
///
/// The runner sends the tail once more. If bash reads it and reports nothing, it is back at its prompt, and the tail ran
/// twice for nothing. Then the runner tells bash to exit with the command's status. If bash does not do that either, it is
/// killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Suspicion {
    None,
    /// Bash was seen asleep, and the tail was sent again.
    Asked,
    /// Bash had read the tail and was still asleep, and was told to exit.
    ToldToExit,
    /// Bash was killed: the command's status is unknown.
    Killed,
}

/// A signal that bash may have got instead of a program that it was starting.
#[derive(Debug, Clone, Copy)]
struct InterruptCheck {
    sent_at: Instant,
    next: Schedule,
}

#[derive(Debug)]
pub(super) struct Running {
    pub(super) job: Job,
    pub(super) ticket: Ticket,
    pub(super) is_awaiting_input: bool,
    deadline: Option<Instant>,
    timeout: Option<Timeout>,
    check: Schedule,
    suspicion: Suspicion,
    interrupt: Option<InterruptCheck>,
    is_bash_killed: bool,
}

impl Running {
    pub(super) fn new(job: Job, ticket: Ticket, now: Instant) -> Self {
        let deadline = job.timeout.and_then(|timeout| now.checked_add(timeout));
        Self {
            job,
            ticket,
            is_awaiting_input: false,
            deadline,
            timeout: None,
            check: Schedule::new(FIRST_CHECK, now),
            suspicion: Suspicion::None,
            interrupt: None,
            is_bash_killed: false,
        }
    }

    pub(super) fn is_timed_out(&self) -> bool {
        self.timeout.is_some()
    }

    /// Whether bash was killed because it could not report how the command ended.
    pub(super) fn is_status_unknown(&self) -> bool {
        self.suspicion == Suspicion::Killed
    }

    /// Whether bash was killed. An earlier report may still come, but bash runs nothing more.
    pub(super) fn is_bash_killed(&self) -> bool {
        self.is_bash_killed
    }

    pub(super) fn next_wake(&self) -> Option<Instant> {
        match &self.timeout {
            Some(timeout) => timeout.next_at(),
            None => {
                let interrupt = self.interrupt.map(|check| check.next.at);
                [self.deadline, Some(self.check.at), interrupt].into_iter().flatten().min()
            }
        }
    }

    pub(super) fn check_soon(&mut self, now: Instant) {
        self.check = Schedule::new(FIRST_CHECK, now);
    }

    pub(super) fn time_passed(&mut self, now: Instant, effects: &mut Effects) {
        if self.timeout.is_none() && self.deadline.is_some_and(|deadline| deadline <= now) {
            // This comes before the first step, because the waiting program may be gone after it.
            effects.push_back(Effect::CheckInput);
            self.timeout = Some(Timeout::new(now));
        }
        if let Some(check) = self.interrupt.filter(|check| check.next.at <= now) {
            effects.push_back(Effect::CheckInterrupt { age: now - check.sent_at });
        }
        match &mut self.timeout {
            Some(timeout) => match timeout.take(now) {
                Some(Step::KillBash) => {
                    self.is_bash_killed = true;
                    effects.push_back(Effect::Kill(KillReason::CommandTimedOut));
                    effects.push_back(Effect::SendTail);
                }
                Some(Step::Signal(escalation)) => effects.push_back(Effect::Escalate(escalation)),
                None => {}
            },
            None if self.check.at <= now => self.check(now, effects),
            None => {}
        }
    }

    fn check(&mut self, now: Instant, effects: &mut Effects) {
        self.check.back_off(LONGEST_CHECK, now);
        if self.suspicion == Suspicion::ToldToExit {
            effects.push_back(Effect::Kill(KillReason::CannotReport));
            self.suspicion = Suspicion::Killed;
            self.is_bash_killed = true;
        } else {
            effects.push_back(Effect::Observe);
        }
    }

    pub(super) fn observed(&mut self, seen: Observation, now: Instant, effects: &mut Effects) {
        match self.suspicion {
            Suspicion::None if seen.is_bash_asleep => {
                effects.push_back(Effect::SendTail);
                self.suspicion = Suspicion::Asked;
            }
            Suspicion::Asked if seen.is_bash_asleep && seen.has_read_all => {
                effects.push_back(Effect::SendExit);
                self.suspicion = Suspicion::ToldToExit;
                self.check_soon(now);
                return;
            }
            _ => {}
        }
        if seen.is_awaiting_input && !self.is_awaiting_input {
            effects.push_back(Effect::TellAwaitingInput);
        }
        self.is_awaiting_input = seen.is_awaiting_input;
    }

    /// Handles a client's signal. An interrupt may have hit the line that reports the end of the command, so that line is
    /// sent again.
    pub(super) fn signalled(&mut self, may_be_lost: bool, now: Instant, effects: &mut Effects) {
        effects.push_back(Effect::SendTail);
        let next = Schedule::new(FIRST_INTERRUPT_CHECK, now);
        self.interrupt = may_be_lost.then_some(InterruptCheck { sent_at: now, next });
    }

    pub(super) fn interrupt_checked(&mut self, was_lost: bool, now: Instant, effects: &mut Effects) {
        let Some(check) = &mut self.interrupt else { return };
        if was_lost {
            effects.push_back(Effect::RepeatInterrupt);
            self.interrupt = None;
        } else if now - check.sent_at > INTERRUPT_PATIENCE {
            self.interrupt = None;
        } else {
            check.next.back_off(LONGEST_INTERRUPT_CHECK, now);
        }
    }
}
