//! The driver: the one task that owns a sandbox, for a session or for a pool. It creates the sandbox or takes it over,
//! watches it, and removes it.
//!
//! ```text
//!  Start ──▶ create │ claim │ adopt ──▶ the sandbox is there ──▶ watch_over (a session)      ──▶ remove ──▶ nothing is left
//!                                        ▲ start            │ stop
//!                                        └──── stopped ◀────┘
//!              │                                           └──▶ wait_for_claim (a pool)  ──▶ remove, or handed over to a
//!              └──▶ failed: nothing of it is left                                             session's driver, by value
//! ```
//!
//! The driver decides the order of the steps; `expiry` decides when a session expires, `health` when its runner is lost, and
//! the runtime does the work. Each step is stored before it is taken (`record`). The task ends only when the runtime has removed the sandbox, or has failed
//! so often that the next start of the daemon has to try again.

mod adopt;
mod claim;
mod create;
pub mod expiry;
mod health;
pub mod keep;
pub mod pause;
mod record;
mod stopped;
pub mod update;
mod wait_for_claim;

use std::sync::Arc;
use std::time::Duration;

use shared_protocol::SessionId;
use tokio::sync::Semaphore;
use tokio::time::{sleep_until, timeout};
use tracing::{error, info, warn};

pub use claim::Claim;
pub use record::SessionRecord;
pub use wait_for_claim::{HandOver, HandOverRequest};

use self::expiry::Expiry;
use self::health::Health;
use self::keep::AfterKeep;
use super::shared::{DriverRequests, Shared};
use super::snapshots::SnapshotHold;
use super::{EndReason, Phase, SessionError, SessionHandle};
use crate::failpoint;
use crate::network::{Gateway, SeenWayOut};
use crate::runtime::{Runtime, RuntimeError, Sandbox, SandboxSpec, WayOut};
use crate::spec::Variables;
use crate::store::SessionRow;
use crate::workspace::WorkspaceHold;

const DESTROY_TIMEOUT: Duration = Duration::from_secs(10);
/// The most attempts to remove a sandbox. With the pauses below, they take about twelve minutes.
const DESTROY_ATTEMPTS: u32 = 20;
const DESTROY_FIRST_PAUSE: Duration = Duration::from_millis(50);
const DESTROY_LAST_PAUSE: Duration = Duration::from_secs(60);

/// The state in which a driver starts, and so what it does first.
pub enum Start {
    /// Nothing exists yet: create the sandbox.
    Create(Box<Creation>),
    /// A sandbox waits in a pool and becomes this session's sandbox.
    Claim(Box<Claim>),
    /// An earlier daemon made the sandbox. It is taken over in its last phase.
    Adopt(Phase),
    /// An earlier daemon began to end the session.
    Finish(EndReason),
    /// An earlier daemon stopped the session, or began to.
    Stopped,
    /// An earlier daemon began to create the sandbox.
    Undo,
}

/// A sandbox to create, and the row that is stored before.
pub struct Creation {
    pub sandbox: SandboxSpec,
    pub row: SessionRow,
    /// What the client asked for if the sandbox starts from a snapshot.
    pub restored: Option<Restored>,
}

/// What a sandbox that starts from a snapshot needs while it is created.
pub struct Restored {
    /// The variables that the client names, and those of the daemon. They take the place of those in the snapshot.
    pub env: Variables,
    /// The snapshot cannot be removed meanwhile.
    pub hold: SnapshotHold,
}

/// The owner that the sandbox is for.
pub enum Role {
    Session,
    /// A pool, until a session claims the sandbox.
    Pooled(HandOverRequest),
}

pub struct DriverParts {
    pub shared: Arc<Shared>,
    pub role: Role,
    pub runtime: Arc<dyn Runtime>,
    pub record: SessionRecord,
    /// Held until the sandbox is gone, so that nobody deletes the workspace meanwhile.
    pub workspace: Option<WorkspaceHold>,
    /// Limits how many sandboxes are created or taken over at the same time.
    pub permits: Arc<Semaphore>,
}

pub struct Driver {
    shared: Arc<Shared>,
    id: SessionId,
    role: Role,
    runtime: Arc<dyn Runtime>,
    record: SessionRecord,
    requests: DriverRequests,
    workspace: Option<WorkspaceHold>,
    permits: Arc<Semaphore>,
}

