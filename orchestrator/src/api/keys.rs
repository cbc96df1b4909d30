//! `/v1/keys`: the API keys of the daemon. Only admins manage them.

use axum::extract::State;
use axum::{Extension, Json};
use hyper::StatusCode;
use shared_protocol::api::{CreateKeyRequest, KeyList, NewKeyView, OkView};

use super::error::ApiError;
use super::extract::{ApiJson, By, KeyPath};
use super::{ApiState, Created};

pub async fn list(State(state): State<ApiState>, By(caller): By) -> Result<Json<KeyList>, ApiError> {
    Ok(Json(KeyList { keys: state.service.keys().list(&caller)? }))
}

pub async fn create(
    State(state): State<ApiState>,
    By(caller): By,
    ApiJson(request): ApiJson<CreateKeyRequest>,
) -> Result<(StatusCode, Extension<Created>, Json<NewKeyView>), ApiError> {
    let made = state.service.keys().create(&caller, request).await?;
    let created = Created { kind: "key_name", id: made.key.name.to_string() };
    Ok((StatusCode::CREATED, Extension(created), Json(made)))
}

pub async fn remove(
    State(state): State<ApiState>,
    By(caller): By,
    KeyPath(name): KeyPath,
) -> Result<Json<OkView>, ApiError> {
    state.service.keys().remove(&caller, &name).await?;
    Ok(Json(OkView::new()))
}
