//! `/v1/pools`: sandboxes started ahead.

use axum::Json;
use axum::extract::State;
use shared_protocol::api::{PoolView, SetPoolRequest};

use super::ApiState;
use super::error::ApiError;
use super::extract::{ApiJson, ImagePath};

pub async fn list(State(state): State<ApiState>) -> Json<Vec<PoolView>> {
    Json(state.sessions.pools())
}

pub async fn set(
    State(state): State<ApiState>,
    ImagePath(image): ImagePath,
    ApiJson(request): ApiJson<SetPoolRequest>,
) -> Result<Json<PoolView>, ApiError> {
    Ok(Json(state.sessions.set_pool(&image, request.runtime.as_ref(), request.size)?))
}
