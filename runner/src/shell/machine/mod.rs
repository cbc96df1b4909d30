//! Decides what a shell of kind `exec` does next: a state machine without I/O, clock or channels.
//!
//! ```text
//!         command queued             due              report             next command
//!   Down ────────────────▶ StartDue ─────▶ Starting ─────────▶ Idle ─────────────────────▶ Running
//!    ▲                       ▲  ▲            │   ▲             │ ▲ ▲                        │ │ │
//!    │ not even a bare       │  └── failed ──┤   └─ needed ─┐  │ │ └──────── report ────────┘ │ │
//!    │ bash starts           │               │              │  ▼ │ not needed                 │ │
//!    └───────────────────────│───────────────┤         CheckingClaim    report: bash may be   │ │
//!                            │               │                          broken                │ │
//!                            │               │ too late,        Suspect ◀─────────────────────┘ │
//!                            │               │ or claim            │ its state is written,      │
//!                            │               ▼ not sent            ▼ or late                    │
//!                            └── exits ─── Killed ◀────────────────┴── not sent, not begun ─────┘
//!
//!  bash exits by itself:    a state with a bash ─▶ StartDue (a Starting one has failed)
//!  reset:                   any state ─▶ StartDue
//!  close:                   any state ─▶ Closed
//!  the runner ends:         any state ─▶ Closed, from Running when the command is over
//! ```
//!
//! The driver reports what happened ([`Event`]) and does what the machine answers ([`Effect`]). If the machine needs to know
//! more (is bash asleep? does a program wait for input?), it asks with an effect, and the answer is another event.
//!
//! **Invariants**, each checked for any order of events in `properties_test`:
//!
//! - Every job ends exactly once, at the latest when the shell is closed.
//! - A job that may have begun is not sent again. A job that has not begun is sent to at most [`MAX_ATTEMPTS`] shells.
//! - At most one command runs, and nothing is sent to a bash that is starting, killed or gone.
//! - A job that is cancelled while it waits, or waits too long behind another one, ends and is never sent.
//! - While a job waits, a wake-up is set, or a report or exit of bash is still to come.
//!
//! When bash exits, a command that had begun is over, with bash's own exit status; a command that had not begun is sent to
//! the next bash. That bash starts with the state that the old one had after its last command.
//!
//! The other files of this folder: `event` and `state` are the types; `bash` has the transitions of bash and `commands`
//! those of commands; `queue` takes commands out of the queue; `running` is the state of the running command, and
//! `escalation` ends it when its time is up.

mod bash;
mod commands;
mod escalation;
mod event;
#[cfg(test)]
mod machine_test;
#[cfg(test)]
mod properties_test;
mod queue;
mod running;
#[cfg(test)]
mod simulation;
mod state;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use shared_protocol::runner::ShellState;

pub use escalation::Escalation;
pub use event::{
    CloseReason, Effect, Ending, Event, Finish, FinishKind, JobId, KillReason, NotRunReason, Observation, Report,
    Ticket,
};
pub use state::StartMode;
use state::State;

/// The most shells that one command is sent to.
const MAX_ATTEMPTS: u32 = 3;

/// Effects in the order in which the driver performs them. The driver keeps one queue, so that a command allocates none.
pub type Effects = VecDeque<Effect>;

/// A queued or running command.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Job {
    id: JobId,
    timeout: Option<Duration>,
    /// When it no longer waits behind another command.
    give_up_at: Option<Instant>,
    /// The number of shells that it was sent to.
    attempts: u32,
}

#[derive(Debug)]
pub struct Machine {
    state: State,
    queue: VecDeque<Job>,
    /// The number of issued tickets.
    tickets: u64,
    /// The latest start, claim or command that this bash reported. Only the state that it writes after that request counts.
    reported: Option<Ticket>,
    /// The value of `$?` for the next command.
    last_status: i32,
    /// The mode in which the next bash starts.
    next_mode: StartMode,
    /// Whether there is a saved state to start a bash with.
    has_saved_state: bool,
    /// Whether bash reported the end of a command and is still writing its state.
    is_state_due: bool,
    /// Whether the sandbox was claimed and bash has not applied the claim yet.
    is_claim_due: bool,
    /// Whether bash was replaced since the last outcome that reported a restart.
    is_restart_unreported: bool,
    /// The number of exits of bash since the last command that ran.
    quick_starts: u32,
    /// Whether the runner is ending: the shell closes when its command is over.
    is_draining: bool,
}

impl Machine {
    /// Makes a shell whose bash is due now. With a saved state, that bash restores it.
    pub fn new(has_saved_state: bool, now: Instant) -> Self {
        Self {
            state: State::StartDue { at: now },
            queue: VecDeque::new(),
            tickets: 0,
            reported: None,
            last_status: 0,
            next_mode: StartMode::first(has_saved_state),
            has_saved_state,
            is_state_due: true,
            is_claim_due: false,
            is_restart_unreported: false,
            quick_starts: 0,
            is_draining: false,
        }
    }

