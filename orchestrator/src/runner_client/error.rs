//! The errors of a runner client, and the check of the errors that a runner sends.
//!
//! A runner is inside the sandbox and may be hostile. Its errors are passed on only with codes that a runner can have, so it
//! cannot make the daemon say that a key is wrong or that a session does not exist. Texts are cut to a limit.

use shared_protocol::{ErrorBody, ErrorCode};

/// The longest message of an error. The longest one of a real runner names two paths, each cut to 512 bytes.
const MAX_MESSAGE_BYTES: usize = 4 << 10;

/// The longest details of an error, as JSON.
const MAX_DETAILS_BYTES: usize = 4 << 10;

#[derive(Debug, thiserror::Error)]
pub enum RunnerError {
    /// The runner answered with an error, which is meant for the client.
    #[error("{0}")]
    Refused(ErrorBody),
    /// The runner cannot be reached, the connection was cut, or the time ran out.
    #[error("the sandbox's runner is lost: {0}")]
    Lost(String),
    /// The runner broke the protocol: it sent too much, or something malformed or false.
    #[error("the sandbox's runner broke the protocol: {0}")]
    Hostile(String),
}

impl RunnerError {
    pub fn refused(code: ErrorCode, message: impl Into<String>) -> Self {
        Self::Refused(ErrorBody::new(code, message))
    }

    pub fn hostile(what: impl Into<String>) -> Self {
        Self::Hostile(what.into())
    }

    /// The runner's error code, if it sent one.
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Refused(body) => Some(body.error_code),
            Self::Lost(_) | Self::Hostile(_) => None,
        }
    }
}

/// Whether a runner can send this code. Only the daemon uses the others.
fn is_a_runners(code: ErrorCode) -> bool {
    match code {
        ErrorCode::InvalidRequest
        | ErrorCode::Forbidden
        | ErrorCode::ShellNotFound
        | ErrorCode::FileNotFound
        | ErrorCode::ExecNotFound
        | ErrorCode::ShellBusy
        | ErrorCode::Conflict
        | ErrorCode::TooLarge
        | ErrorCode::LimitReached
        | ErrorCode::SandboxLost
        | ErrorCode::PortClosed
        | ErrorCode::InternalError => true,
        // If it does not know a call or a method, it is not the runner of this version.
        ErrorCode::NotFound
        | ErrorCode::MethodNotAllowed
        | ErrorCode::InvalidImage
        | ErrorCode::Unauthorized
        | ErrorCode::SessionNotFound
        | ErrorCode::WorkspaceNotFound
        | ErrorCode::SessionExpired => false,
    }
}

/// Checks a runner's error before it is passed on.
pub fn checked(mut body: ErrorBody) -> RunnerError {
    if !is_a_runners(body.error_code) {
        return RunnerError::hostile(format!("it answered with {:?}, which is not its to say", body.error_code));
    }
    if body.message.len() > MAX_MESSAGE_BYTES {
        let end = (0..=MAX_MESSAGE_BYTES).rev().find(|end| body.message.is_char_boundary(*end)).unwrap_or(0);
        body.message.truncate(end);
        body.message.push('…');
    }
    let is_small =
        |details: &serde_json::Value| serde_json::to_vec(details).is_ok_and(|d| d.len() <= MAX_DETAILS_BYTES);
    body.details = body.details.filter(is_small);
    RunnerError::Refused(body)
}

/// The error that an answer with this status and body stands for.
pub fn from_answer(status: u16, bytes: &[u8]) -> RunnerError {
    match serde_json::from_slice::<ErrorBody>(bytes) {
        Ok(body) if body.error_code.http_status() == status => checked(body),
        Ok(body) => RunnerError::hostile(format!("it answered {:?} with status {status}", body.error_code)),
        Err(_) => RunnerError::hostile(format!("it answered with status {status} and no error that can be read")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runner_cannot_speak_for_the_daemon() {
        for (status, code) in [
            (401, "UNAUTHORIZED"),
            (404, "SESSION_NOT_FOUND"),
            (410, "SESSION_EXPIRED"),
            (404, "WORKSPACE_NOT_FOUND"),
            (404, "NOT_FOUND"),
            (405, "METHOD_NOT_ALLOWED"),
            (400, "INVALID_IMAGE"),
        ] {
            let body = format!(r#"{{"error_code":"{code}","message":"m"}}"#);
            assert!(matches!(from_answer(status, body.as_bytes()), RunnerError::Hostile(_)), "{code}");
        }
        let body = br#"{"error_code":"CONFLICT","message":"m"}"#;
        assert_eq!(from_answer(409, body).code(), Some(ErrorCode::Conflict));
    }

    #[test]
    fn a_status_that_is_not_the_codes_is_a_lie() {
        let body = br#"{"error_code":"CONFLICT","message":"m"}"#;
        for status in [200, 302, 401, 500] {
            assert!(matches!(from_answer(status, body), RunnerError::Hostile(_)), "{status}");
        }
        assert!(matches!(from_answer(500, b"<html>"), RunnerError::Hostile(_)));
    }

    #[test]
    fn texts_are_cut_and_large_details_dropped() {
        let long = "é".repeat(MAX_MESSAGE_BYTES);
        let details = serde_json::json!({ "x": "y".repeat(MAX_DETAILS_BYTES) });
        let body = ErrorBody { error_code: ErrorCode::Conflict, message: long, details: Some(details) };
        let RunnerError::Refused(body) = checked(body) else { panic!("it is one of the runner's codes") };
        assert!(body.message.len() <= MAX_MESSAGE_BYTES + "…".len());
        assert_eq!(body.details, None);
    }
}
