//! The one task that owns a session: makes its sandbox, watches over it, and removes it.
//!
//! It decides in what order things happen; when expiry is due is decided in `expiry`, and what a runtime does is the
//! runtime's. It ends only when the runtime has removed the sandbox, or has failed to so often that another try is left to
//! the next start of the daemon.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, oneshot};
use tokio::time::{sleep_until, timeout};
use tracing::{error, info, warn};

use super::expiry::Expiry;
use super::shared::{Facts, Shared};
use super::{End, Phase, SessionError, SessionHandle};
use crate::runner_client::RunnerClient;
use crate::runtime::{Runtime, RuntimeError, Sandbox, SandboxSpec};
use crate::workspace::WorkspaceClaim;

/// How long a sandbox may take to be made, once it is its turn.
const CREATE_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a create may wait for its turn.
const CREATE_TURN_TIMEOUT: Duration = Duration::from_secs(60);
/// A create that is no longer wanted may end by itself for so long; it leaves less behind than one that is cut off.
const CANCEL_GRACE: Duration = Duration::from_millis(500);
const PAUSE_TIMEOUT: Duration = Duration::from_secs(5);
const DESTROY_TIMEOUT: Duration = Duration::from_secs(10);
/// With the pauses below, tries go on for about twelve minutes.
const DESTROY_ATTEMPTS: u32 = 20;
const DESTROY_FIRST_PAUSE: Duration = Duration::from_millis(50);
const DESTROY_LAST_PAUSE: Duration = Duration::from_secs(60);

pub(crate) struct Driver {
    shared: Arc<Shared>,
    runtime: Arc<dyn Runtime>,
    spec: SandboxSpec,
    /// Held until the sandbox is gone: nobody deletes a workspace under it.
    claim: Option<WorkspaceClaim>,
    turns: Arc<Semaphore>,
}

impl Driver {
    pub fn new(
        facts: Facts,
        runtime: Arc<dyn Runtime>,
        spec: SandboxSpec,
        claim: Option<WorkspaceClaim>,
        turns: Arc<Semaphore>,
    ) -> (SessionHandle, Self) {
        let shared = Arc::new(Shared::new(facts));
        (SessionHandle(shared.clone()), Self { shared, runtime, spec, claim, turns })
    }

    /// From nothing to nothing. The phase is final when it returns, except that the caller may want to bury it first:
    /// `before_end` runs when the sandbox is gone and nobody has been told yet.
    pub async fn run(mut self, before_end: impl FnOnce(&Phase)) {
        let last = match self.create().await {
            Ok(sandbox) => {
                let end = self.watch_over(sandbox).await;
                self.remove(end).await
            }
            Err(NotMade::Destroyed) => self.remove(End::Destroyed).await,
            Err(NotMade::Failed(error)) => Phase::Failed(error),
        };
        drop(self.claim.take());
        before_end(&last);
        self.shared.set_phase(last);
    }

    async fn create(&mut self) -> Result<Sandbox, NotMade> {
        let id = self.spec.id.clone();
        let making = async {
            let turn = timeout(CREATE_TURN_TIMEOUT, self.turns.acquire()).await;
            let _turn = turn.ok().and_then(Result::ok).ok_or_else(too_many_creates)?;
            match timeout(CREATE_TIMEOUT, self.runtime.create(&self.spec)).await {
                Ok(made) => made.map_err(CreateError::Runtime),
                Err(_) => Err(CreateError::TimedOut),
            }
        };
        tokio::pin!(making);
        let made = tokio::select! {
            biased;
            () = self.shared.destroy_asked.notified() => {
                self.shared.set_phase(Phase::Ending(End::Destroyed));
                // What it came to does not matter: it is removed.
                let _ = timeout(CANCEL_GRACE, &mut making).await;
                return Err(NotMade::Destroyed);
            }
            made = &mut making => made,
        };
        let mut sandbox = match made {
            Ok(sandbox) => sandbox,
            Err(CreateError::Refused(error)) => return Err(NotMade::Failed(error)),
            Err(CreateError::Runtime(error)) => {
                let cause = SessionError::chain(&error);
                warn!(session_id = %id, step = "create", %cause, "session failed");
                return Err(NotMade::Failed(error.into()));
            }
            Err(CreateError::TimedOut) => {
                warn!(session_id = %id, step = "create", cause = "timed out", "session failed");
                self.remove_sandbox().await;
                let message = format!("the sandbox was not there after {} s", CREATE_TIMEOUT.as_secs());
                return Err(NotMade::Failed(SessionError::Internal(message)));
            }
        };
        // It may have ended before anybody could use it: then it was never there.
        match sandbox.ended.try_recv() {
            Err(oneshot::error::TryRecvError::Empty) => {}
            ended => {
                let reason = ended.unwrap_or_else(|_| UNSEEN_END.into());
                warn!(session_id = %id, step = "create", cause = %reason, "session failed");
                self.remove_sandbox().await;
                return Err(NotMade::Failed(SessionError::Lost { id, reason }));
            }
        }
        self.shared.set_running(RunnerClient::new(sandbox.address.clone()));
        info!(session_id = %id, image = %self.spec.image, runtime = %self.shared.facts.runtime, "session runs");
        Ok(sandbox)
    }

