//! The one task that owns a session: makes its sandbox or takes it over, watches over it, and removes it.
//!
//! It decides in what order things happen; when expiry is due is decided in `expiry`, and what a runtime does is the
//! runtime's. Each step is written down before it is taken (`ledger`). It ends only when the runtime has removed the sandbox, or
//! has failed to so often that another try is left to the next start of the daemon.

use std::sync::Arc;
use std::time::Duration;

use shared_protocol::SessionId;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::{sleep_until, timeout};
use tracing::{error, info, warn};

use super::expiry::Expiry;
use super::ledger::Ledger;
use super::member::Claim;
use super::pause::{PAUSE_TIMEOUT, PauseAsked};
use super::shared::Shared;
use super::{End, Phase, SessionError, SessionHandle};
use crate::failpoint;
use crate::runner_client::RunnerClient;
use crate::runtime::{Runtime, RuntimeError, Sandbox, SandboxSpec};
use crate::store::SessionRow;
use crate::workspace::WorkspaceClaim;

/// How long a sandbox may take to be made, once it is its turn.
const CREATE_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a create may wait for its turn.
const CREATE_TURN_TIMEOUT: Duration = Duration::from_secs(60);
/// A create that is no longer wanted may end by itself for so long; it leaves less behind than one that is cut off.
const CANCEL_GRACE: Duration = Duration::from_millis(500);
/// For one look at a sandbox that an earlier daemon made.
const ADOPT_TIMEOUT: Duration = Duration::from_secs(10);
/// A container engine may still be starting, as we are.
const ADOPT_ATTEMPTS: u32 = 5;
const ADOPT_FIRST_PAUSE: Duration = Duration::from_millis(200);
const DESTROY_TIMEOUT: Duration = Duration::from_secs(10);
/// With the pauses below, tries go on for about twelve minutes.
const DESTROY_ATTEMPTS: u32 = 20;
const DESTROY_FIRST_PAUSE: Duration = Duration::from_millis(50);
const DESTROY_LAST_PAUSE: Duration = Duration::from_secs(60);

/// What a driver finds, and what it is to do about it.
pub(crate) enum Beginning {
    /// Nothing: make it.
    Create { spec: Box<SandboxSpec>, row: Box<SessionRow> },
    /// A sandbox that an earlier daemon made.
    Adopt { is_paused: bool },
    /// What is left of one that was to end.
    Finish(End),
    /// What is left of one that was being made.
    Undo,
    /// A sandbox that waits in a pool.
    Claim(Box<Claim>),
}

pub(crate) struct DriverParts {
    pub shared: Arc<Shared>,
    pub runtime: Arc<dyn Runtime>,
    pub ledger: Ledger,
    /// Held until the sandbox is gone: nobody deletes a workspace under it.
    pub claim: Option<WorkspaceClaim>,
    /// How many sandboxes are made, or taken over, at the same moment.
    pub turns: Arc<Semaphore>,
}

pub(crate) struct Driver {
    pub(super) shared: Arc<Shared>,
    pub(super) id: SessionId,
    pub(super) runtime: Arc<dyn Runtime>,
    pub(super) ledger: Ledger,
    pauses: mpsc::Receiver<PauseAsked>,
    claim: Option<WorkspaceClaim>,
    turns: Arc<Semaphore>,
}

impl Driver {
    pub fn new(parts: DriverParts) -> (SessionHandle, Self) {
        let DriverParts { shared, runtime, ledger, claim, turns } = parts;
        let id = shared.facts.id.clone();
        let pauses = shared.take_pauses();
        (SessionHandle(shared.clone()), Self { shared, id, runtime, ledger, pauses, claim, turns })
    }

    pub fn id(&self) -> &SessionId {
        &self.id
    }

    pub fn shared(&self) -> &Shared {
        &self.shared
    }

    /// To nothing, from whatever there is. The phase is final when it returns, except that the caller may want to bury it first:
    /// `before_end` runs when the sandbox is gone and nobody has been told yet.
    pub async fn run(mut self, beginning: Beginning, before_end: impl FnOnce(&Phase)) {
        let begun = match beginning {
            Beginning::Create { spec, row } => self.create(&spec, *row).await,
            Beginning::Adopt { is_paused } => self.adopt(if is_paused { Phase::Paused } else { Phase::Running }).await,
            Beginning::Claim(claim) => self.claim(*claim).await,
            Beginning::Finish(end) => Err(NotThere::Over(end)),
            Beginning::Undo => Err(self.undo().await),
        };
        let last = match begun {
            Ok(sandbox) => {
                let end = self.watch_over(sandbox).await;
                self.remove(end).await
            }
            Err(NotThere::Over(end)) => self.remove(end).await,
            Err(NotThere::Failed(error)) => Phase::Failed(error),
        };
        drop(self.claim.take());
        before_end(&last);
        self.shared.set_phase(last);
    }

