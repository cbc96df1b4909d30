//! The errors of a call, in the kinds that commands treat differently.

use std::error::Error;

use serde::Deserialize;

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody answers at this address. The request was not sent.
    #[error("cannot reach the daemon at {url}: {source}")]
    Unreachable { url: String, source: std::io::Error },
    /// The request was sent, and no complete answer came.
    #[error("the connection to the daemon was lost: {0}")]
    Lost(String),
    /// The daemon refused, and says why.
    #[error("{0}")]
    Api(ApiError),
    /// The answer is not one that a daemon sends.
    #[error("the daemon answered in a way this program does not understand: {0}")]
    Protocol(String),
    #[error("the API key cannot be used: {0}")]
    BadKey(String),
}

impl ClientError {
    /// Makes a `Lost` with all causes, because hyper's own message is often only "connection error".
    pub fn lost(error: impl Error) -> Self {
        let mut message = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            let text = error.to_string();
            if !message.contains(&text) {
                message = format!("{message}: {text}");
            }
            cause = error.source();
        }
        Self::Lost(message)
    }

    /// Whether the daemon answered with this error code.
    pub fn is(&self, code: &str) -> bool {
        matches!(self, Self::Api(error) if error.code.as_deref() == Some(code))
    }
}

/// An error that the daemon answered with. The code is text, because a newer daemon may have codes that this program does
/// not know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiError {
    pub status: u16,
    pub code: Option<String>,
    pub message: String,
}

impl ApiError {
    /// An error that came as the last event of a stream.
    pub fn in_stream(body: &shared_protocol::ErrorBody) -> Self {
        Self::parse(200, &serde_json::to_vec(body).unwrap_or_default())
    }

    pub fn parse(status: u16, body: &[u8]) -> Self {
        #[derive(Deserialize)]
        struct Shape {
            error_code: String,
            message: String,
        }
        match serde_json::from_slice::<Shape>(body) {
            Ok(shape) => Self { status, code: Some(shape.error_code), message: shape.message },
            Err(_) => Self { status, code: None, message: format!("the daemon answered with HTTP status {status}") },
        }
    }
}

impl std::fmt::Display for ApiError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.code {
            Some(code) => write!(f, "{} ({code})", self.message),
            None => f.write_str(&self.message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_shown_as_its_message_and_its_code() {
        let body = br#"{"error_code":"SESSION_NOT_FOUND","message":"no session x","details":{"a":1}}"#;
        let error = ClientError::Api(ApiError::parse(404, body));
        assert_eq!(error.to_string(), "no session x (SESSION_NOT_FOUND)");
        assert!(error.is("SESSION_NOT_FOUND"));
    }

    #[test]
    fn a_code_of_a_newer_daemon_and_a_proxys_page_are_both_shown() {
        let newer = ApiError::parse(451, br#"{"error_code":"FROM_TOMORROW","message":"m"}"#);
        assert_eq!(newer.to_string(), "m (FROM_TOMORROW)");
        let page = ApiError::parse(502, b"<html>bad gateway</html>");
        assert_eq!(page.to_string(), "the daemon answered with HTTP status 502");
    }
}
