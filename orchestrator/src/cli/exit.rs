//! How a command of `cove` ends: its exit code, and the one line on standard error that explains a failure.

use std::io;

use shared_protocol::runner::OutcomeKind;

use crate::client::{ClientError, FindError};

/// The daemon refused, or something failed.
pub const FAILED: u8 = 1;
pub const USAGE: u8 = 2;
/// Something that the user has to change in the configuration: EX_USAGE of sysexits.h.
pub const CONFIG: u8 = 64;
/// No daemon answers: EX_UNAVAILABLE of sysexits.h.
pub const UNREACHABLE: u8 = 69;
/// Added to the number of the signal that ended a command, as shells do.
const SIGNALLED: u8 = 128;
const SIGPIPE: u8 = 13;

#[derive(Debug, PartialEq, Eq)]
pub struct Failure {
    code: u8,
    /// `None` if whoever read standard output went away, which is not an error to report.
    message: Option<String>,
    /// The code of the daemon's error, if it was one.
    api_code: Option<String>,
}

impl Failure {
    pub fn new(code: u8, message: impl Into<String>) -> Self {
        Self { code, message: Some(message.into()), api_code: None }
    }

    pub fn failed(message: impl Into<String>) -> Self {
        Self::new(FAILED, message)
    }

    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(USAGE, message)
    }

    /// A failed write to standard output. If its reader has gone, nothing is printed, and the code is that of SIGPIPE.
    pub fn stdout(error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Self { code: SIGNALLED + SIGPIPE, message: None, api_code: None }
        } else {
            Self::failed(format!("cannot write to standard output: {error}"))
        }
    }

    /// Whether the daemon answered with this error code.
    pub fn is(&self, code: &str) -> bool {
        self.api_code.as_deref() == Some(code)
    }

    /// The same failure, with what to do about it.
    pub fn with_hint(self, hint: &str) -> Self {
        Self { message: self.message.map(|message| format!("{message}; {hint}")), ..self }
    }

    pub fn code(&self) -> u8 {
        self.code
    }

    /// What is printed, for whoever tells it in another way.
    pub fn message(&self) -> &str {
        self.message.as_deref().unwrap_or_default()
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
            ClientError::Unreachable { .. } => "; start one with `cove serve`",
            error if error.is("UNAUTHORIZED") => "; give the daemon's key with --api-key or COVE_API_KEY",
            error if error.is("SESSION_NOT_FOUND") => "; `cove ps` lists the sessions",
            _ => "",
        };
        let api_code = match &error {
            ClientError::Api(error) => error.code.clone(),
            _ => None,
        };
        // A sandbox may have written parts of the text.
        Self { api_code, ..Self::new(code, super::output::escape_control(&format!("{error}{hint}"))) }
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

/// How a command in a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommandEnd {
    pub kind: OutcomeKind,
    pub exit_code: i32,
    pub signal: Option<i32>,
}

impl CommandEnd {
    /// The command's own exit code, or 128+n for a signal. A command that never ran or was lost never counts as a success.
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

/// The part of an exit code that the kernel passes on.
pub fn low_byte(code: i32) -> u8 {
    code.to_le_bytes()[0]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::ApiError;

    #[test]
    fn the_exit_code_is_the_commands_own() {
        let code = |kind, exit_code, signal| CommandEnd { kind, exit_code, signal }.code();
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
            assert_eq!(CommandEnd { kind, exit_code: 0, signal: None }.code(), FAILED);
            assert_eq!(CommandEnd { kind, exit_code: 127, signal: None }.code(), 127);
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
    fn a_reader_that_went_away_is_not_reported() {
        let gone = Failure::stdout(&io::ErrorKind::BrokenPipe.into());
        assert!(gone.is_silent());
        assert_eq!(gone.code(), 141);
        assert!(!Failure::stdout(&io::ErrorKind::StorageFull.into()).is_silent());
    }
}
