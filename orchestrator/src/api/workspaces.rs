//! `/v1/workspaces`: directories that outlive sessions. The handlers in `files` serve their content.

use axum::Json;
use axum::extract::State;
use hyper::Uri;
use shared_protocol::api::{OkView, WorkspaceList};

use super::ApiState;
use super::error::ApiError;
use super::extract::{By, WorkspacePath, query};

pub async fn list(State(state): State<ApiState>, By(caller): By) -> Result<Json<WorkspaceList>, ApiError> {
    Ok(Json(WorkspaceList { workspaces: state.service.list_workspaces(&caller).await? }))
}

pub async fn create(
    State(state): State<ApiState>,
    By(caller): By,
    WorkspacePath(id): WorkspacePath,
    uri: Uri,
) -> Result<Json<OkView>, ApiError> {
    query(&uri, &[])?;
    state.service.create_workspace(&caller, &id).await?;
    Ok(Json(OkView::new()))
}

pub async fn delete(
    State(state): State<ApiState>,
    By(caller): By,
    WorkspacePath(id): WorkspacePath,
    uri: Uri,
) -> Result<Json<OkView>, ApiError> {
    let force = query(&uri, &["force"])?.flag("force")?.unwrap_or(false);
    state.service.delete_workspace(&caller, &id, force).await?;
    Ok(Json(OkView::new()))
}
