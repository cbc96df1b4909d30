//! The one file that maps errors to HTTP.

use axum::response::{IntoResponse, Response};
use hyper::StatusCode;
use shared_protocol::{ErrorBody, ErrorCode, InvalidId};

use crate::runner_client::RunnerError;
use crate::session::SessionError;

#[derive(Debug)]
pub struct ApiError(pub ErrorBody);

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.0.error_code.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        (status, axum::Json(self.0)).into_response()
    }
}

impl From<SessionError> for ApiError {
    fn from(error: SessionError) -> Self {
        let code = match &error {
            SessionError::NotFound(_) => ErrorCode::SessionNotFound,
            SessionError::Expired(_) => ErrorCode::SessionExpired,
            SessionError::Lost { .. } => ErrorCode::SandboxLost,
        };
        Self(ErrorBody::new(code, error.to_string()))
    }
}

impl From<RunnerError> for ApiError {
    fn from(error: RunnerError) -> Self {
        match error {
            RunnerError::Refused(body) => Self(body),
            error => Self(ErrorBody::new(ErrorCode::SandboxLost, error.to_string())),
        }
    }
}

impl From<InvalidId> for ApiError {
    fn from(error: InvalidId) -> Self {
        Self(ErrorBody::new(ErrorCode::InvalidRequest, error.to_string()))
    }
}
