//! `…/fs`: reads and changes files with JSON documents. The same handlers serve sessions and workspaces.

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use hyper::{StatusCode, Uri};
use shared_protocol::api::{FsWriteRequest, MkdirRequest, MoveRequest, OkView};
use shared_protocol::query::Query;
use shared_protocol::runner::{FileView, ListView};

use crate::api::ApiState;
use crate::api::encode::file_document;
use crate::api::error::ApiError;
use crate::api::extract::{ApiJson, By, PlacePath, query};
use crate::service::files::{Depth, LastLink, OnExisting, Parents, SandboxPath, SmallFile};

pub async fn read(
    State(state): State<ApiState>,
    By(caller): By,
    PlacePath(place): PlacePath,
    uri: Uri,
) -> Result<Response, ApiError> {
    let query = query(&uri, &["path", "max_bytes"])?;
    let path = path_parameter(&query)?;
    let max_bytes = query.number("max_bytes")?.unwrap_or(u64::MAX);
    let content = state.service.files().read(&caller, &place, &path, /* range */ None).await?;
    file_document(&path, content, max_bytes)
}

pub async fn write(
    State(state): State<ApiState>,
    By(caller): By,
    PlacePath(place): PlacePath,
    ApiJson(request): ApiJson<FsWriteRequest>,
) -> Result<Json<OkView>, ApiError> {
    let file = state.checked_in(&caller, &place, SmallFile::new(request))?;
    state.service.files().write_small(&caller, &place, file).await?;
    Ok(Json(OkView::new()))
}

pub async fn list(
    State(state): State<ApiState>,
    By(caller): By,
    PlacePath(place): PlacePath,
    uri: Uri,
) -> Result<Json<ListView>, ApiError> {
    let query = query(&uri, &["path", "recursive"])?;
    let path = path_or_workspace(&query)?;
    Ok(Json(state.service.files().list(&caller, &place, &path, depth(&query)?).await?))
}

pub async fn stat(
    State(state): State<ApiState>,
    By(caller): By,
    PlacePath(place): PlacePath,
    uri: Uri,
) -> Result<Json<FileView>, ApiError> {
    let query = query(&uri, &["path", "follow"])?;
    let path = path_parameter(&query)?;
    let last = if query.flag("follow")?.unwrap_or(true) { LastLink::Follow } else { LastLink::Keep };
    Ok(Json(state.service.files().stat(&caller, &place, &path, last).await?))
}

pub async fn mkdir(
    State(state): State<ApiState>,
    By(caller): By,
    PlacePath(place): PlacePath,
    ApiJson(request): ApiJson<MkdirRequest>,
) -> Result<(StatusCode, Json<FileView>), ApiError> {
    let path = state.checked_in(&caller, &place, SandboxPath::new("path", request.path))?;
    let parents = if request.parents { Parents::Make } else { Parents::MustExist };
    let view = state.service.files().make_directory(&caller, &place, &path, parents).await?;
    Ok((StatusCode::CREATED, Json(view)))
}

pub async fn rename(
    State(state): State<ApiState>,
    By(caller): By,
    PlacePath(place): PlacePath,
    ApiJson(request): ApiJson<MoveRequest>,
) -> Result<Json<FileView>, ApiError> {
    let from = state.checked_in(&caller, &place, SandboxPath::new("from", request.from))?;
    let to = state.checked_in(&caller, &place, SandboxPath::new("to", request.to))?;
    let existing = if request.overwrite { OnExisting::Replace } else { OnExisting::Refuse };
    Ok(Json(state.service.files().rename(&caller, &place, &from, &to, existing).await?))
}

pub async fn delete(
    State(state): State<ApiState>,
    By(caller): By,
    PlacePath(place): PlacePath,
    uri: Uri,
) -> Result<Json<OkView>, ApiError> {
    let query = query(&uri, &["path", "recursive"])?;
    let path = path_parameter(&query)?;
    state.service.files().delete(&caller, &place, &path, depth(&query)?).await?;
    Ok(Json(OkView::new()))
}

/// The required parameter `path`.
pub(super) fn path_parameter(query: &Query) -> Result<SandboxPath, ApiError> {
    Ok(SandboxPath::new("the parameter path", query.path("path")?)?)
}

/// The parameter `path`, which is the workspace if it is absent.
pub(super) fn path_or_workspace(query: &Query) -> Result<SandboxPath, ApiError> {
    if query.get("path").is_some() { path_parameter(query) } else { Ok(SandboxPath::workspace()) }
}

pub(super) fn depth(query: &Query) -> Result<Depth, ApiError> {
    let is_recursive = query.flag("recursive")?.unwrap_or(false);
    Ok(if is_recursive { Depth::Recursive } else { Depth::Flat })
}
