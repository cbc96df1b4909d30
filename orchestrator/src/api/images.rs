//! `/v1/images/…`: images of the `local` runtime. A pull or a commit is a stream of events, which goes on in the daemon if the client leaves.

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use hyper::HeaderMap;
use shared_protocol::api::{CommitImageRequest, ImageDetailsView, PullFrame, PullImageRequest, RemovedImagesView};

use super::ApiState;
use super::encode::{Format, Told, progress};
use super::error::ApiError;
use super::extract::{ApiJson, By, ImagePath};
use crate::service::{PullEvent, PullStream};

pub async fn describe(
    State(state): State<ApiState>,
    By(caller): By,
    ImagePath(image): ImagePath,
) -> Result<Json<ImageDetailsView>, ApiError> {
    Ok(Json(state.service.images().describe(&caller, &image).await?))
}

pub async fn remove(
    State(state): State<ApiState>,
    By(caller): By,
    ImagePath(image): ImagePath,
) -> Result<Json<RemovedImagesView>, ApiError> {
    Ok(Json(state.service.images().remove(&caller, &image).await?))
}

pub async fn prune(State(state): State<ApiState>, By(caller): By) -> Result<Json<RemovedImagesView>, ApiError> {
    Ok(Json(state.service.images().prune(&caller).await?))
}

pub async fn pull(
    State(state): State<ApiState>,
    By(caller): By,
    headers: HeaderMap,
    ApiJson(request): ApiJson<PullImageRequest>,
) -> Result<Response, ApiError> {
    let pull = state.service.images().pull(&caller, &request).await?;
    Ok(progress(pull, Format::wanted(&headers)))
}

pub async fn commit(
    State(state): State<ApiState>,
    By(caller): By,
    headers: HeaderMap,
    ApiJson(request): ApiJson<CommitImageRequest>,
) -> Result<Response, ApiError> {
    let commit = state.service.images().commit(&caller, &request).await?;
    Ok(progress(commit, Format::wanted(&headers)))
}

impl Told for PullStream {
    type Frame = PullFrame;

    async fn next(&mut self) -> Option<PullFrame> {
        Some(match self.next().await? {
            PullEvent::Progress(progress) => PullFrame::Progress(progress),
            PullEvent::Done(image) => PullFrame::Done(*image),
            PullEvent::Failed(error) => PullFrame::Error(ApiError::from(error).0),
        })
    }
}
