//! Maps errors to HTTP; no other file does. The service gives each error its code, and the code determines the status.

use axum::response::{IntoResponse, Response};
use hyper::StatusCode;
use shared_protocol::query::QueryError;
use shared_protocol::{ErrorBody, ErrorCode, InvalidId};

use crate::service::files::UploadError;
use crate::service::{CallError, ImagesError, InvalidRequest, KeysError, SecretError, SessionError};

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
        // `server::gate` reads the code from the response, to count and log the error.
        (status, axum::Extension(code), axum::Json(self.0)).into_response()
    }
}

/// Implements the conversion for errors that have a code.
macro_rules! from_service {
    ($($error:ty),*) => {$(
        impl From<$error> for ApiError {
            fn from(error: $error) -> Self {
                Self(error.into())
            }
        }
    )*};
}

from_service!(InvalidRequest, CallError, ImagesError, KeysError, SecretError, SessionError, UploadError, QueryError);

impl From<InvalidId> for ApiError {
    fn from(error: InvalidId) -> Self {
        Self::invalid(error.to_string())
    }
}
