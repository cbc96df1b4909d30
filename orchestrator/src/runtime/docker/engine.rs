//! Errors of a container engine, as messages that an operator can act upon.

use bollard::errors::Error;

use crate::runtime::RuntimeError;

const MAX_MESSAGE_CHARS: usize = 1000;

/// Whether the engine does not have the named object.
pub fn is_missing(error: &Error) -> bool {
    status(error) == Some(404)
}

/// Whether the container's state forbids the request: it is already being removed, or it does not run.
pub fn is_conflict(error: &Error) -> bool {
    status(error) == Some(409)
}

fn status(error: &Error) -> Option<u16> {
    match error {
        Error::DockerResponseServerError { status_code, .. } => Some(*status_code),
        _ => None,
    }
}

/// Whether a message is about a full disk.
pub fn is_full(message: &str) -> bool {
    let lower = message.to_lowercase();
    lower.contains("no space left on device") || lower.contains("disk quota exceeded")
}

/// The message, shortened: some engines repeat the whole request.
fn short(message: &str) -> String {
    match message.char_indices().nth(MAX_MESSAGE_CHARS) {
        Some((end, _)) => format!("{}…", &message[..end]),
        None => message.to_owned(),
    }
}

pub fn failed(step: &str, error: Error) -> RuntimeError {
    match &error {
        Error::DockerResponseServerError { message, .. } | Error::DockerStreamError { error: message } => {
            let lower = message.to_lowercase();
            if is_full(message) {
                return RuntimeError::failed(format!("{step}: the container engine's disk is full"), short(message));
            }
            if lower.contains("storage-opt") || lower.contains("storage opt") {
                return RuntimeError::Unsupported(
                    "a writable root needs a quota, which this engine's storage has not (overlay2 has one on xfs with \
                     pquota); set docker.root_quota = false to have it without a limit"
                        .into(),
                );
            }
            RuntimeError::failed(step, short(message))
        }
        Error::RequestTimeoutError => {
            RuntimeError::failed(format!("{step}: the container engine does not answer"), error)
        }
        Error::JsonDataError { .. } | Error::JsonSerdeError { .. } => {
            RuntimeError::failed(format!("{step}: the container engine's answer is not understood"), error)
        }
        _ => RuntimeError::failed(format!("{step}: the container engine is not reachable"), error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(status_code: u16, message: &str) -> RuntimeError {
        failed("making the container", Error::DockerResponseServerError { status_code, message: message.into() })
    }

    #[test]
    fn a_full_disk_and_a_missing_quota_are_told_apart_from_other_failures() {
        assert!(said(500, "mkdir x: no space left on device").to_string().contains("disk is full"));
        let quota = said(500, "--storage-opt is supported only for overlay over xfs with 'pquota' mount option");
        assert!(matches!(quota, RuntimeError::Unsupported(_)));
        assert_eq!(said(500, "x").to_string(), "making the container");
        let long = said(500, &"x".repeat(MAX_MESSAGE_CHARS + 1));
        let cause = std::error::Error::source(&long).map(ToString::to_string).unwrap_or_default();
        assert_eq!(cause, format!("{}…", "x".repeat(MAX_MESSAGE_CHARS)));
        let gone = Error::IOError { err: std::io::Error::from(std::io::ErrorKind::ConnectionRefused) };
        assert!(failed("listing", gone).to_string().contains("not reachable"));
    }
}
