//! `…/fs/watch`: what changes below a directory, as events.

use axum::extract::State;
use axum::response::Response;
use hyper::{HeaderMap, Uri};
use shared_protocol::runner::WatchFrame;

use super::documents::{depth, path_or_workspace};
use crate::api::ApiState;
use crate::api::encode::{Format, Told, progress};
use crate::api::error::ApiError;
use crate::api::extract::{By, SessionPath, query};
use crate::service::files::{Changes, Place};

pub async fn watch(
    State(state): State<ApiState>,
    By(caller): By,
    SessionPath(id): SessionPath,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let query = query(&uri, &["path", "recursive"])?;
    let (path, depth) = (path_or_workspace(&query)?, depth(&query)?);
    let changes = state.service.files().watch(&caller, &Place::Session(id), &path, depth).await?;
    Ok(progress(changes, Format::wanted(&headers)))
}

impl Told for Changes {
    type Frame = WatchFrame;

    async fn next(&mut self) -> Option<WatchFrame> {
        Changes::next(self).await
    }
}