/// Why the driver no longer watches over a sandbox.
enum Watched {
    Over(EndReason),
    /// Its processes have ended, and its disk is kept.
    Stopped,
}

/// Why the driver has no sandbox, or none any more.
enum Gone {
    /// The session is over. Parts of the sandbox may exist and must be removed.
    Over(EndReason),
    /// The create failed, and nothing is left of the sandbox.
    Failed(SessionError),
    /// Another driver has the sandbox.
    HandedOver,
}

impl Driver {
    pub fn new(parts: DriverParts) -> (SessionHandle, Self) {
        let DriverParts { shared, role, runtime, record, workspace, permits } = parts;
        let id = shared.facts.id.clone();
        let requests = shared.take_requests();
        let handle = SessionHandle(shared.clone());
        (handle, Self { shared, id, role, runtime, record, requests, workspace, permits })
    }

    pub fn id(&self) -> &SessionId {
        &self.id
    }

    pub fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Drives the sandbox from its start to its removal, or to another driver. `before_end` runs when the sandbox is gone
    /// and before anybody is told. It is not called for a sandbox that was handed over, because its id then belongs to the
    /// other driver.
    pub async fn run(mut self, start: Start, before_end: impl FnOnce(&Phase)) {
        let started = match start {
            Start::Create(creation) => self.create(*creation).await,
            Start::Claim(claim) => self.claim(*claim).await,
            Start::Adopt(next) => self.adopt(next).await,
            Start::Finish(end) => Err(Gone::Over(end)),
            Start::Stopped => self.adopt_stopped().await,
            Start::Undo => Err(self.undo().await),
        };
        let gone = match started {
            Ok(sandbox) => match &mut self.role {
                Role::Session => Gone::Over(self.live(sandbox).await),
                Role::Pooled(request) => wait_for_claim::wait_for_claim(&self.shared, request, sandbox).await,
            },
            Err(gone) => gone,
        };
        let last = match gone {
            Gone::Over(end) => self.remove(end).await,
            Gone::Failed(error) => Phase::Failed(error),
            Gone::HandedOver => return self.shared.set_phase(Phase::Ended(EndReason::Destroyed)),
        };
        drop(self.workspace.take());
        before_end(&last);
        self.shared.set_phase(last);
    }

    /// Watches over the sandbox, and over the disk while the session is stopped, until the session is over.
    async fn live(&mut self, mut sandbox: Sandbox) -> EndReason {
        loop {
            match self.watch_over(sandbox).await {
                Watched::Over(end) => return end,
                Watched::Stopped => match self.wait_for_start().await {
                    Ok(started) => sandbox = started,
                    Err(end) => return end,
                },
            }
        }
    }

    async fn watch_over(&mut self, mut sandbox: Sandbox) -> Watched {
        let shared = self.shared.clone();
        let _gateway = self.open_gateway(&mut sandbox);
        let mut idle_pause = shared.facts.spec.idle_pause;
        let mut health = shared.client().map(|runner| Health::new(self.id.clone(), runner, self.runtime.clone()));
        loop {
            let at = match shared.decide(idle_pause) {
                Expiry::Due => {
                    failpoint::pass("expire.due");
                    return Watched::Over(EndReason::Expired);
                }
                Expiry::Pause => match self.pause_idle(&mut idle_pause).await {
                    Some(end) => return Watched::Over(end),
                    None => continue,
                },
                Expiry::At(at) => Some(at),
                Expiry::WhenIdle => None,
            };
            let is_awake = shared.phase() == Phase::Running;
            if let (Some(health), false) = (&mut health, is_awake) {
                health.forget();
            }
            tokio::select! {
                biased;
                ended = &mut sandbox.ended => {
                    return Watched::Over(EndReason::Crashed(ended.unwrap_or_else(|_| UNSEEN_END.into())));
                }
                () = shared.destroy_asked.notified() => return Watched::Over(EndReason::Destroyed),
                () = shared.resume_asked.notified() => {
                    if let Some(end) = self.resume().await { return Watched::Over(end) }
                }
                Some(asked) = self.requests.pauses.recv() => {
                    if let Some(end) = self.pause(asked).await { return Watched::Over(end) }
                }
                Some(asked) = self.requests.updates.recv() => self.update(asked).await,
                Some(asked) = self.requests.keeps.recv() => {
                    if self.keep(asked).await == AfterKeep::Stopped { return Watched::Stopped }
                }
                () = shared.idle.notified() => {}
                Some(reason) = lost(&mut health), if is_awake => return Watched::Over(EndReason::Crashed(reason)),
                () = sleep_until(at.unwrap_or_else(tokio::time::Instant::now)), if at.is_some() => {}
            }
        }
    }