    async fn watch_over(&self, mut sandbox: Sandbox) -> End {
        let shared = &self.shared;
        loop {
            let expiry = shared.expire_if_due();
            let at = match expiry {
                Expiry::Due => return End::Expired,
                Expiry::At(at) => Some(at),
                Expiry::WhenIdle => None,
            };
            tokio::select! {
                biased;
                ended = &mut sandbox.ended => return End::Crashed(ended.unwrap_or_else(|_| UNSEEN_END.into())),
                () = shared.destroy_asked.notified() => return End::Destroyed,
                () = shared.resume_asked.notified() => if let Some(end) = self.resume().await { return end },
                () = shared.pause_asked.notified() => self.pause().await,
                () = shared.idle.notified() => {}
                () = sleep_until(at.unwrap_or_else(tokio::time::Instant::now)), if at.is_some() => {}
            }
        }
    }

    async fn pause(&self) {
        if !self.shared.set_paused_if_idle() {
            return;
        }
        if let Some(cause) = failure(timeout(PAUSE_TIMEOUT, self.runtime.pause(&self.spec.id)).await) {
            warn!(session_id = %self.spec.id, step = "pause", %cause, "session is not paused");
            self.shared.set_phase(Phase::Running);
        }
    }

    /// Wakes it. A destroy does not wait for that; a failure leaves it paused, and those who wait give up in their time.
    async fn resume(&self) -> Option<End> {
        if self.shared.phase() != Phase::Paused {
            return None;
        }
        let resumed = tokio::select! {
            biased;
            () = self.shared.destroy_asked.notified() => return Some(End::Destroyed),
            resumed = timeout(PAUSE_TIMEOUT, self.runtime.resume(&self.spec.id)) => resumed,
        };
        match failure(resumed) {
            None => self.shared.set_phase(Phase::Running),
            Some(cause) => warn!(session_id = %self.spec.id, step = "resume", %cause, "session stays paused"),
        }
        None
    }

    /// Ends it for its clients at once, then removes the sandbox.
    async fn remove(&self, end: End) -> Phase {
        self.shared.set_phase(Phase::Ending(end.clone()));
        match &end {
            End::Crashed(cause) => warn!(session_id = %self.spec.id, %cause, "session crashed"),
            End::Expired => info!(session_id = %self.spec.id, "session expired"),
            End::Destroyed => {}
        }
        self.remove_sandbox().await;
        info!(session_id = %self.spec.id, "session is gone");
        Phase::Ended(end)
    }

    async fn remove_sandbox(&self) {
        let mut pause = DESTROY_FIRST_PAUSE;
        for attempt in 1..=DESTROY_ATTEMPTS {
            let Some(cause) = failure(timeout(DESTROY_TIMEOUT, self.runtime.destroy(&self.spec.id)).await) else {
                return;
            };
            warn!(session_id = %self.spec.id, step = "destroy", attempt, %cause, "sandbox is not removed yet");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(DESTROY_LAST_PAUSE);
        }
        error!(session_id = %self.spec.id, step = "destroy", "sandbox is left to the next start of the daemon");
    }
}

/// What the runtime says of an end that it did not see.
const UNSEEN_END: &str = "its runtime lost sight of it";

enum NotMade {
    Destroyed,
    Failed(SessionError),
}

enum CreateError {
    Refused(SessionError),
    Runtime(RuntimeError),
    TimedOut,
}

fn too_many_creates() -> CreateError {
    CreateError::Refused(SessionError::Limit {
        message: format!("too many sessions are being created: no turn within {} s", CREATE_TURN_TIMEOUT.as_secs()),
        details: serde_json::json!({ "what": "concurrent creates" }),
    })
}

/// The whole cause, or `None` where it worked. What is gone needs no destroying.
fn failure(result: Result<Result<(), RuntimeError>, tokio::time::error::Elapsed>) -> Option<String> {
    match result {
        Ok(Ok(()) | Err(RuntimeError::Gone(_))) => None,
        Ok(Err(error)) => Some(SessionError::chain(&error)),
        Err(_) => Some("timed out".into()),
    }
}
