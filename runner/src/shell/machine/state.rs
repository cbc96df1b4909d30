//! The states of the machine.

use std::time::{Duration, Instant};

use super::Ticket;
use super::running::Running;

/// The time for a start, login files included. A bash that takes longer is killed and started in a simpler mode.
pub(super) const STARTUP_DEADLINE: Duration = Duration::from_secs(10);

/// The same for a bash that gets no processor, which must not cost it its state.
pub(super) const LAST_STARTUP_DEADLINE: Duration = Duration::from_secs(60);

/// How a new bash is started. If one mode fails, a simpler one is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartMode {
    /// As a login shell: bash reads `/etc/profile` and the user's own files.
    Login,
    /// With the saved state of the shell that it replaces. If there is none, with the environment and without login files.
    Restore,
    /// The same once more. A restore runs none of the user's commands, so it fails only if bash is killed or gets no room,
    /// which may be over.
    RestoreAgain,
    /// Not a new bash: a running one applies the claim of its sandbox. If that fails, a login does the same.
    Claim,
    /// With nothing that could fail.
    Bare,
}

impl StartMode {
    /// The first mode to try.
    pub(super) fn first(has_saved_state: bool) -> Self {
        if has_saved_state { Self::Restore } else { Self::Login }
    }

    /// The mode to try after this one has failed.
    pub(super) fn simpler(self) -> Option<Self> {
        match self {
            Self::Claim => Some(Self::Login),
            Self::Restore => Some(Self::RestoreAgain),
            Self::Login | Self::RestoreAgain => Some(Self::Bare),
            Self::Bare => None,
        }
    }

    /// Whether bash starts with the saved state, if there is one.
    pub fn restores(self) -> bool {
        matches!(self, Self::Restore | Self::RestoreAgain)
    }
}

/// A start that bash has not reported yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Start {
    pub(super) ticket: Ticket,
    pub(super) mode: StartMode,
    /// When bash is looked at, and killed unless it only gets no processor.
    pub(super) deadline: Instant,
    /// The deadline that is not put off.
    pub(super) last_deadline: Instant,
}

impl Start {
    pub(super) fn new(ticket: Ticket, mode: StartMode, now: Instant) -> Self {
        Self { ticket, mode, deadline: now + STARTUP_DEADLINE, last_deadline: now + LAST_STARTUP_DEADLINE }
    }
}

#[derive(Debug)]
pub(super) enum State {
    /// There is no bash, and none is wanted before the next command.
    Down,
    /// There is no bash; it starts at this time.
    StartDue {
        at: Instant,
    },
    /// Bash is starting or applying a claim. Commands wait.
    Starting(Start),
    /// Bash is ready, and the driver finds out whether it has to apply a claim.
    CheckingClaim,
    /// Bash is ready for a command.
    Idle,
    Running(Running),
    /// Bash may be broken. It is replaced when it has written its state, or at this time.
    Suspect {
        until: Instant,
    },
    /// Bash was killed and has not exited yet. `start` is set if bash was killed while it started.
    Killed {
        start: Option<Start>,
    },
    Closed,
}

impl State {
    pub(super) fn has_bash(&self) -> bool {
        !matches!(self, Self::Down | Self::StartDue { .. } | Self::Closed)
    }

    /// The start that has not been reported yet.
    pub(super) fn start(&self) -> Option<Start> {
        match self {
            Self::Starting(start) => Some(*start),
            Self::Killed { start } => *start,
            _ => None,
        }
    }
}
