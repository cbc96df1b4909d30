//! Collects the output of one command or program until it ends, within a limit.

use compact_output::{CommandHint, Compact, Compactor};
use shared_protocol::api::{ExecDone, RunDone};
use shared_protocol::runner::{ExecOutcome, Stream, StreamMode};

use super::{ExecSpec, RunSpec, done};
use crate::runner_client::{Frame, FrameStream, RunnerError};
use crate::service::output::{Collector, Rendered, Rendering};

/// A command that has ended, with its output.
#[derive(Debug)]
pub struct CollectedExec {
    pub done: ExecDone,
    /// Everything that the command printed, in order.
    pub output: Rendered,
    /// Standard output and standard error separately, if the request asked for that.
    pub apart: Option<(Rendered, Rendered)>,
    /// The compact view, if the request asked for it. Then `output` is empty.
    pub compact: Option<Compact>,
}

/// A program that has ended, with its output.
#[derive(Debug)]
pub struct CollectedRun {
    pub done: RunDone,
    pub stdout: Rendered,
    pub stderr: Rendered,
}

pub(super) struct ExecCollector {
    mode: StreamMode,
    rendering: Rendering,
    all: Collector,
    /// The collector of standard output, used only if the streams are separate.
    stdout: Collector,
    stderr: Collector,
    /// Takes the output in place of the collectors, for a compact view.
    compactor: Option<Box<Compactor>>,
}

impl ExecCollector {
    pub fn new(spec: &ExecSpec) -> Self {
        let limit = spec.max_output_bytes();
        Self {
            mode: spec.request().streams,
            rendering: spec.rendering(),
            all: Collector::new(limit),
            stdout: Collector::new(limit),
            stderr: Collector::new(limit),
            compactor: spec
                .compact()
                .map(|options| Box::new(Compactor::new(CommandHint::of(&spec.request().cmd), options))),
        }
    }

    pub async fn collect(mut self, mut frames: FrameStream) -> Result<(ExecOutcome, Self), RunnerError> {
        while let Some(frame) = frames.next().await? {
            match (frame, &mut self.compactor) {
                (Frame::Output { data, .. }, Some(compactor)) => compactor.push(data.as_bytes()),
                (Frame::Gap { bytes, .. }, Some(compactor)) => {
                    // The collector of all output counts them, so that the reply says that it is not whole.
                    self.all.skip(bytes);
                    compactor.push(format!("\n[{bytes} bytes left out]\n").as_bytes());
                }
                (Frame::Output { stream, data, .. }, None) => {
                    let bytes = data.as_bytes();
                    self.all.push(bytes);
                    match (self.mode, stream) {
                        (StreamMode::Split, Stream::Stdout) => self.stdout.push(bytes),
                        (StreamMode::Split, Stream::Stderr) => self.stderr.push(bytes),
                        _ => {}
                    }
                }
                (Frame::Gap { bytes, .. }, None) => self.all.skip(bytes),
                (Frame::Exit(outcome), _) => return Ok((outcome, self)),
                (Frame::Queued { .. } | Frame::Started { .. } | Frame::AwaitingInput | Frame::Error(_), _) => {}
            }
        }
        Err(RunnerError::Lost("the stream ended before the command".to_owned()))
    }

    pub fn finish(self, outcome: ExecOutcome, last_cwd: impl FnOnce() -> String) -> CollectedExec {
        let compact = self.compactor.map(|compactor| compactor.finish(Some(outcome.exit_code)));
        let output = self.all.render(self.rendering);
        let is_less = output.omitted > 0 || compact.as_ref().is_some_and(|compact| compact.is_changed);
        let apart = (self.mode == StreamMode::Split)
            .then(|| (self.stdout.render(Rendering::AsItCame), self.stderr.render(Rendering::AsItCame)));
        CollectedExec { done: done(outcome, is_less, last_cwd), output, apart, compact }
    }
}

pub(super) struct RunCollector {
    stdout: Collector,
    stderr: Collector,
}

impl RunCollector {
    pub fn new(spec: &RunSpec) -> Self {
        let limit = spec.max_output_bytes();
        Self { stdout: Collector::new(limit), stderr: Collector::new(limit) }
    }

    pub async fn collect(mut self, mut frames: FrameStream) -> Result<(ExecOutcome, Self), RunnerError> {
        while let Some(frame) = frames.next().await? {
            match frame {
                Frame::Output { stream: Stream::Stderr, data, .. } => self.stderr.push(data.as_bytes()),
                Frame::Output { data, .. } => self.stdout.push(data.as_bytes()),
                // The runner does not say which stream the lost bytes belong to.
                Frame::Gap { bytes, .. } => self.stdout.skip(bytes),
                Frame::Exit(outcome) => return Ok((outcome, self)),
                Frame::Queued { .. } | Frame::Started { .. } | Frame::AwaitingInput | Frame::Error(_) => {}
            }
        }
        Err(RunnerError::Lost("the stream ended before the program".to_owned()))
    }

    pub fn finish(self, outcome: ExecOutcome) -> CollectedRun {
        let stdout = self.stdout.render(Rendering::AsItCame);
        let stderr = self.stderr.render(Rendering::AsItCame);
        let done = RunDone {
            exec_id: outcome.exec_id,
            kind: outcome.kind,
            exit_code: outcome.exit_code,
            signal: outcome.signal,
            output_bytes: outcome.output_bytes,
            truncated: stdout.omitted + stderr.omitted > 0,
            timed_out: outcome.timed_out,
            oom_killed: outcome.oom_killed,
            duration_ms: outcome.duration_ms,
            network_denied: Vec::new(),
            reason: outcome.reason,
        };
        CollectedRun { done, stdout, stderr }
    }
}
