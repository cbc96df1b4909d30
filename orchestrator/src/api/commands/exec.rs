//! `POST …/exec` and `…/exec/stream`: run a command in a shell.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use hyper::{HeaderMap, StatusCode};
use shared_protocol::SessionId;
use shared_protocol::api::{ApiExecRequest, CompactFacts, DetachedView, ExecReply};

use crate::api::ApiState;
use crate::api::encode::{Format, base64, stream};
use crate::api::error::ApiError;
use crate::api::extract::{ApiJson, By, SessionPath};
use crate::service::commands::{CollectedExec, Started};

pub async fn exec(
    State(state): State<ApiState>,
    By(caller): By,
    SessionPath(id): SessionPath,
    ApiJson(request): ApiJson<ApiExecRequest>,
) -> Result<Response, ApiError> {
    let commands = state.service.commands();
    let spec = state.checked(&caller, &id, commands.check_exec(request))?;
    match commands.exec(&caller, &id, &spec).await? {
        Started::Detached(exec_id) => Ok((StatusCode::ACCEPTED, Json(DetachedView { exec_id })).into_response()),
        Started::Ended(exec) => Ok(Json(reply(&id, exec)).into_response()),
    }
}

pub async fn exec_stream(
    State(state): State<ApiState>,
    By(caller): By,
    SessionPath(id): SessionPath,
    headers: HeaderMap,
    ApiJson(request): ApiJson<ApiExecRequest>,
) -> Result<Response, ApiError> {
    let commands = state.service.commands();
    let spec = state.checked(&caller, &id, commands.check_exec_stream(request))?;
    Ok(stream(commands.stream_exec(&caller, &id, &spec).await?, Format::wanted(&headers)))
}

fn reply(id: &SessionId, exec: CollectedExec) -> ExecReply {
    let facts = exec.compact.as_ref().map(|compact| CompactFacts {
        original_bytes: exec.done.output_bytes,
        original_tokens: compact.estimated_tokens_original,
        tokens: compact.estimated_tokens_kept,
        is_cut: compact.is_cut,
        whole_output: format!("/v1/sessions/{id}/execs/{}", exec.done.exec_id),
    });
    let (stdout, stderr) = exec.apart.map(|(stdout, stderr)| (stdout.text, stderr.text)).unzip();
    ExecReply {
        done: exec.done,
        output: exec.compact.map_or(exec.output.text, |compact| compact.text),
        output_base64: exec.output.exact.map(base64),
        stdout,
        stderr,
        omitted_bytes: exec.output.omitted,
        compact: facts,
    }
}
