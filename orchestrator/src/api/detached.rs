//! Commands and runs that go on without a request: followed to their end, so that their session does not expire under them and
//! their end is counted.
//!
//! Nothing of their output comes through here: a stream that begins behind all output tells only the end. How many of one
//! session are followed is bounded; more run as well and are not counted.

use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use shared_protocol::runner::ExecState;
use shared_protocol::{ExecId, ShellName};
use tokio::time::timeout;

use crate::metrics::Metrics;
use crate::runner_client::{Frame, FrameStream, RunnerError};
use crate::session::{Activity, Registry, SessionHandle};

/// Behind whatever a command can print.
const BEHIND_ALL_OUTPUT: u64 = 1 << 53;

/// Sessions that are asked at the same moment what runs in them.
const MAX_CONCURRENT_LOOKS: usize = 16;
/// For one of them to say so.
const LOOK_TIMEOUT: Duration = Duration::from_secs(10);

/// Follows what runs in sessions that an earlier daemon began: the requests for it are gone with that daemon.
pub async fn follow_again(sessions: &Registry, metrics: &Metrics) {
    let looks = sessions.live().into_iter().map(|session| look(session, metrics.clone()));
    futures_util::stream::iter(looks).buffer_unordered(MAX_CONCURRENT_LOOKS).collect::<()>().await;
}

async fn look(session: SessionHandle, metrics: Metrics) {
    let Some(runner) = session.runner() else { return };
    let execs = match timeout(LOOK_TIMEOUT, runner.execs()).await {
        Ok(Ok(execs)) => execs,
        Ok(Err(cause)) => return tracing::warn!(session_id = %session.id(), %cause, "what runs in it is not known"),
        Err(_) => {
            return tracing::warn!(session_id = %session.id(), cause = "timed out", "what runs in it is not known");
        }
    };
    for exec in execs.into_iter().filter(|exec| exec.state != ExecState::Ended) {
        // Over by now is as good as ended.
        let Ok(activity) = session.begin().await else { return };
        let sets_cwd = exec.shell.as_ref().is_some_and(|shell| *shell == ShellName::main());
        Detached { metrics: metrics.clone(), sets_cwd }.follow(&activity, exec.exec_id);
    }
}

/// What the end of a detached command changes.
pub struct Detached {
    pub metrics: Metrics,
    /// Whether the directory at its end is the session's.
    pub sets_cwd: bool,
}

impl Detached {
    /// Follows a command that the runner has taken. The task ends with the command, or with the sandbox, which breaks its
    /// connection; while that is paused, so is the task.
    pub fn follow(self, activity: &Activity, exec_id: ExecId) {
        let Some(counted) = activity.detach() else {
            tracing::info!(session_id = %activity.session_id(), %exec_id, "too many detached commands are followed already");
            return;
        };
        let (runner, began) = (activity.runner().clone(), Instant::now());
        tokio::spawn(async move {
            let ended = async { last_frame(runner.reattach(&exec_id, BEHIND_ALL_OUTPUT, true).await?).await };
            match ended.await {
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
}

async fn last_frame(mut frames: FrameStream) -> Result<Frame, RunnerError> {
    let mut last = None;
    while let Some(frame) = frames.next().await? {
        last = Some(frame);
    }
    last.ok_or_else(|| RunnerError::Lost("the stream ended before the command".to_owned()))
}
