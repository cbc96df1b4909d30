//! Putting a session to sleep and waking it: the part of the driver that speaks to the runtime's freezer.
//!
//! The phase says `Paused` before anything is frozen, so that nothing begins meanwhile, and `Running` again only when all goes on.
//! Requests in flight keep a session awake; detached commands and background jobs are frozen with it.

use std::sync::Once;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;
use tracing::{info, warn};

use super::driver::{Driver, failure};
use super::{End, Phase, SessionError};

/// For the runtime to freeze or thaw a sandbox.
pub const PAUSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Clients that ask for the same session's pause and have not been heard yet; more wait for a place.
pub const MAX_PAUSES_ASKED: usize = 8;

/// Somebody who waits for the outcome.
pub type PauseAsked = oneshot::Sender<Result<(), SessionError>>;

enum Freeze {
    Frozen,
    Failed(SessionError),
    /// Something else was asked for meanwhile.
    Over(End),
}

impl Driver {
    /// As a client asked.
    pub(super) async fn pause(&self, asked: PauseAsked) -> Option<End> {
        let outcome = match self.shared.set_paused() {
            Ok(true) => match self.freeze().await {
                Freeze::Frozen => Ok(()),
                Freeze::Failed(error) => Err(error),
                Freeze::Over(end) => return Some(end),
            },
            Ok(false) => Ok(()),
            Err(error) => Err(error),
        };
        // A client that has gone needs no answer.
        let _ = asked.send(outcome);
        None
    }

    /// For lack of use; the phase is `Paused` already. A runtime that could not is not asked again for this session.
    pub(super) async fn pause_idle(&self, idle_pause: &mut Option<Duration>) -> Option<End> {
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
            () = self.shared.destroy_asked.notified() => return Freeze::Over(End::Destroyed),
            frozen = timeout(PAUSE_TIMEOUT, self.runtime.pause(id)) => frozen,
        };
        let error = match frozen {
            Ok(Ok(())) => {
                info!(session_id = %id, "session is paused");
                self.ledger.paused(true);
                return Freeze::Frozen;
            }
            Ok(Err(error)) => error.into(),
            Err(_) => SessionError::Internal(format!("not all of it was frozen in {} s", PAUSE_TIMEOUT.as_secs())),
        };
        // Half of it may be frozen. What cannot be thawed either is no more than a session that does not answer.
        if let Some(cause) = failure(timeout(PAUSE_TIMEOUT, self.runtime.resume(id)).await) {
            tracing::debug!(session_id = %id, step = "resume", %cause, "after a pause that failed");
        }
        self.shared.set_phase(Phase::Running);
        Freeze::Failed(error)
    }

    /// Wakes it. A destroy does not wait for that; a failure leaves it paused, and those who wait give up in their time.
    pub(super) async fn resume(&self) -> Option<End> {
        if self.shared.phase() != Phase::Paused {
            return None;
        }
        let resumed = tokio::select! {
            biased;
            () = self.shared.destroy_asked.notified() => return Some(End::Destroyed),
            resumed = timeout(PAUSE_TIMEOUT, self.runtime.resume(&self.id)) => resumed,
        };
        match failure(resumed) {
            None => {
                self.shared.set_awake();
                self.ledger.paused(false);
            }
            Some(cause) => warn!(session_id = %self.id, step = "resume", %cause, "session stays paused"),
        }
        None
    }
}

#[cfg(test)]
#[path = "pause_test.rs"]
mod tests;
