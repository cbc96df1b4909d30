//! `/v1/workspaces`: directories that outlive sessions.

use axum::Json;
use axum::extract::State;
use shared_protocol::api::{OkView, WorkspaceList};

use super::ApiState;
use super::error::ApiError;
use super::extract::{QueryPairs, WorkspacePath, unknown_parameter};

pub async fn list(State(state): State<ApiState>) -> Result<Json<WorkspaceList>, ApiError> {
    Ok(Json(WorkspaceList { workspaces: state.workspaces.list().await? }))
}

pub async fn delete(
    State(state): State<ApiState>,
    WorkspacePath(id): WorkspacePath,
    QueryPairs(pairs): QueryPairs,
) -> Result<Json<OkView>, ApiError> {
    let mut force = false;
    for (name, value) in &pairs {
        force = match (name.as_str(), value.as_str()) {
            ("force", "1" | "true") => true,
            ("force", "0" | "false") => false,
            ("force", _) => return Err(ApiError::invalid("the parameter force must be 1, 0, true or false")),
            (other, _) => return Err(unknown_parameter(other, "force")),
        };
    }
    state.workspaces.delete(&id, force).await?;
    Ok(Json(OkView::new()))
}
