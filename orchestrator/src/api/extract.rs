//! Extractors whose errors have the error shape.

use axum::extract::{FromRequest, FromRequestParts, Request};
use hyper::http::request::Parts;
use serde::de::DeserializeOwned;
use shared_protocol::{ErrorBody, ErrorCode, SessionId};

use super::error::ApiError;

pub const MAX_JSON_BODY_BYTES: usize = 16 << 20;

pub struct ApiJson<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for ApiJson<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        let invalid = |message: String| ApiError(ErrorBody::new(ErrorCode::InvalidRequest, message));
        let body = axum::body::to_bytes(request.into_body(), MAX_JSON_BODY_BYTES).await;
        let body = body.map_err(|error| invalid(error.to_string()))?;
        serde_json::from_slice(&body).map(Self).map_err(|error| invalid(error.to_string()))
    }
}

pub struct SessionPath(pub SessionId);

impl<S: Send + Sync> FromRequestParts<S> for SessionPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        super::target::session_id(&parts.uri).map(Self)
    }
}
