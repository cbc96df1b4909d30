//! Commands in shells and programs outside them: start, wait for the reply, stream, detach, reattach.
//!
//! ```text
//!                      ┌─ exec, run ────────────▶ Started::Ended(output within bounds) | Started::Detached(id)
//!  ExecSpec, RunSpec ──┤
//!                      └─ stream_exec, stream_run ─▶ ExecStream ◀── reattach
//! ```
//!
//! A timeout is an ordinary answer. If the future or the stream of a call is dropped, the command keeps running, and
//! `reattach` finds it by its id.

mod collect;
mod detached;
mod events;
mod spec;

use std::time::Instant;

use shared_protocol::api::{ApiExecRequest, ApiExecView, ApiRunRequest, ExecDone};
use shared_protocol::runner::{ExecOutcome, ExecView, StdinView};
use shared_protocol::{ExecId, SessionId};

pub use collect::{CollectedExec, CollectedRun};
pub use events::{ExecEvent, ExecStream};
pub use spec::{Delivery, ExecSpec, PageSpec, RunSpec};

pub use crate::runner_client::AfterInput;

use super::access::Access;
use super::in_sandbox::in_session;
use super::{CallError, Caller, InvalidRequest};
use crate::config::ExecConfig;
use crate::metrics::Metrics;
use crate::runner_client::Outgoing;
use crate::session::Registry;
use collect::{ExecCollector, RunCollector};
use detached::Detached;
use events::Ending;

/// The result of starting a command with a reply.
pub enum Started<T> {
    /// The command runs without a request; clients follow it by its id.
    Detached(ExecId),
    Ended(T),
}

/// How much of an exec's output to return.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// The output that exists now.
    Now,
    /// All output until the command ends.
    End,
}

/// A page of the list of execs.
pub struct ExecList {
    pub execs: Vec<ApiExecView>,
    /// Whether other execs come after these.
    pub has_more: bool,
}

pub struct Commands {
    access: Access,
    registry: Registry,
    metrics: Metrics,
    limits: ExecConfig,
}

impl Commands {
    pub(super) fn new(access: Access, registry: Registry, metrics: Metrics, limits: ExecConfig) -> Self {
        Self { access, registry, metrics, limits }
    }

    /// Checks an exec that is answered when it has ended, or at once if it is detached.
    pub fn check_exec(&self, request: ApiExecRequest) -> Result<ExecSpec, InvalidRequest> {
        ExecSpec::for_reply(request, &self.limits)
    }

    /// Checks an exec whose output is streamed.
    pub fn check_exec_stream(&self, request: ApiExecRequest) -> Result<ExecSpec, InvalidRequest> {
        ExecSpec::for_stream(request, &self.limits)
    }

    pub fn check_run(&self, request: ApiRunRequest) -> Result<RunSpec, InvalidRequest> {
        RunSpec::for_reply(request, &self.limits)
    }

    pub fn check_run_stream(&self, request: ApiRunRequest) -> Result<RunSpec, InvalidRequest> {
        RunSpec::for_stream(request, &self.limits)
    }

    /// Runs a command in a shell and waits for its end, or returns at once if it is detached.
    pub async fn exec(
        &self,
        caller: &Caller,
        id: &SessionId,
        spec: &ExecSpec,
    ) -> Result<Started<CollectedExec>, CallError> {
        let began = Instant::now();
        let session = self.access.session(caller, id)?;
        let activity = session.begin().await?;
        if spec.delivery() == Delivery::Detached {
            let frames = in_session(&activity, activity.runner().exec(spec.request())).await?;
            let exec_id = frames.exec_id().clone();
            let timeout_ms = spec.request().timeout_ms;
            let detached = Detached { metrics: self.metrics.clone(), sets_cwd: spec.is_in_main(), timeout_ms };
            detached.follow(&activity, exec_id.clone());
            return Ok(Started::Detached(exec_id));
        }
        let decisions_before = activity.network().last_decision();
        let work = async {
            let frames = activity.runner().exec(spec.request()).await?;
            ExecCollector::new(spec).collect(frames).await
        };
        let (outcome, collector) = in_session(&activity, work).await?;
        if let (true, Some(cwd)) = (spec.is_in_main(), &outcome.cwd) {
            activity.set_cwd(cwd);
        }
        self.count(&outcome, began);
        let mut collected = collector.finish(outcome, || session.view().cwd);
        collected.done.network_denied = activity.network().denied_after(decisions_before);
        Ok(Started::Ended(collected))
    }

    /// Runs a command in a shell and returns its output as it arrives.
    pub async fn stream_exec(&self, caller: &Caller, id: &SessionId, spec: &ExecSpec) -> Result<ExecStream, CallError> {
        let session = self.access.session(caller, id)?;
        let activity = session.begin().await?;
        let decisions_before = activity.network().last_decision();
        let frames = in_session(&activity, activity.runner().exec(spec.request())).await?;
        let counted_by = Some(self.metrics.clone());
        let ending = Ending { sets_cwd: spec.is_in_main(), counted_by, decisions_before };
        Ok(ExecStream::new(session, activity, frames, ending))
    }

