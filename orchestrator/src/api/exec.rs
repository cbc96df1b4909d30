//! `POST …/exec`: a command in a shell, answered when it has ended, with its output within bounds. With `detach`, answered at
//! once.
//!
//! A timeout is an answer like any other. When the client goes away this ends at once, and the command goes on.

use std::time::Instant;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use hyper::StatusCode;
use shared_protocol::ShellName;
use shared_protocol::api::{ApiExecRequest, DetachedView, ExecDone, ExecReply};
use shared_protocol::runner::{ExecOutcome, ExecRequest, MAX_ENDS_BYTES, Stream, StreamMode};

use super::ApiState;
use super::alive::in_session;
use super::detached::Detached;
use super::error::ApiError;
use super::extract::{ApiJson, SessionPath};
use super::output::{Collector, Rendering};
use super::target::invalid;
use crate::config::ExecConfig;
use crate::runner_client::{Frame, FrameStream, RunnerError};

pub async fn exec(
    State(state): State<ApiState>,
    SessionPath(id): SessionPath,
    ApiJson(request): ApiJson<ApiExecRequest>,
) -> Result<Response, ApiError> {
    let began = Instant::now();
    let handle = state.sessions.get(&id)?;
    let activity = handle.begin().await?;
    let mut asked = Asked::new(request, &state.config.exec)?;
    if asked.detach {
        let stream = in_session(&activity, activity.runner().exec(&asked.request)).await?;
        let view = DetachedView { exec_id: stream.exec_id().clone() };
        Detached { metrics: state.metrics.clone(), sets_cwd: asked.is_in_main() }
            .follow(&activity, view.exec_id.clone());
        return Ok((StatusCode::ACCEPTED, axum::Json(view)).into_response());
    }
    asked.request.ends_bytes = asked.ends_bytes();
    let work = async {
        let stream = activity.runner().exec(&asked.request).await?;
        Outputs::new(asked.request.streams, asked.max_output_bytes).collect(stream).await
    };
    let (outcome, outputs) = in_session(&activity, work).await?;
    if let (true, Some(cwd)) = (asked.is_in_main(), &outcome.cwd) {
        activity.set_cwd(cwd);
    }
    state.metrics.exec_finished(outcome.kind, began.elapsed().as_secs_f64());
    state.metrics.bytes_out(outcome.output_bytes);
    let reply = outputs.reply(outcome, asked.raw_output, || handle.view().cwd);
    Ok(axum::Json(reply).into_response())
}

/// A request with the daemon's defaults and limits applied.
pub struct Asked {
    pub request: ExecRequest,
    pub max_output_bytes: usize,
    pub raw_output: bool,
    pub detach: bool,
}

impl Asked {
    pub fn new(request: ApiExecRequest, config: &ExecConfig) -> Result<Self, ApiError> {
        Ok(Self {
            max_output_bytes: output_limit(request.max_output_bytes, config),
            raw_output: request.raw_output,
            detach: request.detach,
            request: ExecRequest {
                cmd: request.cmd,
                shell: request.shell,
                exec_id: request.exec_id,
                streams: request.streams,
                stdin: request.stdin,
                stdin_base64: request.stdin_base64,
                env: request.env,
                cwd: request.cwd,
                timeout_ms: timeout(request.timeout_ms, config)?,
                ends_bytes: None,
            },
        })
    }

    /// What a reply leaves out need not come here: a sandbox that prints without end costs the daemon nothing.
    fn ends_bytes(&self) -> Option<u64> {
        let limit = u64::try_from(self.max_output_bytes).unwrap_or(u64::MAX);
        // Of two streams that are kept apart each has its own ends.
        let may = self.request.streams != StreamMode::Split && limit <= MAX_ENDS_BYTES;
        may.then_some(limit)
    }

    /// Whether its directory afterwards is the session's.
    pub fn is_in_main(&self) -> bool {
        self.request.shell.as_ref().is_none_or(|shell| *shell == ShellName::main())
    }
}

/// The time that a command has: what was asked for, or the default; none where both are 0.
pub fn timeout(asked: Option<u64>, config: &ExecConfig) -> Result<Option<u64>, ApiError> {
    let limit = (config.max_timeout_ms > 0).then_some(config.max_timeout_ms);
    let Some(asked) = asked.filter(|asked| *asked > 0) else {
        let default = (config.default_timeout_ms > 0).then_some(config.default_timeout_ms);
        return Ok(default.or(limit).map(|default| default.min(limit.unwrap_or(default))));
    };
    match limit {
        Some(limit) if asked > limit => {
            Err(invalid(format!("timeout_ms is {asked}; this daemon allows at most {limit}")))
        }
        _ => Ok(Some(asked)),
    }
}

/// How much output a reply carries: a reply is built in memory, so that more than the daemon allows is cut, and says so.
pub fn output_limit(asked: Option<u64>, config: &ExecConfig) -> usize {
    let wanted = asked.unwrap_or(config.max_output_bytes).min(config.max_max_output_bytes);
    usize::try_from(wanted).unwrap_or(usize::MAX)
}

