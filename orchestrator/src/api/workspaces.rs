//! `/v1/workspaces`: directories that outlive sessions, and their files while no session runs.

use axum::Json;
use axum::extract::{Request, State};
use axum::response::Response;
use shared_protocol::api::{OkView, WorkspaceList};

use super::error::ApiError;
use super::extract::{QueryPairs, WorkspacePath, unknown_parameter};
use super::{ApiState, fs, fs_read, upload};

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

/// The calls of a session's files, in a sandbox that has the workspace mounted.
macro_rules! in_workspace {
    ($($handler:ident => $function:path),* $(,)?) => {$(
        pub async fn $handler(
            State(state): State<ApiState>,
            WorkspacePath(id): WorkspacePath,
            request: Request,
        ) -> Result<Response, ApiError> {
            let activity = state.workspaces.begin(&id).await?;
            $function(&state, activity, request).await
        }
    )*};
}

in_workspace! {
    list_files => fs::list_in,
    read_file => fs_read::read_in,
    write_file => fs::write_in,
    upload_files => upload::upload_in,
}
