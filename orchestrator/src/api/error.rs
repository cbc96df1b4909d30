//! The one file that maps errors to HTTP.

use axum::response::{IntoResponse, Response};
use hyper::StatusCode;
use shared_protocol::{ErrorBody, ErrorCode, InvalidId};

use crate::runner_client::RunnerError;
use crate::session::SessionError;

#[derive(Debug, Clone, PartialEq)]
pub struct ApiError(pub ErrorBody);

impl ApiError {
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self(ErrorBody::new(code, message))
    }

    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::InvalidRequest, message)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let code = self.0.error_code;
        let status = StatusCode::from_u16(code.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        // The code goes with the answer to where errors are counted and logged.
        (status, axum::Extension(code), axum::Json(self.0)).into_response()
    }
}

impl From<ErrorBody> for ApiError {
    fn from(body: ErrorBody) -> Self {
        Self(body)
    }
}

impl From<InvalidId> for ApiError {
    fn from(error: InvalidId) -> Self {
        Self::invalid(error.to_string())
    }
}

impl From<SessionError> for ApiError {
    fn from(error: SessionError) -> Self {
        let code = match &error {
            SessionError::InvalidRequest(_) => ErrorCode::InvalidRequest,
            SessionError::InvalidImage(_) => ErrorCode::InvalidImage,
            SessionError::NotFound(_) => ErrorCode::SessionNotFound,
            SessionError::Expired(_) => ErrorCode::SessionExpired,
            SessionError::Lost { .. } => ErrorCode::SandboxLost,
            SessionError::WorkspaceNotFound(_) => ErrorCode::WorkspaceNotFound,
            SessionError::Conflict(_) => ErrorCode::Conflict,
            SessionError::Limit { .. } => ErrorCode::LimitReached,
            SessionError::Internal(_) => ErrorCode::InternalError,
        };
        let mut body = ErrorBody::new(code, error.to_string());
        if let SessionError::Limit { details, .. } = error {
            body.details = Some(details);
        }
        Self(body)
    }
}

impl From<RunnerError> for ApiError {
    fn from(error: RunnerError) -> Self {
        match error {
            RunnerError::Refused(body) => Self(body),
            error => Self::new(ErrorCode::SandboxLost, error.to_string()),
        }
    }
}
