//! `GET`, `HEAD` and `PUT …/files/{path}`: the raw bytes of a file of any size, passed on as they arrive.

use axum::Json;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use hyper::{HeaderMap, Method, StatusCode, Uri};

use super::deliver;
use crate::api::ApiState;
use crate::api::encode::{file_body, file_head};
use crate::api::error::ApiError;
use crate::api::extract::{By, FilePath, PlacePath, byte_range, query};
use crate::service::files::FileMode;

/// Answers `GET` with the file's bytes, or with the part that `Range` names. Answers `HEAD` with the headers alone: the
/// runner has no such call, so the daemon asks for the file and drops its content.
pub async fn get(
    State(state): State<ApiState>,
    By(caller): By,
    PlacePath(place): PlacePath,
    FilePath(path): FilePath,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    query(&uri, &[])?;
    let is_head = method == Method::HEAD;
    let range = if is_head { None } else { byte_range(&headers)? };
    let content = state.service.files().read(&caller, &place, &path, range).await?;
    Ok(if is_head { file_head(&path, &content) } else { file_body(&path, content) })
}

/// Writes a request's body to a file: all of it, or nothing.
pub async fn put(
    State(state): State<ApiState>,
    By(caller): By,
    PlacePath(place): PlacePath,
    path: Result<FilePath, ApiError>,
    request: Request,
) -> Result<Response, ApiError> {
    let (head, body) = request.into_parts();
    let wrote = deliver(body, async |source| {
        let FilePath(path) = path?;
        let mode = query(&head.uri, &["mode"])?.mode("mode")?.map(FileMode::new).transpose()?;
        Ok::<_, ApiError>(state.service.files().write(&caller, &place, &path, mode, source).await?)
    });
    Ok((StatusCode::CREATED, Json(wrote.await?)).into_response())
}
