//! `…/shells`: list, open, close and reset shells.

use axum::Json;
use axum::extract::State;
use hyper::StatusCode;
use shared_protocol::api::OkView;
use shared_protocol::runner::{OpenShellRequest, ShellView};

use crate::api::ApiState;
use crate::api::error::ApiError;
use crate::api::extract::{ApiJson, By, SessionPath, ShellPath};
use crate::service::shells::OpenShellSpec;

pub async fn list(
    State(state): State<ApiState>,
    By(caller): By,
    SessionPath(id): SessionPath,
) -> Result<Json<Vec<ShellView>>, ApiError> {
    Ok(Json(state.service.shells().list(&caller, &id).await?))
}

pub async fn open(
    State(state): State<ApiState>,
    By(caller): By,
    SessionPath(id): SessionPath,
    ApiJson(request): ApiJson<OpenShellRequest>,
) -> Result<(StatusCode, Json<ShellView>), ApiError> {
    let spec = state.checked(&caller, &id, OpenShellSpec::new(request))?;
    Ok((StatusCode::CREATED, Json(state.service.shells().open(&caller, &id, &spec).await?)))
}

pub async fn close(
    State(state): State<ApiState>,
    By(caller): By,
    SessionPath(id): SessionPath,
    ShellPath(shell): ShellPath,
) -> Result<Json<OkView>, ApiError> {
    state.service.shells().close(&caller, &id, &shell).await?;
    Ok(Json(OkView::new()))
}

pub async fn reset(
    State(state): State<ApiState>,
    By(caller): By,
    SessionPath(id): SessionPath,
    ShellPath(shell): ShellPath,
) -> Result<Json<ShellView>, ApiError> {
    Ok(Json(state.service.shells().reset(&caller, &id, &shell).await?))
}