/// The output of one exec.
struct Outputs {
    mode: StreamMode,
    all: Collector,
    /// Only where they are kept apart.
    stdout: Collector,
    stderr: Collector,
}

impl Outputs {
    fn new(mode: StreamMode, limit: usize) -> Self {
        Self { mode, all: Collector::new(limit), stdout: Collector::new(limit), stderr: Collector::new(limit) }
    }

    async fn collect(mut self, mut stream: FrameStream) -> Result<(ExecOutcome, Self), RunnerError> {
        while let Some(frame) = stream.next().await? {
            match frame {
                Frame::Output { stream, data, .. } => {
                    let bytes = data.as_bytes();
                    self.all.push(bytes);
                    match (self.mode, stream) {
                        (StreamMode::Split, Stream::Stdout) => self.stdout.push(bytes),
                        (StreamMode::Split, Stream::Stderr) => self.stderr.push(bytes),
                        _ => {}
                    }
                }
                Frame::Gap { bytes, .. } => self.all.skip(bytes),
                Frame::Exit(outcome) => return Ok((outcome, self)),
                Frame::Started { .. } | Frame::AwaitingInput | Frame::Error(_) => {}
            }
        }
        Err(RunnerError::Lost("the stream ended before the command".to_owned()))
    }

    fn reply(self, outcome: ExecOutcome, raw_output: bool, last_cwd: impl FnOnce() -> String) -> ExecReply {
        let rendering = match (self.mode, raw_output) {
            (StreamMode::Tty, false) => Rendering::WithoutSequences,
            _ => Rendering::AsItCame,
        };
        let all = self.all.render(rendering);
        let apart = (self.mode == StreamMode::Split)
            .then(|| (self.stdout.render(Rendering::AsItCame), self.stderr.render(Rendering::AsItCame)));
        let (stdout, stderr) = apart.map(|(stdout, stderr)| (stdout.text, stderr.text)).unzip();
        ExecReply {
            done: done(outcome, all.omitted > 0, last_cwd),
            output: all.text,
            output_base64: all.base64,
            stdout,
            stderr,
            omitted_bytes: all.omitted,
        }
    }
}

/// An outcome as clients see it. One that never ran has no directory of its own: it is still the last one.
pub fn done(outcome: ExecOutcome, truncated: bool, last_cwd: impl FnOnce() -> String) -> ExecDone {
    ExecDone {
        exec_id: outcome.exec_id,
        kind: outcome.kind,
        exit_code: outcome.exit_code,
        signal: outcome.signal,
        cwd: outcome.cwd.unwrap_or_else(last_cwd),
        output_bytes: outcome.output_bytes,
        truncated,
        timed_out: outcome.timed_out,
        shell_restarted: outcome.shell_restarted,
        oom_killed: outcome.oom_killed,
        awaiting_input: outcome.awaiting_input,
        duration_ms: outcome.duration_ms,
        reason: outcome.reason,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shared_protocol::ErrorCode;

    fn config(default_timeout_ms: u64, max_timeout_ms: u64) -> ExecConfig {
        ExecConfig { default_timeout_ms, max_timeout_ms, ..ExecConfig::default() }
    }

    #[test]
    fn a_command_has_the_time_it_asks_for_or_the_default() {
        assert_eq!(timeout(Some(5), &config(100, 0)).unwrap(), Some(5));
        assert_eq!(timeout(Some(0), &config(100, 0)).unwrap(), Some(100));
        assert_eq!(timeout(None, &config(100, 0)).unwrap(), Some(100));
        assert_eq!(timeout(None, &config(0, 0)).unwrap(), None);
        assert_eq!(timeout(None, &config(0, 50)).unwrap(), Some(50));
        assert_eq!(timeout(None, &config(100, 50)).unwrap(), Some(50));
        let refused = timeout(Some(51), &config(100, 50)).unwrap_err();
        assert_eq!(refused.0.error_code, ErrorCode::InvalidRequest);
    }

    #[test]
    fn a_reply_never_carries_more_than_the_daemon_allows() {
        let config = ExecConfig { max_output_bytes: 10, max_max_output_bytes: 20, ..ExecConfig::default() };
        assert_eq!(output_limit(None, &config), 10);
        assert_eq!(output_limit(Some(0), &config), 0);
        assert_eq!(output_limit(Some(u64::MAX), &config), 20);
    }

    #[test]
    fn the_directory_of_the_session_is_that_of_main() {
        let asked = |shell: Option<&str>| {
            let shell = shell.map(|name| ShellName::new(name).unwrap());
            Asked::new(ApiExecRequest { shell, ..ApiExecRequest::default() }, &ExecConfig::default()).unwrap()
        };
        assert!(asked(None).is_in_main() && asked(Some("main")).is_in_main());
        assert!(!asked(Some("other")).is_in_main());
    }
}
