//! `…/shells`: more shells than `main`.

use axum::Json;
use axum::extract::State;
use hyper::{StatusCode, Uri};
use shared_protocol::api::OkView;
use shared_protocol::runner::{OpenShellRequest, ShellView};

use super::ApiState;
use super::alive::in_session;
use super::error::ApiError;
use super::extract::{ApiJson, SessionPath};
use super::target::shell_name;

pub async fn list(
    State(state): State<ApiState>,
    SessionPath(id): SessionPath,
) -> Result<Json<Vec<ShellView>>, ApiError> {
    let activity = state.sessions.get(&id)?.begin().await?;
    Ok(Json(in_session(&activity, activity.runner().shells()).await?))
}

pub async fn open(
    State(state): State<ApiState>,
    SessionPath(id): SessionPath,
    ApiJson(request): ApiJson<OpenShellRequest>,
) -> Result<(StatusCode, Json<ShellView>), ApiError> {
    let activity = state.sessions.get(&id)?.begin().await?;
    let view = in_session(&activity, activity.runner().open_shell(&request)).await?;
    Ok((StatusCode::CREATED, Json(view)))
}

pub async fn close(
    State(state): State<ApiState>,
    SessionPath(id): SessionPath,
    uri: Uri,
) -> Result<Json<OkView>, ApiError> {
    let name = shell_name(&uri)?;
    let activity = state.sessions.get(&id)?.begin().await?;
    in_session(&activity, activity.runner().close_shell(&name)).await?;
    Ok(Json(OkView::new()))
}

pub async fn reset(
    State(state): State<ApiState>,
    SessionPath(id): SessionPath,
    uri: Uri,
) -> Result<Json<ShellView>, ApiError> {
    let name = shell_name(&uri)?;
    let activity = state.sessions.get(&id)?.begin().await?;
    Ok(Json(in_session(&activity, activity.runner().reset_shell(&name)).await?))
}
