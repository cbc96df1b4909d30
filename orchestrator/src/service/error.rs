//! The errors of use cases, by what a caller can do about them, and the stable code that every front sends to its clients.
//!
//! A check gives [`InvalidRequest`]. A call that goes into a sandbox gives [`CallError`]. Calls about sessions themselves give
//! [`SessionError`], and uploads [`UploadError`](super::files::UploadError).

use std::sync::Arc;

use shared_protocol::query::QueryError;
use shared_protocol::{ErrorBody, ErrorCode, InvalidId};

use crate::image::ImageError;
use crate::key::KeyError;
use crate::runner_client::RunnerError;
use crate::secret::SecretError;
use crate::session::SessionError;

/// A request that can never work, whatever the state of its session. Nothing has been touched.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidRequest(String);

impl InvalidRequest {
    pub fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

/// Why a call into a sandbox failed.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The session has ended, or does not exist.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The session lives, but its runner refused the call or is lost.
    #[error(transparent)]
    Runner(#[from] RunnerError),
}

/// Why a call about keys failed.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    /// The caller may not make it.
    #[error(transparent)]
    Caller(#[from] SessionError),
    #[error(transparent)]
    Key(#[from] KeyError),
}

impl From<KeysError> for ErrorBody {
    fn from(error: KeysError) -> Self {
        let error = match error {
            KeysError::Caller(error) => return error.into(),
            KeysError::Key(error) => error,
        };
        let code = match &error {
            KeyError::Exists(_) | KeyError::First(_) => ErrorCode::Conflict,
            KeyError::NotFound(_) => ErrorCode::NotFound,
            KeyError::Full(_) => ErrorCode::LimitReached,
            KeyError::StillStored { .. } | KeyError::Failed(_) => ErrorCode::InternalError,
        };
        Self::new(code, error.to_string())
    }
}

impl From<SecretError> for ErrorBody {
    fn from(error: SecretError) -> Self {
        let code = match &error {
            SecretError::Invalid(_) => ErrorCode::InvalidRequest,
            SecretError::NotFound(_) => ErrorCode::NotFound,
            SecretError::Full => ErrorCode::LimitReached,
            SecretError::StillStored { .. } | SecretError::Failed(_) => ErrorCode::InternalError,
        };
        Self::new(code, error.to_string())
    }
}

/// Why a call about images failed.
#[derive(Debug, thiserror::Error)]
pub enum ImagesError {
    /// The caller may not make it.
    #[error(transparent)]
    Caller(#[from] SessionError),
    /// All who wait for one pull get the same error.
    #[error(transparent)]
    Image(#[from] Arc<ImageError>),
}

impl From<ImageError> for ImagesError {
    fn from(error: ImageError) -> Self {
        Self::Image(Arc::new(error))
    }
}

impl From<ImagesError> for ErrorBody {
    fn from(error: ImagesError) -> Self {
        let error = match error {
            ImagesError::Caller(error) => return error.into(),
            ImagesError::Image(error) => error,
        };
        let code = match error.as_ref() {
            ImageError::Missing(_) => ErrorCode::NotFound,
            ImageError::Exists(_) | ImageError::Busy(_) => ErrorCode::Conflict,
            ImageError::Refused(_) => ErrorCode::Forbidden,
            ImageError::Io { .. } => ErrorCode::InternalError,
            ImageError::Name(_) | ImageError::Reference(_) => ErrorCode::InvalidRequest,
            ImageError::Archive(_) | ImageError::Registry(_) => ErrorCode::InvalidImage,
        };
        Self::new(code, error.whole())
    }
}

/// The checks of the wire types return a body whose code is always INVALID_REQUEST.
impl From<ErrorBody> for InvalidRequest {
    fn from(body: ErrorBody) -> Self {
        Self(body.message)
    }
}

impl From<QueryError> for InvalidRequest {
    fn from(error: QueryError) -> Self {
        Self(error.to_string())
    }
}

impl From<InvalidId> for InvalidRequest {
    fn from(error: InvalidId) -> Self {
        Self(error.to_string())
    }
}

impl From<InvalidRequest> for ErrorBody {
    fn from(error: InvalidRequest) -> Self {
        Self::new(ErrorCode::InvalidRequest, error.0)
    }
}

impl From<CallError> for ErrorBody {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Session(error) => error.into(),
            CallError::Runner(RunnerError::Refused(body)) => body,
            CallError::Runner(error @ (RunnerError::Lost(_) | RunnerError::Hostile(_))) => {
                Self::new(ErrorCode::SandboxLost, error.to_string())
            }
        }
    }
}

impl From<SessionError> for ErrorBody {
    fn from(error: SessionError) -> Self {
        let code = match &error {
            SessionError::InvalidRequest(_) => ErrorCode::InvalidRequest,
            SessionError::InvalidImage(_) => ErrorCode::InvalidImage,
            SessionError::NotFound(_) => ErrorCode::SessionNotFound,
            SessionError::Expired(_) => ErrorCode::SessionExpired,
            SessionError::Lost { .. } => ErrorCode::SandboxLost,
            SessionError::WorkspaceNotFound(_) => ErrorCode::WorkspaceNotFound,
            SessionError::SecretNotFound(_) | SessionError::SnapshotNotFound(_) => ErrorCode::NotFound,
            SessionError::Conflict(_) => ErrorCode::Conflict,
            SessionError::Limit { .. } => ErrorCode::LimitReached,
            SessionError::NeedsAdmin(_) | SessionError::Forbidden(_) => ErrorCode::Forbidden,
            SessionError::Internal(_) => ErrorCode::InternalError,
        };
        let mut body = Self::new(code, error.to_string());
        if let SessionError::Limit { details, .. } = error {
            body.details = Some(details);
        }
        body
    }
}
