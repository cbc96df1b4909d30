//! `GET` and `PUT …/archive?path=`: read a directory of the sandbox as a tar stream, and write one. The daemon only passes
//! the bytes on: the runner packs and unpacks inside the sandbox.

use axum::Json;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use hyper::{StatusCode, Uri};

use super::deliver;
use super::documents::path_parameter;
use crate::api::ApiState;
use crate::api::encode::archive_body;
use crate::api::error::ApiError;
use crate::api::extract::{By, PlacePath, query};

pub async fn get(
    State(state): State<ApiState>,
    By(caller): By,
    PlacePath(place): PlacePath,
    uri: Uri,
) -> Result<Response, ApiError> {
    let path = path_parameter(&query(&uri, &["path"])?)?;
    Ok(archive_body(state.service.files().pack(&caller, &place, &path).await?))
}

pub async fn put(
    State(state): State<ApiState>,
    By(caller): By,
    PlacePath(place): PlacePath,
    request: Request,
) -> Result<Response, ApiError> {
    let (head, body) = request.into_parts();
    let wrote = deliver(body, async |source| {
        let path = path_parameter(&query(&head.uri, &["path"])?)?;
        Ok::<_, ApiError>(state.service.files().unpack(&caller, &place, &path, source).await?)
    });
    Ok((StatusCode::CREATED, Json(wrote.await?)).into_response())
}
