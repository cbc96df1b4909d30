//! Pauses and wakes a session: the part of the driver that uses the runtime's freezer.
//!
//! The phase becomes `Paused` before anything is frozen, so that nothing begins meanwhile, and `Running` only when
//! everything runs again. Requests in flight keep a session awake; detached commands and background jobs are frozen with it.

use std::sync::Once;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;
use tracing::{info, warn};

use super::{Driver, failure};
use crate::session::{EndReason, Phase, SessionError};

/// The longest time for the runtime to freeze or thaw a sandbox.
pub const PAUSE_TIMEOUT: Duration = Duration::from_secs(5);

/// The most pause requests that wait for one session's driver. Further clients wait for a place.
pub const MAX_PAUSES_ASKED: usize = 8;

/// The sender for the outcome of a pause that a client asked for.
pub type PauseAsked = oneshot::Sender<Result<(), SessionError>>;

enum Freeze {
    Frozen,
    Failed(SessionError),
    /// The session has to end instead.
    Over(EndReason),
}

impl Driver {
    /// Pauses the session because a client asked for it.
    pub(super) async fn pause(&self, asked: PauseAsked) -> Option<EndReason> {
        let outcome = match self.shared.set_paused() {
            Ok(true) => match self.freeze().await {
                Freeze::Frozen => Ok(()),
                Freeze::Failed(error) => Err(error),
                Freeze::Over(end) => return Some(end),
            },
            Ok(false) => Ok(()),
            Err(error) => Err(error),
        };
        // A client that has disconnected needs no answer.
        let _ = asked.send(outcome);
        None
    }

    /// Pauses an idle session, whose phase is already `Paused`. If the runtime cannot do it, the driver does not try again
    /// for this session.
    pub(super) async fn pause_idle(&self, idle_pause: &mut Option<Duration>) -> Option<EndReason> {
        static CANNOT: Once = Once::new();
        match self.freeze().await {
            Freeze::Frozen => None,
            Freeze::Over(end) => Some(end),
            Freeze::Failed(error) => {
                *idle_pause = None;
                match error {
                    SessionError::InvalidRequest(cause) => CANNOT.call_once(|| {
                        warn!(%cause, "idle sessions are not paused here");
                    }),
                    cause => {
                        warn!(session_id = %self.id, step = "pause", %cause, "idle session is not paused");
                    }
                }
                None
            }
        }
    }

    async fn freeze(&self) -> Freeze {
        let id = &self.id;
        let frozen = tokio::select! {
            biased;
            () = self.shared.destroy_asked.notified() => return Freeze::Over(EndReason::Destroyed),
            frozen = timeout(PAUSE_TIMEOUT, self.runtime.pause(id)) => frozen,
        };
        let error = match frozen {
            Ok(Ok(())) => {
                info!(session_id = %id, "session is paused");
                self.record.paused(true);
                return Freeze::Frozen;
            }
            Ok(Err(error)) => error.into(),
            Err(_) => SessionError::Internal(format!("not all of it was frozen in {} s", PAUSE_TIMEOUT.as_secs())),
        };
        // The sandbox may be half frozen. If it cannot be thawed either, it is only a session that does not answer.
        if let Some(cause) = failure(timeout(PAUSE_TIMEOUT, self.runtime.resume(id)).await) {
            tracing::debug!(session_id = %id, step = "resume", %cause, "after a pause that failed");
        }
        self.shared.set_phase(Phase::Running);
        Freeze::Failed(error)
    }

    /// Wakes the session. A destroy does not wait for it. If it fails, the session stays paused, and the waiting requests
    /// time out.
    pub(super) async fn resume(&self) -> Option<EndReason> {
        if self.shared.phase() != Phase::Paused {
            return None;
        }
        let resumed = tokio::select! {
            biased;
            () = self.shared.destroy_asked.notified() => return Some(EndReason::Destroyed),
            resumed = timeout(PAUSE_TIMEOUT, self.runtime.resume(&self.id)) => resumed,
        };
        match failure(resumed) {
            None => {
                self.shared.set_awake();
                self.record.paused(false);
            }
            Some(cause) => warn!(session_id = %self.id, step = "resume", %cause, "session stays paused"),
        }
        None
    }
}

#[cfg(test)]
#[path = "pause_test.rs"]
mod tests;
