//! `/healthz`, `/readyz`, `/metrics`: whether the daemon lives, whether it can work, and what it has done.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use hyper::StatusCode;
use hyper::header::CONTENT_TYPE;
use serde::Serialize;
use shared_protocol::ErrorCode;

use super::ApiState;
use super::error::ApiError;

const READY_WITHIN: Duration = Duration::from_secs(2);

#[derive(Debug, Serialize, schemars::JsonSchema)]
pub struct DaemonHealth {
    /// `ok`
    pub status: &'static str,
    pub version: &'static str,
}

const WELL: DaemonHealth = DaemonHealth { status: "ok", version: env!("CARGO_PKG_VERSION") };

/// Needs no key and touches nothing: it answers as long as the daemon does.
pub async fn healthz() -> Json<DaemonHealth> {
    Json(WELL)
}

/// Whether every runtime answers. Otherwise 503, whatever the code's own status: that is what balancers look at.
pub async fn readyz(State(state): State<ApiState>) -> Response {
    match state.sessions.ready(READY_WITHIN).await {
        Ok(()) => Json(WELL).into_response(),
        Err(reason) => {
            let error = ApiError::new(ErrorCode::InternalError, format!("not ready: {reason}"));
            (StatusCode::SERVICE_UNAVAILABLE, error).into_response()
        }
    }
}

pub async fn metrics(State(state): State<ApiState>) -> Result<Response, ApiError> {
    let text = state.metrics.encode(&state.sessions.counts());
    let text = text.map_err(|e| ApiError::new(ErrorCode::InternalError, format!("metrics: {e}")))?;
    Ok(([(CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text).into_response())
}
