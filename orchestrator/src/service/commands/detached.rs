//! Follows detached commands and runs, which no request waits for. The daemon follows each to its end, so that the session
//! does not expire while it runs and its end is counted.
//!
//! The daemon reads none of their output: it asks for the stream from an offset after all output, so the stream contains
//! only the end. The number of followed commands per session is limited; further commands run too, but do not keep the
//! session alive.

use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use shared_protocol::runner::{ExecState, ExecView, MAX_PAGE_EXECS};
use shared_protocol::{ExecId, ShellName};
use tokio::time::timeout;

use crate::metrics::Metrics;
use crate::runner_client::{Frame, RunnerClient, RunnerError};
use crate::session::{Activity, DetachedActivity, Registry, SessionHandle};

/// An offset after everything that a command can print.
const BEHIND_ALL_OUTPUT: u64 = 1 << 53;

/// The most sessions that are asked at the same time what runs in them.
const MAX_CONCURRENT_LOOKS: usize = 16;
/// The time that each session has to answer.
const LOOK_TIMEOUT: Duration = Duration::from_secs(10);

/// The most pages of a list of execs: more than a full list of the longest execs has.
const MAX_PAGES: usize = 256;

/// Follows the commands that an earlier daemon started: the requests for them ended with that daemon.
pub(super) async fn follow_again(sessions: &Registry, metrics: &Metrics) {
    let looks = sessions.live().into_iter().map(|session| look(session, metrics.clone()));
    futures_util::stream::iter(looks).buffer_unordered(MAX_CONCURRENT_LOOKS).collect::<()>().await;
}

async fn look(session: SessionHandle, metrics: Metrics) {
    let Some(runner) = session.runner() else { return };
    let execs = match timeout(LOOK_TIMEOUT, live_execs(&runner)).await {
        Ok(Ok(execs)) => execs,
        Ok(Err(cause)) => {
            return tracing::warn!(session_id = %session.id(), %cause, "cannot tell what runs in the session");
        }
        Err(_) => {
            return tracing::warn!(session_id = %session.id(), cause = "timed out", "cannot tell what runs in the session");
        }
    };
    for exec in execs {
        // A session that has ended has no commands.
        let Ok(activity) = session.begin().await else { return };
        let sets_cwd = exec.shell.as_ref().is_some_and(|shell| *shell == ShellName::main());
        // The time limit of the command is not known any more. The runner has it.
        Detached { metrics: metrics.clone(), sets_cwd, timeout_ms: None }.follow(&activity, exec.exec_id);
    }
}

/// The queued and running execs of a sandbox, read page by page.
async fn live_execs(runner: &RunnerClient) -> Result<Vec<ExecView>, RunnerError> {
    let mut live = Vec::new();
    let mut after = None;
    for _ in 0..MAX_PAGES {
        let page = runner.execs(after.as_ref(), MAX_PAGE_EXECS).await?;
        after = page.views.last().map(|exec| exec.exec_id.clone());
        live.extend(page.views.into_iter().filter(|exec| exec.state != ExecState::Ended));
        if !page.has_more {
            return Ok(live);
        }
    }
    Err(RunnerError::hostile("the list of execs has no end"))
}

/// The effects of the end of a detached command.
pub(super) struct Detached {
    pub metrics: Metrics,
    /// Whether the command's last directory becomes the session's directory.
    pub sets_cwd: bool,
    /// The time limit that the runner was given.
    pub timeout_ms: Option<u64>,
}

impl Detached {
    /// Follows a command that the runner has accepted. The task ends with the command or with the session. While the sandbox
    /// is paused, the task waits.
    pub fn follow(self, activity: &Activity, exec_id: ExecId) {
        let Some(counted) = activity.detach() else {
            tracing::info!(session_id = %activity.session_id(), %exec_id, "too many detached commands are followed already");
            return;
        };
        let (runner, began, session_ended) = (activity.runner().clone(), Instant::now(), activity.ended());
        tokio::spawn(async move {
            let ended = tokio::select! {
                biased;
                ended = self.last_frame(&runner, &exec_id, &counted) => ended,
                _ = session_ended => return,
            };
            match ended {
                Ok(Frame::Exit(outcome)) => {
                    if let (true, Some(cwd)) = (self.sets_cwd, &outcome.cwd) {
                        counted.set_cwd(cwd);
                    }
                    self.metrics.exec_finished(outcome.kind, began.elapsed().as_secs_f64());
                }
                Ok(_) => {}
                Err(cause) => tracing::debug!(%exec_id, %cause, "a detached command is no longer followed"),
            }
        });
    }

    async fn last_frame(
        &self,
        runner: &RunnerClient,
        exec_id: &ExecId,
        counted: &DetachedActivity,
    ) -> Result<Frame, RunnerError> {
        loop {
            let pauses = counted.awake().await;
            let frames = runner.reattach(exec_id, BEHIND_ALL_OUTPUT, true).await?;
            let mut frames = frames.limited_to(self.timeout_ms);
            let mut last = None;
            while let Some(frame) = frames.next().await? {
                last = Some(frame);
            }
            // A frozen runner cannot report anything, so the time of a pause does not count.
            if !(frames.is_overdue() && pauses.was_paused()) {
                return last.ok_or_else(|| RunnerError::Lost("the stream ended before the command".to_owned()));
            }
        }
    }
}
