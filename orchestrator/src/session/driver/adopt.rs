//! Takes over what an earlier daemon left: a running sandbox, or one that was being created.

use std::time::Duration;

use tokio::time::timeout;
use tracing::warn;

use super::pause::PAUSE_TIMEOUT;
use super::{Driver, Gone, failure};
use crate::failpoint;
use crate::runner_client::RunnerClient;
use crate::runtime::{RuntimeError, Sandbox};
use crate::session::{EndReason, Phase, SessionError};

/// The longest time for one look at a sandbox of an earlier daemon.
const ADOPT_TIMEOUT: Duration = Duration::from_secs(10);
/// The number of looks. A container engine may still be starting, like this daemon.
const ADOPT_ATTEMPTS: u32 = 5;
const ADOPT_FIRST_PAUSE: Duration = Duration::from_millis(200);

/// The crash reason of a session whose sandbox ended while no daemon ran.
const GONE_AT_START: &str = "it was gone when the daemon came back";

impl Driver {
    /// Takes over a sandbox that an earlier daemon made. If the sandbox is gone, the session has crashed. If several
    /// attempts cannot tell, the sandbox counts as gone and is removed.
    pub(super) async fn adopt(&self, next: Phase) -> Result<Sandbox, Gone> {
        let _permit = self.permits.acquire().await;
        let mut pause = ADOPT_FIRST_PAUSE;
        let mut cause = String::new();
        for attempt in 1..=ADOPT_ATTEMPTS {
            match timeout(ADOPT_TIMEOUT, self.runtime.adopt(&self.id)).await {
                Ok(Ok(sandbox)) => {
                    failpoint::pass("recover.adopted");
                    let next = self.freeze_or_thaw(next).await;
                    self.note_network(&sandbox);
                    self.shared.network.note_restart();
                    self.shared.set_adopted(RunnerClient::new(sandbox.address.clone()), next);
                    return Ok(sandbox);
                }
                Ok(Err(RuntimeError::Gone(_))) => {
                    return Err(Gone::Over(EndReason::Crashed(GONE_AT_START.into())));
                }
                Ok(Err(error)) => cause = SessionError::chain(&error),
                Err(_) => cause = "timed out".into(),
            }
            warn!(session_id = %self.id, step = "adopt", attempt, %cause, "sandbox is not taken over yet");
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
        let reason = format!("it could not be taken over from an earlier daemon: {cause}");
        Err(Gone::Over(EndReason::Crashed(reason)))
    }

    /// Freezes or thaws the sandbox so that it matches its phase: a daemon may have changed it without storing that.
    async fn freeze_or_thaw(&self, next: Phase) -> Phase {
        match next {
            Phase::Paused => match failure(timeout(PAUSE_TIMEOUT, self.runtime.pause(&self.id)).await) {
                None => Phase::Paused,
                Some(_) => Phase::Running,
            },
            other => {
                let _ = timeout(PAUSE_TIMEOUT, self.runtime.resume(&self.id)).await;
                other
            }
        }
    }

    /// Removes what is left of a sandbox that was being created.
    pub(super) async fn undo(&self) -> Gone {
        let permit = self.permits.acquire().await;
        let is_removed = self.remove_sandbox().await;
        drop(permit);
        if is_removed {
            failpoint::pass("recover.undone");
            self.record.forget().await;
        }
        Gone::Failed(SessionError::NotFound(self.id.clone()))
    }
}
