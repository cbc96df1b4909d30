//! `POST …/input`, `…/signal` and `…/resize`: act on a shell's terminal and its foreground program.

use axum::Json;
use axum::extract::State;
use shared_protocol::api::OkView;
use shared_protocol::runner::{InputRequest, ResizeRequest, SignalRequest};

use crate::api::ApiState;
use crate::api::error::ApiError;
use crate::api::extract::{ApiJson, By, SessionPath};
use crate::service::shells::{InputSpec, ResizeSpec, SignalSpec};

pub async fn input(
    State(state): State<ApiState>,
    By(caller): By,
    SessionPath(id): SessionPath,
    ApiJson(request): ApiJson<InputRequest>,
) -> Result<Json<OkView>, ApiError> {
    let spec = state.checked(&caller, &id, InputSpec::new(request))?;
    state.service.shells().input(&caller, &id, &spec).await?;
    Ok(Json(OkView::new()))
}

pub async fn signal(
    State(state): State<ApiState>,
    By(caller): By,
    SessionPath(id): SessionPath,
    ApiJson(request): ApiJson<SignalRequest>,
) -> Result<Json<OkView>, ApiError> {
    let spec = state.checked(&caller, &id, SignalSpec::new(request))?;
    state.service.shells().signal(&caller, &id, &spec).await?;
    Ok(Json(OkView::new()))
}

pub async fn resize(
    State(state): State<ApiState>,
    By(caller): By,
    SessionPath(id): SessionPath,
    ApiJson(request): ApiJson<ResizeRequest>,
) -> Result<Json<OkView>, ApiError> {
    let spec = state.checked(&caller, &id, ResizeSpec::new(request))?;
    state.service.shells().resize(&caller, &id, &spec).await?;
    Ok(Json(OkView::new()))
}
