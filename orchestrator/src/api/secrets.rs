//! `/v1/secrets`: the secrets of the caller, without their values.

use axum::Json;
use axum::extract::State;
use shared_protocol::api::{OkView, SecretList, SecretView, SetSecretRequest};

use super::ApiState;
use super::error::ApiError;
use super::extract::{ApiJson, By, SecretPath};

pub async fn list(State(state): State<ApiState>, By(caller): By) -> Result<Json<SecretList>, ApiError> {
    Ok(Json(SecretList { secrets: state.service.secrets().list(&caller) }))
}

pub async fn set(
    State(state): State<ApiState>,
    By(caller): By,
    SecretPath(name): SecretPath,
    ApiJson(request): ApiJson<SetSecretRequest>,
) -> Result<Json<SecretView>, ApiError> {
    Ok(Json(state.service.secrets().set(&caller, &name, request).await?))
}

pub async fn remove(
    State(state): State<ApiState>,
    By(caller): By,
    SecretPath(name): SecretPath,
) -> Result<Json<OkView>, ApiError> {
    state.service.secrets().remove(&caller, &name).await?;
    Ok(Json(OkView::new()))
}