    pub(super) async fn create(&self, spec: &SandboxSpec, row: SessionRow) -> Result<Sandbox, NotThere> {
        failpoint::pass("create.admitted");
        self.ledger.intend(row).await.map_err(NotThere::Failed)?;
        failpoint::pass("create.intended");
        let failed = match self.make(spec).await {
            Ok(sandbox) => {
                failpoint::pass("create.made");
                match self.ledger.running().await {
                    Ok(()) => {
                        failpoint::pass("create.running");
                        self.shared.set_running(RunnerClient::new(sandbox.address.clone()));
                        info!(session_id = %self.id, image = %spec.image, runtime = %self.shared.facts.runtime, "session runs");
                        return Ok(sandbox);
                    }
                    Err(error) => {
                        self.remove_sandbox().await;
                        NotThere::Failed(error)
                    }
                }
            }
            Err(failed) => failed,
        };
        if let NotThere::Failed(_) = failed {
            self.ledger.forget().await;
        }
        Err(failed)
    }

    /// Makes the sandbox. What fails leaves nothing behind.
    pub(super) async fn make(&self, spec: &SandboxSpec) -> Result<Sandbox, NotThere> {
        let id = self.id.clone();
        let making = async {
            let turn = timeout(CREATE_TURN_TIMEOUT, self.turns.acquire()).await;
            let _turn = turn.ok().and_then(Result::ok).ok_or_else(too_many_creates)?;
            failpoint::pass("create.turn");
            match timeout(CREATE_TIMEOUT, self.runtime.create(spec)).await {
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
                return Err(NotThere::Over(End::Destroyed));
            }
            made = &mut making => made,
        };
        let mut sandbox = match made {
            Ok(sandbox) => sandbox,
            Err(CreateError::Refused(error)) => return Err(NotThere::Failed(error)),
            Err(CreateError::Runtime(error)) => {
                let cause = SessionError::chain(&error);
                warn!(session_id = %id, step = "create", %cause, "session failed");
                return Err(NotThere::Failed(error.into()));
            }
            Err(CreateError::TimedOut) => {
                warn!(session_id = %id, step = "create", cause = "timed out", "session failed");
                self.remove_sandbox().await;
                let message = format!("the sandbox was not there after {} s", CREATE_TIMEOUT.as_secs());
                return Err(NotThere::Failed(SessionError::Internal(message)));
            }
        };
        // It may have ended before anybody could use it: then it was never there.
        match sandbox.ended.try_recv() {
            Err(oneshot::error::TryRecvError::Empty) => {}
            ended => {
                let reason = ended.unwrap_or_else(|_| UNSEEN_END.into());
                warn!(session_id = %id, step = "create", cause = %reason, "session failed");
                self.remove_sandbox().await;
                return Err(NotThere::Failed(SessionError::Lost { id, reason }));
            }
        }
        Ok(sandbox)
    }

