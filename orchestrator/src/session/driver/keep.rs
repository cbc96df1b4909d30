//! What keeps a session's disk: snapshots of a running sandbox, and stops. The driver does it, so that nothing else freezes, wakes or
//! ends the sandbox meanwhile.
//!
//! ```text
//!  snapshot:  freeze ─▶ the runtime copies disk and state ─▶ thaw
//!  stop:      the runtime keeps the state ─▶ stored as stopped ─▶ the processes end; the disk is written
//! ```
//!
//! A daemon that is killed while a sandbox is frozen leaves it frozen; the next one thaws it. One that is killed after `stopped` was
//! stored leaves processes, which the next one ends.

use std::sync::Arc;
use std::time::Duration;

use shared_protocol::SnapshotId;
use shared_protocol::runner::SandboxState;
use tokio::sync::oneshot;
use tokio::time::timeout;
use tracing::{error, info, warn};

use super::pause::PAUSE_TIMEOUT;
use super::{DESTROY_ATTEMPTS, DESTROY_FIRST_PAUSE, DESTROY_LAST_PAUSE, DESTROY_TIMEOUT, Driver, failure};
use crate::failpoint;
use crate::runtime::RuntimeError;
use crate::session::{Phase, SessionError};

/// The longest time for the runtime to copy a frozen sandbox. It takes milliseconds where the file system shares blocks, and as long as
/// writing its files elsewhere.
const SNAPSHOT_TIMEOUT: Duration = Duration::from_secs(120);
/// The longest time for the runtime to keep the state of the shells, and the disk of a container.
const SAVE_TIMEOUT: Duration = Duration::from_secs(120);

/// The most such requests that wait for one session's driver. Further clients wait for a place.
pub const MAX_KEEPS_ASKED: usize = 8;

/// What a client asked for, with the sender for its outcome. Clients that have disconnected need no answer.
#[derive(Debug)]
pub enum KeepAsked {
    /// A snapshot, with the state that its shells have. The outcome is what it holds, in bytes.
    Snapshot { id: SnapshotId, state: Arc<SandboxState>, done: oneshot::Sender<Result<u64, SessionError>> },
    /// A stop, with the state that the shells have.
    Stop { state: Arc<SandboxState>, done: oneshot::Sender<Result<(), SessionError>> },
    /// A start of a stopped session.
    Start { done: oneshot::Sender<Result<(), SessionError>> },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterKeep {
    Running,
    Stopped,
}

impl Driver {
    /// Does what a client asked a session for that is not stopped.
    pub(super) async fn keep(&self, asked: KeepAsked) -> AfterKeep {
        match asked {
            KeepAsked::Snapshot { id, state, done } => {
                let _ = done.send(self.snapshot(&id, state).await);
                AfterKeep::Running
            }
            KeepAsked::Stop { state, done } => {
                let stopped = self.stop(state).await;
                let after = if stopped.is_ok() { AfterKeep::Stopped } else { AfterKeep::Running };
                let _ = done.send(stopped);
                after
            }
            // Whoever asks for a start wants a session that runs.
            KeepAsked::Start { done } => {
                let _ = done.send(Ok(()));
                AfterKeep::Running
            }
        }
    }

    async fn snapshot(&self, snapshot: &SnapshotId, state: Arc<SandboxState>) -> Result<u64, SessionError> {
        // The caller has an activity in the session, so it is not paused; a crash may have come in between.
        if let Some(refusal) = self.shared.phase().refusal(&self.id) {
            return Err(refusal);
        }
        let was_paused = self.shared.phase() == Phase::Paused;
        let frozen = timeout(PAUSE_TIMEOUT, self.runtime.freeze(&self.id)).await;
        let taken = match frozen {
            Ok(Ok(())) => {
                failpoint::pass("snapshot.frozen");
                self.copy(snapshot, state).await
            }
            Ok(Err(error)) => Err(error.into()),
            Err(_) => Err(late("not all of the session was frozen", PAUSE_TIMEOUT)),
        };
        if !was_paused && let Some(cause) = failure(timeout(PAUSE_TIMEOUT, self.runtime.thaw(&self.id)).await) {
            // The session then does not answer, and its health says so.
            warn!(session_id = %self.id, step = "resume", %cause, "session is frozen after a snapshot");
        }
        if let Err(cause) = &taken {
            warn!(session_id = %self.id, snapshot_id = %snapshot, %cause, "snapshot failed");
        }
        taken
    }

    /// Has the runtime copy a sandbox whose disk nothing writes to.
    pub(super) async fn copy(&self, snapshot: &SnapshotId, state: Arc<SandboxState>) -> Result<u64, SessionError> {
        match timeout(SNAPSHOT_TIMEOUT, self.runtime.snapshot(&self.id, snapshot, state)).await {
            Ok(taken) => taken.map_err(SessionError::from),
            Err(_) => Err(late("the snapshot was not made", SNAPSHOT_TIMEOUT)),
        }
    }

    async fn stop(&self, state: Arc<SandboxState>) -> Result<(), SessionError> {
        if let Err(error) = self.save(state).await {
            // A runtime may have held the sandbox still, so that nothing is lost between the copy and the end.
            let _ = timeout(PAUSE_TIMEOUT, self.runtime.thaw(&self.id)).await;
            return Err(error);
        }
        failpoint::pass("stop.intended");
        // From here on every request is refused, and those under way end.
        self.shared.set_phase(Phase::Stopped);
        self.end_processes().await;
        failpoint::pass("stop.stopped");
        info!(session_id = %self.id, "session is stopped");
        Ok(())
    }

    /// Keeps what the session has, and stores that it is stopped.
    async fn save(&self, state: Arc<SandboxState>) -> Result<(), SessionError> {
        match timeout(SAVE_TIMEOUT, self.runtime.save_state(&self.id, state)).await {
            Ok(saved) => saved?,
            Err(_) => return Err(late("what the session has was not kept", SAVE_TIMEOUT)),
        }
        failpoint::pass("stop.saved");
        self.record.stopped().await
    }

    /// Has the runtime end the processes of a session that is stored as stopped. Returns `false` if its disk is gone.
    pub(super) async fn end_processes(&self) -> bool {
        if self.shared.facts.spec.inject.is_some() {
            self.shared.network.remove_authority().await;
        }
        let mut pause = DESTROY_FIRST_PAUSE;
        for attempt in 1..=DESTROY_ATTEMPTS {
            let cause = match timeout(DESTROY_TIMEOUT, self.runtime.stop(&self.id)).await {
                Ok(Ok(())) => return true,
                Ok(Err(RuntimeError::Gone(_))) => return false,
                Ok(Err(error)) => SessionError::chain(&error),
                Err(_) => "timed out".into(),
            };
            warn!(session_id = %self.id, step = "stop", attempt, %cause, "sandbox is not stopped yet");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(DESTROY_LAST_PAUSE);
        }
        error!(session_id = %self.id, step = "stop", "sandbox is left to the next start of the daemon");
        true
    }
}

fn late(what: &str, after: Duration) -> SessionError {
    SessionError::Internal(format!("{what} within {} s", after.as_secs()))
}