    /// Handles one event and appends its effects.
    pub fn on(&mut self, event: Event, now: Instant, effects: &mut Effects) {
        if self.is_closed() {
            return self.refuse(event, effects);
        }
        match event {
            Event::Queued { job, timeout, patience } => self.queue(job, timeout, patience, now),
            Event::Cancelled { job, signal } => self.cancel(job, signal, effects),
            Event::Started => self.started(),
            Event::StartFailed { why } => self.could_not_start(&why, now, effects),
            Event::SendFailed { ticket } => self.send_failed(ticket, effects),
            Event::Reported(report) => self.reported(report, now, effects),
            Event::StateWritten { ticket, saved } => self.state_written(ticket, saved, effects),
            Event::Exited { exit, has_begun } => self.exited(exit, has_begun, now, effects),
            Event::TimePassed => self.time_passed(now, effects),
            Event::Observed(seen) => {
                if let State::Running(running) = &mut self.state {
                    running.observed(seen, now, effects);
                }
            }
            Event::InputChecked { is_awaited } => {
                if let State::Running(running) = &mut self.state {
                    running.is_awaiting_input = is_awaited;
                }
            }
            Event::InterruptChecked { was_lost } => {
                if let State::Running(running) = &mut self.state {
                    running.interrupt_checked(was_lost, now, effects);
                }
            }
            Event::StartChecked { is_starved } => self.start_checked(is_starved, now, effects),
            Event::Signalled { may_be_lost } => {
                if let State::Running(running) = &mut self.state {
                    running.signalled(may_be_lost, now, effects);
                }
            }
            Event::Typed => {
                if let State::Running(running) = &mut self.state {
                    running.is_awaiting_input = false;
                    running.check_soon(now);
                }
            }
            Event::Printed => {
                if let State::Running(running) = &mut self.state {
                    // Output is often a prompt for input.
                    running.check_soon(now);
                }
            }
            Event::Claimed => self.is_claim_due = true,
            Event::ClaimChecked { is_needed } => self.claim_checked(is_needed, now, effects),
            Event::StateRequested => {
                // If a newer state is about to be written, that is the answer.
                if !self.is_state_due {
                    effects.push_back(Effect::AnswerStateRequests);
                }
            }
            Event::Reset => self.reset(now, effects),
            Event::Drain => {
                self.is_draining = true;
                self.refuse_queued(&NotRunReason::Closed(CloseReason::RunnerEnds), effects);
            }
            Event::Close(reason) => self.close(reason, effects),
        }
        self.advance(now, effects);
        self.give_up_waiting(now, effects);
    }

    /// Handles an event of a closed shell, which does nothing any more.
    fn refuse(&self, event: Event, effects: &mut Effects) {
        if let Event::Queued { job, .. } = event {
            let ending = Ending::NeverRan(NotRunReason::Closed(CloseReason::Closed));
            effects.push_back(Effect::End { job, ending });
        }
    }

    /// Does what the state allows now: closes a drained shell, starts a due bash, or sends the next command.
    fn advance(&mut self, now: Instant, effects: &mut Effects) {
        if self.is_draining && !matches!(self.state, State::Running(_)) {
            self.close(CloseReason::RunnerEnds, effects);
        }
        match self.state {
            State::StartDue { at } if at <= now => self.start(now, effects),
            State::Down if !self.queue.is_empty() => self.start(now, effects),
            State::Idle if self.is_claim_due => {
                self.is_claim_due = false;
                self.state = State::CheckingClaim;
                effects.push_back(Effect::CheckClaim);
            }
            State::Idle => self.send_next(now, effects),
            _ => {}
        }
    }

    /// When the machine wants `TimePassed`. `None`: another event comes first.
    pub fn next_wake(&self) -> Option<Instant> {
        [self.state_wake(), self.next_give_up()].into_iter().flatten().min()
    }

    fn state_wake(&self) -> Option<Instant> {
        match &self.state {
            State::StartDue { at } => Some(*at),
            State::Starting(start) | State::Killed { start: Some(start) } => Some(start.deadline),
            State::Suspect { until } => Some(*until),
            State::Running(running) => running.next_wake(),
            State::Down | State::CheckingClaim | State::Idle | State::Killed { start: None } | State::Closed => None,
        }
    }

    pub fn is_closed(&self) -> bool {
        matches!(self.state, State::Closed)
    }

    /// The state as clients see it.
    pub fn shell_state(&self) -> ShellState {
        match self.state {
            State::Down | State::Closed => ShellState::Down,
            State::StartDue { .. } | State::Starting(_) | State::Killed { start: Some(_) } => ShellState::Starting,
            State::Running(_) => ShellState::Busy,
            State::CheckingClaim | State::Idle | State::Suspect { .. } | State::Killed { start: None } => {
                ShellState::Idle
            }
        }
    }

    /// The number of waiting commands.
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    fn new_ticket(&mut self) -> Ticket {
        self.tickets += 1;
        Ticket(self.tickets)
    }
}
