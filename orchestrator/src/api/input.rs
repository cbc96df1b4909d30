//! `POST …/input`, `…/signal` and `…/resize`: to the program in the foreground of a shell.

use axum::Json;
use axum::extract::State;
use shared_protocol::api::OkView;
use shared_protocol::runner::{InputRequest, ResizeRequest, SignalRequest};

use super::ApiState;
use super::alive::in_session;
use super::error::ApiError;
use super::extract::{ApiJson, SessionPath};

pub async fn input(
    State(state): State<ApiState>,
    SessionPath(id): SessionPath,
    ApiJson(request): ApiJson<InputRequest>,
) -> Result<Json<OkView>, ApiError> {
    let activity = state.sessions.get(&id)?.begin().await?;
    in_session(&activity, activity.runner().input(&request)).await?;
    let count = request.data.as_ref().or(request.data_base64.as_ref()).map_or(0, String::len);
    state.metrics.bytes_in(count as u64);
    Ok(Json(OkView::new()))
}

pub async fn signal(
    State(state): State<ApiState>,
    SessionPath(id): SessionPath,
    ApiJson(request): ApiJson<SignalRequest>,
) -> Result<Json<OkView>, ApiError> {
    let activity = state.sessions.get(&id)?.begin().await?;
    in_session(&activity, activity.runner().signal(&request)).await?;
    Ok(Json(OkView::new()))
}

pub async fn resize(
    State(state): State<ApiState>,
    SessionPath(id): SessionPath,
    ApiJson(request): ApiJson<ResizeRequest>,
) -> Result<Json<OkView>, ApiError> {
    let activity = state.sessions.get(&id)?.begin().await?;
    in_session(&activity, activity.runner().resize(&request)).await?;
    Ok(Json(OkView::new()))
}
