//! `POST …/runs/{exec_id}/stdin` and `…/stdin/close`: input for the open standard input of a run.

use axum::Json;
use axum::extract::{Request, State};
use hyper::Uri;
use shared_protocol::runner::StdinView;

use crate::api::ApiState;
use crate::api::error::ApiError;
use crate::api::extract::{By, ExecPath, SessionPath, query};
use crate::api::files::deliver;
use crate::service::commands::AfterInput;
use crate::service::files::FileSource;

/// Writes a request's body to the program, as fast as the program reads.
pub async fn write(
    State(state): State<ApiState>,
    By(caller): By,
    SessionPath(id): SessionPath,
    ExecPath(exec_id): ExecPath,
    request: Request,
) -> Result<Json<StdinView>, ApiError> {
    let (head, body) = request.into_parts();
    let written = deliver(body, async |source| {
        let close = query(&head.uri, &["close"])?.flag("close")?.unwrap_or(false);
        let after = if close { AfterInput::Close } else { AfterInput::KeepOpen };
        Ok::<_, ApiError>(state.service.commands().write_stdin(&caller, &id, &exec_id, source, after).await?)
    });
    Ok(Json(written.await?))
}

pub async fn close(
    State(state): State<ApiState>,
    By(caller): By,
    SessionPath(id): SessionPath,
    ExecPath(exec_id): ExecPath,
    uri: Uri,
) -> Result<Json<StdinView>, ApiError> {
    query(&uri, &[])?;
    let commands = state.service.commands();
    Ok(Json(commands.write_stdin(&caller, &id, &exec_id, FileSource::empty(), AfterInput::Close).await?))
}
