//! The errors of sessions, by what a caller can do about them.

use serde_json::Value;
use shared_protocol::{SessionId, SnapshotId, WorkspaceId};

#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SessionError {
    #[error("{0}")]
    InvalidRequest(String),
    #[error("{0}")]
    InvalidImage(String),
    #[error("no session {0}: it never was, or it was destroyed")]
    NotFound(SessionId),
    #[error("session {0} has expired; create another")]
    Expired(SessionId),
    #[error("the sandbox of session {id} is gone: {reason}")]
    Lost { id: SessionId, reason: String },
    #[error("no workspace {0}: it is made by the first session that names it")]
    WorkspaceNotFound(WorkspaceId),
    #[error("no snapshot {0}: it never was, or it was removed")]
    SnapshotNotFound(SnapshotId),
    /// The request names a secret that its caller does not have.
    #[error("{0}")]
    SecretNotFound(String),
    #[error("{0}")]
    Conflict(String),
    #[error("{message}")]
    Limit { message: String, details: Value },
    /// The caller's key may not do this.
    #[error("{0}")]
    Forbidden(String),
    /// Only an admin key may do this.
    #[error("{0} needs an admin key")]
    NeedsAdmin(&'static str),
    /// The host failed. The full cause is logged where it happened.
    #[error("{0}")]
    Internal(String),
}

impl SessionError {
    /// An error with all its causes, for a log line, or for a client that cannot see the log.
    pub fn chain(error: &(dyn std::error::Error + 'static)) -> String {
        let mut text = error.to_string();
        let mut next = error.source();
        while let Some(cause) = next {
            text.push_str(": ");
            text.push_str(&cause.to_string());
            next = cause.source();
        }
        text
    }
}

impl From<crate::runtime::RuntimeError> for SessionError {
    fn from(error: crate::runtime::RuntimeError) -> Self {
        use crate::runtime::RuntimeError as E;
        match error {
            E::InvalidImage(message) => Self::InvalidImage(message),
            E::Unsupported(message) => Self::InvalidRequest(message),
            E::Full(message) => Self::Limit { message, details: serde_json::json!({ "what": "sandboxes" }) },
            E::Gone(id) => Self::Lost { id, reason: "its runtime no longer knows it".into() },
            E::Failed { .. } => Self::Internal(Self::chain(&error)),
        }
    }
}

impl From<crate::network::NetworkError> for SessionError {
    fn from(error: crate::network::NetworkError) -> Self {
        match error {
            crate::network::NetworkError::NeedsAdmin { .. } | crate::network::NetworkError::AboveMaximum { .. } => {
                Self::Forbidden(error.to_string())
            }
            _ => Self::InvalidRequest(error.to_string()),
        }
    }
}

impl From<crate::network::InjectError> for SessionError {
    fn from(error: crate::network::InjectError) -> Self {
        match error {
            crate::network::InjectError::NoSecret(_) => Self::SecretNotFound(error.to_string()),
            _ => Self::InvalidRequest(error.to_string()),
        }
    }
}

impl From<crate::workspace::WorkspaceError> for SessionError {
    fn from(error: crate::workspace::WorkspaceError) -> Self {
        use crate::workspace::WorkspaceError as E;
        match error {
            E::NotFound(id) => Self::WorkspaceNotFound(id),
            E::BeingDeleted(_) | E::Unreachable(_) => Self::Conflict(error.to_string()),
            E::Unmountable(_) => Self::InvalidRequest(error.to_string()),
            E::Full(message) => Self::Limit { message, details: serde_json::json!({ "what": "workspaces" }) },
            E::Failed(message) => Self::Internal(message),
        }
    }
}
