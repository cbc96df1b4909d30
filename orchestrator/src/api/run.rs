//! `POST …/run` and `…/run/stream`: a program beside the shells, its two outputs kept apart.

use std::time::Instant;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use hyper::{HeaderMap, StatusCode};
use shared_protocol::api::{ApiRunRequest, DetachedView, RunDone, RunReply};
use shared_protocol::runner::{ExecOutcome, RunRequest, Stream};

use super::ApiState;
use super::alive::in_session;
use super::detached::Detached;
use super::error::ApiError;
use super::events::Format;
use super::exec::{output_limit, timeout};
use super::exec_stream::{Follow, stream};
use super::extract::{ApiJson, SessionPath};
use super::output::{Collector, Rendering};
use super::target::invalid;
use crate::config::ExecConfig;
use crate::runner_client::{Frame, FrameStream, RunnerError};

pub async fn run(
    State(state): State<ApiState>,
    SessionPath(id): SessionPath,
    ApiJson(request): ApiJson<ApiRunRequest>,
) -> Result<Response, ApiError> {
    let began = Instant::now();
    let activity = state.sessions.get(&id)?.begin().await?;
    let (limit, detach) = (output_limit(request.max_output_bytes, &state.config.exec), request.detach);
    let request = to_runner(request, &state.config.exec)?;
    if detach {
        let stream = in_session(&activity, activity.runner().run(&request)).await?;
        let view = DetachedView { exec_id: stream.exec_id().clone() };
        Detached { metrics: state.metrics.clone(), sets_cwd: false }.follow(&activity, view.exec_id.clone());
        return Ok((StatusCode::ACCEPTED, axum::Json(view)).into_response());
    }
    let work = async { collect(activity.runner().run(&request).await?, limit).await };
    let (outcome, stdout, stderr) = in_session(&activity, work).await?;
    state.metrics.exec_finished(outcome.kind, began.elapsed().as_secs_f64());
    state.metrics.bytes_out(outcome.output_bytes);
    Ok(axum::Json(reply(outcome, stdout, stderr)).into_response())
}

pub async fn run_stream(
    State(state): State<ApiState>,
    SessionPath(id): SessionPath,
    headers: HeaderMap,
    ApiJson(request): ApiJson<ApiRunRequest>,
) -> Result<Response, ApiError> {
    let handle = state.sessions.get(&id)?;
    let activity = handle.begin().await?;
    if request.detach {
        return Err(invalid("detach has no stream; use run, and follow the program at execs/{exec_id}"));
    }
    let request = to_runner(request, &state.config.exec)?;
    let frames = in_session(&activity, activity.runner().run(&request)).await?;
    let follow = Follow { format: Format::wanted(&headers), sets_cwd: false, counts: Some(state.metrics.clone()) };
    Ok(stream(handle, activity, frames, follow))
}

fn to_runner(request: ApiRunRequest, config: &ExecConfig) -> Result<RunRequest, ApiError> {
    Ok(RunRequest {
        argv: request.argv,
        exec_id: request.exec_id,
        stdin: request.stdin,
        stdin_base64: request.stdin_base64,
        env: request.env,
        cwd: request.cwd,
        timeout_ms: timeout(request.timeout_ms, config)?,
    })
}

async fn collect(mut frames: FrameStream, limit: usize) -> Result<(ExecOutcome, Collector, Collector), RunnerError> {
    let (mut stdout, mut stderr) = (Collector::new(limit), Collector::new(limit));
    while let Some(frame) = frames.next().await? {
        match frame {
            Frame::Output { stream: Stream::Stderr, data, .. } => stderr.push(data.as_bytes()),
            Frame::Output { data, .. } => stdout.push(data.as_bytes()),
            // Whose bytes they were is not known any more.
            Frame::Gap { bytes, .. } => stdout.skip(bytes),
            Frame::Exit(outcome) => return Ok((outcome, stdout, stderr)),
            Frame::Started { .. } | Frame::AwaitingInput | Frame::Error(_) => {}
        }
    }
    Err(RunnerError::Lost("the stream ended before the program".to_owned()))
}

fn reply(outcome: ExecOutcome, stdout: Collector, stderr: Collector) -> RunReply {
    let (stdout, stderr) = (stdout.render(Rendering::AsItCame), stderr.render(Rendering::AsItCame));
    RunReply {
        done: RunDone {
            exec_id: outcome.exec_id,
            kind: outcome.kind,
            exit_code: outcome.exit_code,
            signal: outcome.signal,
            output_bytes: outcome.output_bytes,
            truncated: stdout.omitted + stderr.omitted > 0,
            timed_out: outcome.timed_out,
            oom_killed: outcome.oom_killed,
            duration_ms: outcome.duration_ms,
            reason: outcome.reason,
        },
        stdout: stdout.text,
        stderr: stderr.text,
        stdout_base64: stdout.base64,
        stderr_base64: stderr.base64,
    }
}