    /// Runs a program outside the shells and waits for its end, or returns at once if it is detached.
    pub async fn run(
        &self,
        caller: &Caller,
        id: &SessionId,
        spec: &RunSpec,
    ) -> Result<Started<CollectedRun>, CallError> {
        let began = Instant::now();
        let activity = self.access.begin(caller, id).await?;
        if spec.delivery() == Delivery::Detached {
            let frames = in_session(&activity, activity.runner().run(spec.request())).await?;
            let exec_id = frames.exec_id().clone();
            let timeout_ms = spec.request().timeout_ms;
            let detached = Detached { metrics: self.metrics.clone(), sets_cwd: false, timeout_ms };
            detached.follow(&activity, exec_id.clone());
            return Ok(Started::Detached(exec_id));
        }
        let decisions_before = activity.network().last_decision();
        let work = async {
            let frames = activity.runner().run(spec.request()).await?;
            RunCollector::new(spec).collect(frames).await
        };
        let (outcome, collector) = in_session(&activity, work).await?;
        self.count(&outcome, began);
        let mut collected = collector.finish(outcome);
        collected.done.network_denied = activity.network().denied_after(decisions_before);
        Ok(Started::Ended(collected))
    }

    /// Runs a program outside the shells and returns its output as it arrives.
    pub async fn stream_run(&self, caller: &Caller, id: &SessionId, spec: &RunSpec) -> Result<ExecStream, CallError> {
        let session = self.access.session(caller, id)?;
        let activity = session.begin().await?;
        let decisions_before = activity.network().last_decision();
        let frames = in_session(&activity, activity.runner().run(spec.request())).await?;
        let ending = Ending { sets_cwd: false, counted_by: Some(self.metrics.clone()), decisions_before };
        Ok(ExecStream::new(session, activity, frames, ending))
    }

    /// Writes to the open standard input of a run, as fast as its program reads.
    pub async fn write_stdin(
        &self,
        caller: &Caller,
        id: &SessionId,
        exec_id: &ExecId,
        source: Outgoing,
        after: AfterInput,
    ) -> Result<StdinView, CallError> {
        let activity = self.access.begin(caller, id).await?;
        let written = in_session(&activity, activity.runner().write_stdin(exec_id, source, after)).await?;
        self.metrics.bytes_in(written.bytes);
        Ok(written)
    }

    /// Returns the output of an exec or run again, starting at an offset.
    pub async fn reattach(
        &self,
        caller: &Caller,
        id: &SessionId,
        exec_id: &ExecId,
        from: u64,
        until: Until,
    ) -> Result<ExecStream, CallError> {
        let session = self.access.session(caller, id)?;
        let activity = session.begin().await?;
        let frames = in_session(&activity, activity.runner().reattach(exec_id, from, until == Until::End)).await?;
        // The request that started the command already counts its end and takes its directory.
        let decisions_before = activity.network().last_decision();
        let ending = Ending { sets_cwd: false, counted_by: None, decisions_before };
        Ok(ExecStream::new(session, activity, frames, ending))
    }

    /// Lists the recent execs and runs of a session, the oldest first: one page of the list.
    pub async fn list(&self, caller: &Caller, id: &SessionId, spec: &PageSpec) -> Result<ExecList, CallError> {
        let activity = self.access.begin(caller, id).await?;
        let page = in_session(&activity, activity.runner().execs(spec.after(), spec.limit())).await?;
        Ok(ExecList { execs: page.views.into_iter().map(view).collect(), has_more: page.has_more })
    }

    /// Follows the commands that an earlier daemon started: the requests for them ended with that daemon.
    pub async fn follow_again(&self) {
        detached::follow_again(&self.registry, &self.metrics).await;
    }

    fn count(&self, outcome: &ExecOutcome, began: Instant) {
        self.metrics.exec_finished(outcome.kind, began.elapsed().as_secs_f64());
        self.metrics.bytes_out(outcome.output_bytes);
    }
}

fn view(view: ExecView) -> ApiExecView {
    ApiExecView {
        exec_id: view.exec_id,
        shell: view.shell,
        state: view.state,
        pid: view.pid,
        output_bytes: view.output_bytes,
        first_offset: view.first_offset,
        done: view.outcome.map(|outcome| done(outcome, view.first_offset > 0, String::new)),
    }
}

/// Converts an outcome for clients. A command that never ran has no directory of its own: the shell is still in its last
/// one.
fn done(outcome: ExecOutcome, truncated: bool, last_cwd: impl FnOnce() -> String) -> ExecDone {
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
        network_denied: Vec::new(),
        reason: outcome.reason,
    }
}
