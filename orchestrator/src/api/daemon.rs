//! `/healthz`, `/readyz`, `/metrics`, `/v1/images` and `/v1/pools`: calls about the daemon itself.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use hyper::StatusCode;
use hyper::header::CONTENT_TYPE;
use serde::Serialize;
use shared_protocol::ErrorCode;
use shared_protocol::api::{ImageView, PoolView, SetPoolRequest};

use super::ApiState;
use super::error::ApiError;
use super::extract::{ApiJson, By, ImagePath};

/// The health of the daemon.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub struct DaemonHealth {
    /// Always `ok`.
    pub status: &'static str,
    /// The daemon's version.
    pub version: &'static str,
}

const WELL: DaemonHealth = DaemonHealth { status: "ok", version: env!("CARGO_PKG_VERSION") };

/// Answers as long as the daemon runs. It needs no key and touches nothing.
pub async fn healthz() -> Json<DaemonHealth> {
    Json(WELL)
}

/// Answers whether the daemon can work. If not, the status is 503 whatever the error code's own status is, because load
/// balancers look at the status.
pub async fn readyz(State(state): State<ApiState>, By(caller): By) -> Response {
    match state.service.daemon().ready(&caller).await {
        Ok(()) => Json(WELL).into_response(),
        Err(reason) => {
            let error = ApiError::new(ErrorCode::InternalError, format!("not ready: {reason}"));
            (StatusCode::SERVICE_UNAVAILABLE, error).into_response()
        }
    }
}

pub async fn metrics(State(state): State<ApiState>, By(caller): By) -> Result<Response, ApiError> {
    let text = state.service.daemon().metrics(&caller)?;
    Ok(([(CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text).into_response())
}

pub async fn images(State(state): State<ApiState>, By(caller): By) -> Json<Vec<ImageView>> {
    Json(state.service.daemon().images(&caller).await)
}

pub async fn pools(State(state): State<ApiState>, By(caller): By) -> Result<Json<Vec<PoolView>>, ApiError> {
    Ok(Json(state.service.daemon().pools(&caller)?))
}

pub async fn set_pool(
    State(state): State<ApiState>,
    By(caller): By,
    ImagePath(image): ImagePath,
    ApiJson(request): ApiJson<SetPoolRequest>,
) -> Result<Json<PoolView>, ApiError> {
    Ok(Json(state.service.daemon().set_pool(&caller, &image, request.runtime.as_ref(), request.size).await?))
}
