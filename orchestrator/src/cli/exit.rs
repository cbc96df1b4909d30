//! How a command ends: exit codes, and the one line on standard error that goes with a failure.

use std::io;

use shared_protocol::runner::OutcomeKind;

use crate::client::{ClientError, FindError};

/// The daemon refused, or something could not be done.
pub const FAILED: u8 = 1;
pub const USAGE: u8 = 2;
/// EX_USAGE of sysexits.h, as for a daemon's configuration.
pub const CONFIG: u8 = 64;
/// EX_UNAVAILABLE of sysexits.h.
pub const UNREACHABLE: u8 = 69;
/// What is added to the number of a signal that ended something, as shells do.
const SIGNALLED: u8 = 128;
const SIGPIPE: u8 = 13;

#[derive(Debug, PartialEq, Eq)]
pub struct Failure {
    code: u8,
    /// None where the reader of standard output went away: that is its right.
    message: Option<String>,
}

impl Failure {
    pub fn new(code: u8, message: impl Into<String>) -> Self {
        Self { code, message: Some(message.into()) }
    }

    pub fn failed(message: impl Into<String>) -> Self {
        Self::new(FAILED, message)
    }

    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(USAGE, message)
    }

    /// A failed write to standard output. One whose reader has gone is silent, with the code that SIGPIPE would give.
    pub fn stdout(error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Self { code: SIGNALLED + SIGPIPE, message: None }
        } else {
            Self::failed(format!("cannot write to standard output: {error}"))
        }
    }

    pub fn code(&self) -> u8 {
        self.code
    }

    pub fn is_silent(&self) -> bool {
        self.message.is_none()
    }

    pub fn print(&self) {
        if let Some(message) = &self.message {
            super::output::say(message);
        }
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        let code = match &error {
            ClientError::Unreachable { .. } => UNREACHABLE,
            ClientError::BadKey(_) => CONFIG,
            ClientError::Lost(_) | ClientError::Api(_) | ClientError::Protocol(_) => FAILED,
        };
        let hint = match &error {
            ClientError::Unreachable { .. } => "; is it running? Start one with `cove serve`",
            error if error.is("UNAUTHORIZED") => "; give the daemon's key with --api-key or COVE_API_KEY",
            error if error.is("SESSION_NOT_FOUND") => "; `cove ps` lists those there are",
            _ => "",
        };
        // The text may be a sandbox's own.
        Self::new(code, super::output::tame(&format!("{error}{hint}")))
    }
}

impl From<FindError> for Failure {
    fn from(error: FindError) -> Self {
        let code = match &error {
            FindError::NoDaemon { .. } => UNREACHABLE,
            FindError::Url(_) | FindError::NoKey { .. } | FindError::Damaged { .. } | FindError::NoHome => CONFIG,
        };
        Self::new(code, error.to_string())
    }
}

/// How a command ended, as far as the exit code goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ending {
    pub kind: OutcomeKind,
    pub exit_code: i32,
    pub signal: Option<i32>,
}

impl Ending {
    /// The command's own code; 128+n for a signal. What never ran or was lost is never a success.
    pub fn code(self) -> u8 {
        match self.kind {
            OutcomeKind::Exited | OutcomeKind::TimedOut => low_byte(self.exit_code),
            OutcomeKind::Signaled => self.signal.map_or_else(|| low_byte(self.exit_code), signalled),
            OutcomeKind::NeverRan | OutcomeKind::Lost => match low_byte(self.exit_code) {
                0 => FAILED,
                code => code,
            },
        }
    }
}

/// 128+n.
pub fn signalled(signal: i32) -> u8 {
    SIGNALLED.saturating_add(u8::try_from(signal).unwrap_or(0))
}

/// As the kernel passes an exit status on.
pub fn low_byte(code: i32) -> u8 {
    code.to_le_bytes()[0]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::ApiError;

    #[test]
    fn the_exit_code_is_the_commands_own() {
        let code = |kind, exit_code, signal| Ending { kind, exit_code, signal }.code();
        assert_eq!(code(OutcomeKind::Exited, 0, None), 0);
        assert_eq!(code(OutcomeKind::Exited, 255, None), 255);
        assert_eq!(code(OutcomeKind::Exited, -1, None), 255);
        assert_eq!(code(OutcomeKind::TimedOut, 124, None), 124);
        assert_eq!(code(OutcomeKind::Signaled, 137, Some(9)), 137);
        assert_eq!(code(OutcomeKind::Signaled, 0, Some(15)), 143);
    }

    #[test]
    fn what_never_ran_is_never_a_success() {
        for kind in [OutcomeKind::NeverRan, OutcomeKind::Lost] {
            assert_eq!(Ending { kind, exit_code: 0, signal: None }.code(), FAILED);
            assert_eq!(Ending { kind, exit_code: 127, signal: None }.code(), 127);
        }
    }

    #[test]
    fn each_kind_of_error_has_its_code() {
        let api = ApiError { status: 404, code: Some("SESSION_NOT_FOUND".into()), message: "no".into() };
        let unreachable = ClientError::Unreachable { url: "u".into(), source: io::ErrorKind::ConnectionRefused.into() };
        assert_eq!(Failure::from(ClientError::Api(api)).code(), FAILED);
        assert_eq!(Failure::from(unreachable).code(), UNREACHABLE);
        assert_eq!(Failure::from(FindError::NoDaemon { data_dir: "/x".into() }).code(), UNREACHABLE);
        assert_eq!(Failure::from(FindError::NoHome).code(), CONFIG);
    }

    #[test]
    fn a_reader_that_went_away_is_nothing_to_speak_of() {
        let gone = Failure::stdout(&io::ErrorKind::BrokenPipe.into());
        assert!(gone.is_silent());
        assert_eq!(gone.code(), 141);
        assert!(!Failure::stdout(&io::ErrorKind::StorageFull.into()).is_silent());
    }
}