    /// Records whether the sandbox has a way to the network, before anybody can ask.
    fn note_network(&self, sandbox: &Sandbox) {
        match sandbox.network {
            Some(WayOut::Sockets(_)) => self.shared.network.set_way_out(SeenWayOut::Dial),
            Some(WayOut::Proxy { port }) => self.shared.network.set_way_out(SeenWayOut::Proxy { port }),
            None => {}
        }
    }

    /// Records where the first shell begins, if that is not the workspace.
    fn note_start_dir(&self, sandbox: &Sandbox) {
        if let Some(path) = &sandbox.start_dir {
            self.shared.set_cwd(path);
        }
    }

    /// Starts to serve the network of the sandbox. Connections that programs have begun meanwhile have waited for it.
    fn open_gateway(&self, sandbox: &mut Sandbox) -> Option<Gateway> {
        let sockets = match sandbox.network.take()? {
            WayOut::Sockets(sockets) => sockets,
            WayOut::Proxy { .. } => return Some(Gateway::start_proxy(&self.shared.network, self.shared.client()?)),
        };
        let opened = Gateway::start(&self.shared.network, sockets);
        opened.inspect_err(|cause| warn!(session_id = %self.id, %cause, "the session has no network")).ok()
    }

    /// Ends the session for its clients at once, then removes the sandbox. An ended session stays known for a while; a
    /// pooled sandbox, which no client had, does not. If the sandbox cannot be removed, its row stays and the next start
    /// tries again.
    async fn remove(&self, end: EndReason) -> Phase {
        match self.role {
            Role::Session => {
                self.shared.set_phase(Phase::Ending(end.clone()));
                match &end {
                    EndReason::Crashed(cause) => warn!(session_id = %self.id, %cause, "session crashed"),
                    EndReason::Expired => info!(session_id = %self.id, "session expired"),
                    EndReason::Destroyed => {}
                }
                failpoint::pass("destroy.asked");
                self.record.destroying(&end).await;
                failpoint::pass("destroy.intended");
                if self.remove_sandbox().await {
                    failpoint::pass("destroy.removed");
                    self.record.ended(&end).await;
                    failpoint::pass("destroy.ended");
                }
                info!(session_id = %self.id, "session is gone");
                Phase::Ended(end)
            }
            Role::Pooled(_) => {
                if let EndReason::Crashed(cause) = &end {
                    warn!(session_id = %self.id, %cause, "pooled sandbox ended");
                }
                self.record.destroying(&end).await;
                failpoint::pass("pool.discarding");
                if self.remove_sandbox().await {
                    self.record.forget().await;
                }
                Phase::Failed(SessionError::NotFound(self.id.clone()))
            }
        }
    }

    /// Removes the sandbox. Returns `false` if the runtime failed in every attempt.
    async fn remove_sandbox(&self) -> bool {
        if self.shared.facts.spec.inject.is_some() {
            self.shared.network.remove_authority().await;
        }
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

/// Resolves when the runner no longer answers. `None` if there is no runner to ask.
async fn lost(health: &mut Option<Health>) -> Option<String> {
    match health {
        Some(health) => Some(health.lost().await),
        None => None,
    }
}

/// The cause of an end that the runtime did not observe.
const UNSEEN_END: &str = "its runtime lost sight of it";

/// The full cause of a failure, or `None` if it worked. If the sandbox is already gone, that is a success.
fn failure(result: Result<Result<(), RuntimeError>, tokio::time::error::Elapsed>) -> Option<String> {
    match result {
        Ok(Ok(()) | Err(RuntimeError::Gone(_))) => None,
        Ok(Err(error)) => Some(SessionError::chain(&error)),
        Err(_) => Some("timed out".into()),
    }
}
