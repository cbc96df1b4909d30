//! `/v1/images`: what a session can be created from.

use axum::Json;
use axum::extract::State;
use shared_protocol::api::ImageView;

use super::ApiState;

pub async fn list(State(state): State<ApiState>) -> Json<Vec<ImageView>> {
    Json(state.sessions.images())
}
