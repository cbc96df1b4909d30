//! `/v1/snapshots`, and what makes snapshots and copies of sessions.

use axum::extract::State;
use axum::{Extension, Json};
use hyper::StatusCode;
use shared_protocol::api::{
    CreateSnapshotRequest, ForkRequest, ForkView, OkView, SessionView, SnapshotList, SnapshotView,
};

use super::error::ApiError;
use super::extract::{By, JsonOrNothing, SessionPath, SnapshotPath};
use super::{ApiState, Created};

pub async fn create(
    State(state): State<ApiState>,
    By(caller): By,
    SessionPath(session): SessionPath,
    JsonOrNothing(request): JsonOrNothing<CreateSnapshotRequest>,
) -> Result<(StatusCode, Extension<Created>, Json<SnapshotView>), ApiError> {
    let view = state.service.snapshots().create(&caller, &session, request).await?;
    let created = Created { kind: "snapshot_id", id: view.id.to_string() };
    Ok((StatusCode::CREATED, Extension(created), Json(view)))
}

pub async fn list(State(state): State<ApiState>, By(caller): By) -> Result<Json<SnapshotList>, ApiError> {
    Ok(Json(SnapshotList { snapshots: state.service.snapshots().list(&caller) }))
}

pub async fn get(
    State(state): State<ApiState>,
    By(caller): By,
    SnapshotPath(id): SnapshotPath,
) -> Result<Json<SnapshotView>, ApiError> {
    Ok(Json(state.service.snapshots().get(&caller, &id)?))
}

pub async fn remove(
    State(state): State<ApiState>,
    By(caller): By,
    SnapshotPath(id): SnapshotPath,
) -> Result<Json<OkView>, ApiError> {
    state.service.snapshots().remove(&caller, &id).await?;
    Ok(Json(OkView::new()))
}

pub async fn fork(
    State(state): State<ApiState>,
    By(caller): By,
    SessionPath(session): SessionPath,
    JsonOrNothing(request): JsonOrNothing<ForkRequest>,
) -> Result<(StatusCode, Json<ForkView>), ApiError> {
    Ok((StatusCode::CREATED, Json(state.service.sessions().fork(&caller, &session, request).await?)))
}

pub async fn stop(
    State(state): State<ApiState>,
    By(caller): By,
    SessionPath(id): SessionPath,
) -> Result<Json<SessionView>, ApiError> {
    Ok(Json(state.service.sessions().stop(&caller, &id).await?))
}

pub async fn start(
    State(state): State<ApiState>,
    By(caller): By,
    SessionPath(id): SessionPath,
) -> Result<Json<SessionView>, ApiError> {
    Ok(Json(state.service.sessions().start(&caller, &id).await?))
}
