//! `POST …/run` and `…/run/stream`: run a program outside the shells. Its standard output and standard error stay separate.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use hyper::{HeaderMap, StatusCode};
use shared_protocol::api::{ApiRunRequest, DetachedView, RunReply};

use crate::api::ApiState;
use crate::api::encode::{Format, base64, stream};
use crate::api::error::ApiError;
use crate::api::extract::{ApiJson, By, SessionPath};
use crate::service::commands::{CollectedRun, Started};

pub async fn run(
    State(state): State<ApiState>,
    By(caller): By,
    SessionPath(id): SessionPath,
    ApiJson(request): ApiJson<ApiRunRequest>,
) -> Result<Response, ApiError> {
    let commands = state.service.commands();
    let spec = state.checked(&caller, &id, commands.check_run(request))?;
    match commands.run(&caller, &id, &spec).await? {
        Started::Detached(exec_id) => Ok((StatusCode::ACCEPTED, Json(DetachedView { exec_id })).into_response()),
        Started::Ended(run) => Ok(Json(reply(run)).into_response()),
    }
}

pub async fn run_stream(
    State(state): State<ApiState>,
    By(caller): By,
    SessionPath(id): SessionPath,
    headers: HeaderMap,
    ApiJson(request): ApiJson<ApiRunRequest>,
) -> Result<Response, ApiError> {
    let commands = state.service.commands();
    let spec = state.checked(&caller, &id, commands.check_run_stream(request))?;
    Ok(stream(commands.stream_run(&caller, &id, &spec).await?, Format::wanted(&headers)))
}

fn reply(run: CollectedRun) -> RunReply {
    RunReply {
        done: run.done,
        stdout: run.stdout.text,
        stderr: run.stderr.text,
        stdout_base64: run.stdout.exact.map(base64),
        stderr_base64: run.stderr.exact.map(base64),
    }
}
