//! The events that the driver reports to the machine, and the effects that the machine asks for.

use std::time::Duration;

use super::{Escalation, StartMode};
use crate::reaper::Exit;
use crate::shell::saved_state::SavedState;

/// Identifies an exec that the driver has queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub u64);

/// Identifies one request to bash: to start, to apply a claim, or to run a command. Its report has the same ticket. A
/// command that is sent to a second bash gets a new ticket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub(super) u64);

#[cfg(test)]
impl Ticket {
    pub fn for_test(number: u64) -> Self {
        Self(number)
    }
}

/// Something that happened. The driver reports facts and does not judge them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A client asked for a command.
    Queued {
        job: JobId,
        timeout: Option<Duration>,
        /// How long it may wait behind another command.
        patience: Option<Duration>,
    },
    /// A client sent a waiting command a signal that ends programs.
    Cancelled {
        job: JobId,
        signal: i32,
    },
    /// The bash that `Effect::Start` asked for exists. Its report comes later.
    Started,
    StartFailed {
        why: String,
    },
    /// The request of `Effect::Send` or `Effect::SendClaim` did not reach bash, so none of it ran.
    SendFailed {
        ticket: Ticket,
    },
    Reported(Report),
    /// Bash has written its state after the request with this ticket. `None`: there was no room for it, or it is too large.
    StateWritten {
        ticket: Ticket,
        saved: Option<SavedState>,
    },
    /// Bash has exited. All of its reports came before.
    Exited {
        exit: Exit,
        has_begun: bool,
    },
    /// The time of `next_wake` has come.
    TimePassed,
    /// Answers `Effect::Observe`.
    Observed(Observation),
    /// Answers `Effect::CheckInput`.
    InputChecked {
        is_awaited: bool,
    },
    /// Answers `Effect::CheckInterrupt`.
    InterruptChecked {
        was_lost: bool,
    },
    /// Answers `Effect::CheckStart`.
    StartChecked {
        /// Whether bash or a program of its login files could go on, and gets no processor.
        is_starved: bool,
    },
    /// A client's signal was sent. If bash got it instead of a program that it was starting, the signal may be lost.
    Signalled {
        may_be_lost: bool,
    },
    /// A client typed at the terminal of the running command.
    Typed,
    /// The terminal printed something.
    Printed,
    /// The sandbox was claimed: the environment now has the variables of the claim.
    Claimed,
    /// Answers `Effect::CheckClaim`.
    ClaimChecked {
        is_needed: bool,
    },
    /// A client asked for the state after the last command.
    StateRequested,
    Reset,
    /// The runner is ending.
    Drain,
    Close(CloseReason),
}

/// What bash reports when a start, a claim or a command is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    pub ticket: Ticket,
    pub status: i32,
    /// Whether the command may have begun. `false` is certain: no part of it ran.
    pub has_begun: bool,
    /// Whether the command may have damaged bash's memory.
    pub may_have_broken_bash: bool,
    /// The directory that bash is in.
    pub cwd: Vec<u8>,
}

/// What the driver observes of a bash that runs a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Observation {
    /// Whether bash is asleep and in the terminal's foreground, at its prompt or in a builtin that waits, and has sent no
    /// report that is not handled yet.
    pub is_bash_asleep: bool,
    /// Whether bash has read every line that was sent.
    pub has_read_all: bool,
    /// Whether a program waits for input at the terminal.
    pub is_awaiting_input: bool,
}

/// Something that the driver has to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Start bash. Answered by `Started` or `StartFailed`, and later by a report.
    Start {
        ticket: Ticket,
        mode: StartMode,
    },
    /// Find out why bash takes long to start. Answered by `StartChecked`.
    CheckStart,
    /// Find out whether bash has to apply the claim. Answered by `ClaimChecked`.
    CheckClaim,
    /// Make bash apply the claim. Answered by a report, or by `SendFailed`.
    SendClaim {
        ticket: Ticket,
    },
    /// Remove the scripts of a start or a claim, which may hold secrets: bash has run them.
    RemoveScripts,
    /// Make bash run a command. Answered by a report, or by `SendFailed`.
    Send {
        job: JobId,
        ticket: Ticket,
        last_status: i32,
    },
    /// Discard the output of the command that was sent last: it has not begun, and will be sent again.
    TakeBack {
        job: JobId,
    },
    /// Send the line that reports the end of the command once more.
    SendTail,
    /// Make bash exit with the status of the command.
    SendExit,
    /// Look at bash and the command. Answered by `Observed`.
    Observe,
    /// Find out whether a program waits for input. Answered by `InputChecked`.
    CheckInput,
    /// Find out whether the last interrupt was lost. Answered by `InterruptChecked`.
    CheckInterrupt {
        age: Duration,
    },
    /// Send the last interrupt again, and the tail after it.
    RepeatInterrupt,
    /// Send a signal to the foreground program of a command that has run out of time, and the tail after it.
    Escalate(Escalation),
    /// Tell the clients of the command that it waits for input.
    TellAwaitingInput,
    /// Kill bash. The rest follows from its exit.
    Kill(KillReason),
    /// Read what bash left, and release it: it has exited.
    Collect,
    /// Kill bash and its foreground program, send HUP to the rest, and release bash without waiting for its exit.
    EndBash,
    /// Record the shell's directory.
    SetDirectory(Vec<u8>),
    /// Record that the shell is in the start directory.
    ResetDirectory,
    /// Keep the state: the next bash starts with it.
    KeepState(SavedState),
    ForgetState,
    /// Answer the clients that asked for the state.
    AnswerStateRequests,
    End {
        job: JobId,
        ending: Ending,
    },
}

/// How a job ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// The command ran, and its status is known.
    Finished(Finish),
    /// The command ran, and bash cannot report how it ended.
    StatusUnknown { status: i32 },
    /// The shell was closed or reset while the command ran.
    Abandoned(CloseReason),
    /// No part of the command ran.
    NeverRan(NotRunReason),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Finish {
    pub kind: FinishKind,
    /// The status as in `$?`.
    pub status: i32,
    /// Whether the shell is a new one, not the one that ran the command before.
    pub was_restarted: bool,
    /// Whether a program waited for input when the time was up.
    pub was_awaiting_input: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinishKind {
    Exited,
    /// This signal killed bash itself.
    Signaled(i32),
    TimedOut,
}

/// Why a shell ends its bash and all its jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CloseReason {
    #[error("the shell was reset")]
    Reset,
    #[error("the shell was closed")]
    Closed,
    #[error("the runner is ending")]
    RunnerEnds,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotRunReason {
    #[error("{0}")]
    Closed(CloseReason),
    #[error("the shell did not take the command, nor did those that replaced it")]
    NotTaken,
    #[error("no shell could be started: {0}")]
    NoShell(String),
    #[error("signal {signal} took it out of the queue")]
    Cancelled { signal: i32 },
    /// Another command ran for longer than this one may wait.
    #[error("it waited in the queue for longer than queue_timeout_ms")]
    WaitedTooLong { behind: JobId },
}

/// Why bash is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KillReason {
    /// Bash did not become ready in time.
    StartTimedOut,
    /// A line could not be sent to it.
    SendFailed,
    /// Bash reported the end of a command that never began.
    CommandNotBegun,
    /// A command may have damaged bash's memory.
    MayBeBroken,
    /// The command has run out of time and survived all other steps.
    CommandTimedOut,
    /// Bash is at its prompt after a command, and can neither report nor exit.
    CannotReport,
}
