//! `…/fs`: looking at and changing what is in the sandbox. Small files as JSON; larger ones go through `files`.
//!
//! Each call is a function over an `Activity`, so that it serves a session and a workspace alike.

use axum::Json;
use axum::extract::{FromRequest as _, Request, State};
use axum::response::{IntoResponse, Response};
use hyper::{Method, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use shared_protocol::api::{FsWriteRequest, MkdirRequest, MoveRequest, OkView};
use shared_protocol::runner::{FileView, ListView, WroteView, decode_payload};

use super::ApiState;
use super::alive::in_session;
use super::error::ApiError;
use super::extract::ApiJson;
use super::fs_read;
use super::target::{Params, checked_path, invalid, session_id};
use crate::runner_client::{FileCall, Outgoing, RunnerError};
use crate::session::Activity;

/// Entries of a listing; the runner gives at most 10,000.
const MAX_ENTRIES: usize = 10_000;

/// Of a path or a link's target in a view.
const MAX_PATH_BYTES: usize = 64 << 10;

macro_rules! of_a_session {
    ($($handler:ident => $function:path),* $(,)?) => {$(
        pub async fn $handler(State(state): State<ApiState>, request: Request) -> Result<Response, ApiError> {
            let activity = state.sessions.get(&session_id(request.uri())?)?.begin().await?;
            $function(&state, activity, request).await
        }
    )*};
}

of_a_session! {
    read => fs_read::read_in,
    write => write_in,
    list => list_in,
    stat => stat_in,
    mkdir => mkdir_in,
    rename => rename_in,
    delete => delete_in,
}

pub async fn write_in(state: &ApiState, activity: Activity, request: Request) -> Result<Response, ApiError> {
    let ApiJson(request) = ApiJson::<FsWriteRequest>::from_request(request, &()).await?;
    let path = checked_path("path", request.path.into_bytes())?;
    let content = match (request.text, request.content_base64) {
        (None, None) => return Err(invalid("give text or content_base64; an empty one makes an empty file")),
        (Some(_), Some(_)) => return Err(invalid("give text or content_base64, not both")),
        (text, encoded) => decode_payload("content", text, encoded).map_err(ApiError)?.unwrap_or_default(),
    };
    let call = FileCall::new(Method::PUT, "files").with("path", &path).with_body(Outgoing::full(content));
    let WroteView { bytes } = document(&activity, call).await?;
    state.metrics.bytes_in(bytes);
    Ok(Json(OkView::new()).into_response())
}

pub async fn list_in(_: &ApiState, activity: Activity, request: Request) -> Result<Response, ApiError> {
    let params = Params::parse(request.uri(), &["path", "recursive"])?;
    // The workspace itself, where none is named.
    let path = if params.get("path").is_some() { params.path("path")? } else { b".".to_vec() };
    let call = FileCall::new(Method::GET, "fs/list").with("path", &path);
    let list: ListView = document(&activity, call.with_flag("recursive", params.flag("recursive")?)).await?;
    if list.entries.len() > MAX_ENTRIES {
        return Err(RunnerError::hostile("a listing has more entries than a runner gives").into());
    }
    for entry in &list.entries {
        check(entry)?;
    }
    Ok(Json(list).into_response())
}

pub async fn stat_in(_: &ApiState, activity: Activity, request: Request) -> Result<Response, ApiError> {
    let params = Params::parse(request.uri(), &["path", "follow"])?;
    let mut call = FileCall::new(Method::GET, "fs/stat").with("path", &params.path("path")?);
    if params.get("follow").is_some() {
        call = call.with("follow", if params.flag("follow")? { b"1" } else { b"0" });
    }
    view(&activity, call, StatusCode::OK).await
}

pub async fn mkdir_in(_: &ApiState, activity: Activity, request: Request) -> Result<Response, ApiError> {
    let ApiJson(request) = ApiJson::<MkdirRequest>::from_request(request, &()).await?;
    let path = checked_path("path", request.path.into_bytes())?;
    let call = FileCall::new(Method::POST, "fs/mkdir").with("path", &path).with_flag("parents", request.parents);
    view(&activity, call, StatusCode::CREATED).await
}

pub async fn rename_in(_: &ApiState, activity: Activity, request: Request) -> Result<Response, ApiError> {
    let ApiJson(request) = ApiJson::<MoveRequest>::from_request(request, &()).await?;
    let from = checked_path("from", request.from.into_bytes())?;
    let to = checked_path("to", request.to.into_bytes())?;
    let call = FileCall::new(Method::POST, "fs/move").with("from", &from).with("to", &to);
    view(&activity, call.with_flag("overwrite", request.overwrite), StatusCode::OK).await
}

pub async fn delete_in(_: &ApiState, activity: Activity, request: Request) -> Result<Response, ApiError> {
    let params = Params::parse(request.uri(), &["path", "recursive"])?;
    let call = FileCall::new(Method::DELETE, "fs").with("path", &params.path("path")?);
    let done: OkView = document(&activity, call.with_flag("recursive", params.flag("recursive")?)).await?;
    Ok(Json(done).into_response())
}

pub(super) async fn document<T: DeserializeOwned>(activity: &Activity, call: FileCall) -> Result<T, ApiError> {
    in_session(activity, async { activity.runner().forward(call).await?.document().await }).await
}

async fn view(activity: &Activity, call: FileCall, status: StatusCode) -> Result<Response, ApiError> {
    let view: FileView = document(activity, call).await?;
    check(&view)?;
    Ok(answer(status, view))
}

fn answer(status: StatusCode, view: impl Serialize) -> Response {
    (status, Json(view)).into_response()
}

fn check(view: &FileView) -> Result<(), ApiError> {
    let texts = [Some(&view.path), view.path_base64.as_ref(), view.symlink_target.as_ref()];
    if texts.into_iter().flatten().any(|text| text.len() > MAX_PATH_BYTES) {
        return Err(RunnerError::hostile("a path is longer than a path can be").into());
    }
    Ok(())
}