    /// Takes over what an earlier daemon made. Gone is a crash that nobody saw; what cannot be found out in several tries is
    /// taken for gone, and removed.
    pub(super) async fn adopt(&self, next: Phase) -> Result<Sandbox, NotThere> {
        let _turn = self.turns.acquire().await;
        let mut pause = ADOPT_FIRST_PAUSE;
        let mut cause = String::new();
        for attempt in 1..=ADOPT_ATTEMPTS {
            match timeout(ADOPT_TIMEOUT, self.runtime.adopt(&self.id)).await {
                Ok(Ok(sandbox)) => {
                    failpoint::pass("recover.adopted");
                    // It may have been frozen, or thawed, by a daemon that could not write that down.
                    let next = match next {
                        Phase::Paused => match failure(timeout(PAUSE_TIMEOUT, self.runtime.pause(&self.id)).await) {
                            None => Phase::Paused,
                            Some(_) => Phase::Running,
                        },
                        other => {
                            let _ = timeout(PAUSE_TIMEOUT, self.runtime.resume(&self.id)).await;
                            other
                        }
                    };
                    self.shared.set_adopted(RunnerClient::new(sandbox.address.clone()), next);
                    return Ok(sandbox);
                }
                Ok(Err(RuntimeError::Gone(_))) => {
                    return Err(NotThere::Over(End::Crashed(GONE_AT_START.into())));
                }
                Ok(Err(error)) => cause = SessionError::chain(&error),
                Err(_) => cause = "timed out".into(),
            }
            warn!(session_id = %self.id, step = "adopt", attempt, %cause, "sandbox is not taken over yet");
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
        Err(NotThere::Over(End::Crashed(format!("it could not be taken over from an earlier daemon: {cause}"))))
    }

    async fn undo(&self) -> NotThere {
        let turn = self.turns.acquire().await;
        let is_removed = self.remove_sandbox().await;
        drop(turn);
        if is_removed {
            failpoint::pass("recover.undone");
            self.ledger.forget().await;
        }
        NotThere::Failed(SessionError::NotFound(self.id.clone()))
    }

    async fn watch_over(&mut self, mut sandbox: Sandbox) -> End {
        let shared = self.shared.clone();
        let mut idle_pause = shared.facts.idle_pause;
        loop {
            let at = match shared.decide(idle_pause) {
                Expiry::Due => {
                    failpoint::pass("expire.due");
                    return End::Expired;
                }
                Expiry::Pause => match self.pause_idle(&mut idle_pause).await {
                    Some(end) => return end,
                    None => continue,
                },
                Expiry::At(at) => Some(at),
                Expiry::WhenIdle => None,
            };
            tokio::select! {
                biased;
                ended = &mut sandbox.ended => return End::Crashed(ended.unwrap_or_else(|_| UNSEEN_END.into())),
                () = shared.destroy_asked.notified() => return End::Destroyed,
                () = shared.resume_asked.notified() => if let Some(end) = self.resume().await { return end },
                Some(asked) = self.pauses.recv() => if let Some(end) = self.pause(asked).await { return end },
                () = shared.idle.notified() => {}
                () = sleep_until(at.unwrap_or_else(tokio::time::Instant::now)), if at.is_some() => {}
            }
        }
    }

    /// Ends it for its clients at once, then removes the sandbox.
    async fn remove(&self, end: End) -> Phase {
        self.shared.set_phase(Phase::Ending(end.clone()));
        match &end {
            End::Crashed(cause) => warn!(session_id = %self.id, %cause, "session crashed"),
            End::Expired => info!(session_id = %self.id, "session expired"),
            End::Destroyed => {}
        }
        failpoint::pass("destroy.asked");
        self.ledger.destroying(&end).await;
        failpoint::pass("destroy.intended");
        // What resists keeps its row: the next start tries again.
        if self.remove_sandbox().await {
            failpoint::pass("destroy.removed");
            self.ledger.ended(&end).await;
            failpoint::pass("destroy.ended");
        }
        info!(session_id = %self.id, "session is gone");
        Phase::Ended(end)
    }

    pub(super) async fn remove_sandbox(&self) -> bool {
        let mut pause = DESTROY_FIRST_PAUSE;
        for attempt in 1..=DESTROY_ATTEMPTS {
            let Some(cause) = failure(timeout(DESTROY_TIMEOUT, self.runtime.destroy(&self.id)).await) else {
                return true;
            };
            warn!(session_id = %self.id, step = "destroy", attempt, %cause, "sandbox is not removed yet");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(DESTROY_LAST_PAUSE);
        }
        error!(session_id = %self.id, step = "destroy", "sandbox is left to the next start of the daemon");
        false
    }
}

/// What the runtime says of an end that it did not see.
pub(super) const UNSEEN_END: &str = "its runtime lost sight of it";

/// Of a sandbox that an earlier daemon left running.
const GONE_AT_START: &str = "it was gone when the daemon came back";

pub(super) enum NotThere {
    /// There may be something of it, which is to be removed.
    Over(End),
    /// There is nothing of it.
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
pub(super) fn failure(result: Result<Result<(), RuntimeError>, tokio::time::error::Elapsed>) -> Option<String> {
    match result {
        Ok(Ok(()) | Err(RuntimeError::Gone(_))) => None,
        Ok(Err(error)) => Some(SessionError::chain(&error)),
        Err(_) => Some("timed out".into()),
    }
}
