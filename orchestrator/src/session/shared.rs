//! What a session's driver and its handles share: facts that never change, the phase, and the count of activity.
//!
//! Only the driver sets the phase (and the registry, of a tombstone). Both the phase and the counts are changed under
//! `live`, so that nothing can begin in a session that is found to be idle in the same moment.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use shared_protocol::api::{AcquireSource, NetworkMode, ResourcesView, SessionStatus, SessionView};
use shared_protocol::{RuntimeName, SessionId, WorkspaceId};
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::Instant;

use super::clock::Clock;
use super::expiry::{Expiry, Usage, expiry};
use super::pause::{MAX_PAUSES_ASKED, PauseAsked};
use super::{Activity, DetachedActivity, End, Phase, SessionError};
use crate::runner_client::RunnerClient;
use crate::store::{SessionRow, StoredFacts, StoredKey, Touch};

/// Detached commands of one session whose end is waited for: each takes a connection to the runner. More run as well, but do
/// not count as use.
pub const MAX_DETACHED_FOLLOWED: usize = 64;

/// What is known of a session from its beginning to its end.
#[derive(Debug, Clone)]
pub struct Facts {
    pub id: SessionId,
    pub image: String,
    pub runtime: RuntimeName,
    pub workspace: Option<WorkspaceId>,
    pub labels: BTreeMap<String, String>,
    pub resources: ResourcesView,
    pub network: NetworkMode,
    pub writable_root: bool,
    /// The shorter of TTL and idle time.
    pub lifetime: Duration,
    /// How long it may be idle before it is paused; `None`: for ever.
    pub idle_pause: Option<Duration>,
    pub source: AcquireSource,
    pub created: Instant,
    pub clock: Clock,
}

impl Facts {
    /// As they were written down.
    pub fn of_row(row: &SessionRow, clock: Clock) -> Self {
        let facts = &row.facts;
        Self {
            id: row.id.clone(),
            image: facts.image.clone(),
            runtime: facts.runtime.clone(),
            workspace: facts.workspace.clone(),
            labels: facts.labels.clone(),
            resources: facts.resources,
            network: facts.network,
            writable_root: facts.writable_root,
            lifetime: Duration::from_secs(facts.lifetime_seconds),
            idle_pause: facts.idle_pause_seconds.map(Duration::from_secs),
            source: facts.source,
            created: clock.instant(row.created_at),
            clock,
        }
    }

    /// To be written down before the sandbox is made.
    pub fn to_row(&self, key: Option<StoredKey>) -> SessionRow {
        let created_at = self.clock.wall(self.created);
        SessionRow {
            id: self.id.clone(),
            status: SessionStatus::Creating,
            end: None,
            facts: StoredFacts {
                image: self.image.clone(),
                runtime: self.runtime.clone(),
                workspace: self.workspace.clone(),
                labels: self.labels.clone(),
                resources: self.resources,
                network: self.network,
                writable_root: self.writable_root,
                lifetime_seconds: self.lifetime.as_secs(),
                idle_pause_seconds: self.idle_pause.map(|idle| idle.as_secs()),
                source: self.source,
            },
            key,
            created_at,
            last_activity: created_at,
            ended_at: None,
            cwd: FIRST_CWD.into(),
        }
    }
}

/// Where a shell begins.
const FIRST_CWD: &str = "/workspace";

#[derive(Debug)]
pub struct Shared {
    pub facts: Facts,
    live: Mutex<Live>,
    phase: watch::Sender<Phase>,
    /// Wake-ups of the driver. Each holds one permit, so that none is lost while it does something else.
    pub destroy_asked: Notify,
    pub resume_asked: Notify,
    pub pause_asked: mpsc::Sender<PauseAsked>,
    /// The other end, until the driver takes it.
    pauses: Mutex<Option<mpsc::Receiver<PauseAsked>>>,
    pub idle: Notify,
    /// Told when there is something to be written down, and not again before that was taken.
    used: Arc<Notify>,
}

#[derive(Debug)]
struct Live {
    /// There is one from `Running` until the session is over.
    runner: Option<RunnerClient>,
    active: usize,
    /// Detached commands that are followed to their end.
    detached: usize,
    last_activity: Instant,
    cwd: String,
    /// The driver sleeps until nothing is active. Otherwise an end of activity costs no wake-up: it looks by itself.
    driver_waits: bool,
    /// Used since it was last written down.
    is_used: bool,
    source: AcquireSource,
}

/// What became of an attempt to begin.
pub enum Begin {
    Begun(Activity),
    Wait,
    Resume,
    Refused(SessionError),
}

impl Shared {
    pub fn new(facts: Facts, used: Arc<Notify>) -> Self {
        let (last_activity, source) = (facts.created, facts.source);
        let (pause_asked, pauses) = mpsc::channel(MAX_PAUSES_ASKED);
        Self {
            facts,
            live: Mutex::new(Live {
                runner: None,
                active: 0,
                detached: 0,
                last_activity,
                cwd: FIRST_CWD.into(),
                driver_waits: false,
                is_used: false,
                source,
            }),
            phase: watch::Sender::new(Phase::Creating),
            destroy_asked: Notify::new(),
            resume_asked: Notify::new(),
            pause_asked,
            idle: Notify::new(),
            pauses: Mutex::new(Some(pauses)),
            used,
        }
    }

    /// Those who ask for a pause, for the one driver. There is nobody behind a second one.
    pub fn take_pauses(&self) -> mpsc::Receiver<PauseAsked> {
        let taken = self.pauses.lock().unwrap_or_else(PoisonError::into_inner).take();
        taken.unwrap_or_else(|| mpsc::channel(1).1)
    }

    /// What an earlier daemon wrote down of its use. Before anybody else has it.
    pub fn recall(&self, row: &SessionRow) {
        let mut live = self.live();
        live.last_activity = self.facts.clock.recall(row.last_activity, self.facts.lifetime);
        row.cwd.clone_into(&mut live.cwd);
    }

    fn live(&self) -> MutexGuard<'_, Live> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn phase(&self) -> Phase {
        self.phase.borrow().clone()
    }

    pub fn watch(&self) -> watch::Receiver<Phase> {
        self.phase.subscribe()
    }

    pub fn begin(self: &Arc<Self>) -> Begin {
        let mut live = self.live();
        let phase = self.phase.borrow();
        match (&*phase, &live.runner) {
            (Phase::Running, Some(runner)) => {
                let runner = runner.clone();
                drop(phase);
                live.active += 1;
                live.last_activity = Instant::now();
                self.note_use(&mut live);
                drop(live);
                Begin::Begun(Activity::new(self.clone(), runner))
            }
            (Phase::Paused, _) => Begin::Resume,
            (other, _) => other.refusal(&self.facts.id).map_or(Begin::Wait, Begin::Refused),
        }
    }

    pub fn runner(&self) -> Option<RunnerClient> {
        let live = self.live();
        let runs = matches!(*self.phase.borrow(), Phase::Running);
        live.runner.clone().filter(|_| runs)
    }

    pub fn end_activity(&self) {
        let mut live = self.live();
        live.active = live.active.saturating_sub(1);
        self.used(live);
    }

    /// Counts a detached command until the value is dropped; `None` where as many are followed as may be.
    pub fn begin_detached(self: &Arc<Self>) -> Option<DetachedActivity> {
        let mut live = self.live();
        if live.detached >= MAX_DETACHED_FOLLOWED {
            return None;
        }
        live.detached += 1;
        drop(live);
        Some(DetachedActivity::new(self.clone()))
    }

    pub fn end_detached(&self) {
        let mut live = self.live();
        live.detached = live.detached.saturating_sub(1);
        self.used(live);
    }

    /// Something has ended: its time begins anew, and the driver hears of it if it waits for that.
    fn used(&self, mut live: MutexGuard<'_, Live>) {
        live.last_activity = Instant::now();
        self.note_use(&mut live);
        if live.active + live.detached == 0 && std::mem::take(&mut live.driver_waits) {
            self.idle.notify_one();
        }
    }

    fn usage(&self, live: &Live) -> Usage {
        Usage {
            last_activity: live.last_activity,
            requests: live.active,
            detached: live.detached,
            is_paused: matches!(*self.phase.borrow(), Phase::Paused),
        }
    }

    fn note_use(&self, live: &mut Live) {
        if !std::mem::replace(&mut live.is_used, true) {
            self.used.notify_one();
        }
    }

    /// Its last use, if there was one since this was last asked, and whether it is in use now.
    pub fn take_use(&self) -> Option<(Touch, bool)> {
        let mut live = self.live();
        let is_active = live.active + live.detached > 0;
        if !std::mem::take(&mut live.is_used) && !is_active {
            return None;
        }
        let last_activity = if is_active { Instant::now() } else { live.last_activity };
        let facts = &self.facts;
        let touch =
            Touch { id: facts.id.clone(), last_activity: facts.clock.wall(last_activity), cwd: live.cwd.clone() };
        Some((touch, is_active))
    }

    /// What was taken could not be written down.
    pub fn give_use_back(&self) {
        self.live().is_used = true;
    }

    pub fn set_cwd(&self, cwd: &str) {
        let mut live = self.live();
        if live.cwd != cwd {
            cwd.clone_into(&mut live.cwd);
        }
    }

    /// The sandbox is there. Its time begins now: a slow create takes nothing of it.
    pub fn set_running(&self, runner: RunnerClient) {
        let mut live = self.live();
        live.runner = Some(runner);
        live.last_activity = Instant::now();
        self.note_use(&mut live);
        self.phase.send_replace(Phase::Running);
    }

    /// Somebody needs it: its time begins anew, or it would be idle again before they could begin.
    pub fn set_awake(&self) {
        let mut live = self.live();
        live.last_activity = Instant::now();
        self.phase.send_replace(Phase::Running);
    }

    /// The sandbox is still there, as an earlier daemon left it. Its time goes on.
    pub fn set_adopted(&self, runner: RunnerClient, next: Phase) {
        let mut live = self.live();
        live.runner = Some(runner);
        self.phase.send_replace(next);
    }

    /// The sandbox is there, and waits for somebody.
    pub fn set_pooled(&self, runner: RunnerClient) {
        self.set_adopted(runner, Phase::Pooled);
    }

    pub fn pooled_runner(&self) -> Option<RunnerClient> {
        let live = self.live();
        let is_pooled = *self.phase.borrow() == Phase::Pooled;
        live.runner.clone().filter(|_| is_pooled)
    }

    /// It came from elsewhere than was thought.
    pub fn set_source(&self, source: AcquireSource) {
        self.live().source = source;
    }

    pub fn set_phase(&self, phase: Phase) {
        let mut live = self.live();
        if matches!(phase, Phase::Ending(_) | Phase::Ended(_) | Phase::Failed(_)) {
            live.runner = None;
        }
        self.phase.send_replace(phase);
    }

    /// As a client asks for it: not under a request in flight. `false` where it is paused already. Its time begins anew.
    pub fn set_paused(&self) -> Result<bool, SessionError> {
        let mut live = self.live();
        if matches!(*self.phase.borrow(), Phase::Paused) {
            return Ok(false);
        }
        if live.active > 0 {
            let message = format!(
                "{} requests are under way in session {}; wait for them, or run long commands with detach",
                live.active, self.facts.id
            );
            return Err(SessionError::Conflict(message));
        }
        live.last_activity = Instant::now();
        self.phase.send_replace(Phase::Paused);
        Ok(true)
    }

    /// Decides on expiry and on sleep and, where one is due, changes the phase in the same moment: nothing can begin between
    /// the two.
    pub fn decide(&self, idle_pause: Option<Duration>) -> Expiry {
        let mut live = self.live();
        let decision = expiry(Instant::now(), self.usage(&live), self.facts.lifetime, idle_pause);
        live.driver_waits = decision == Expiry::WhenIdle;
        match decision {
            Expiry::Due => {
                live.runner = None;
                self.phase.send_replace(Phase::Ending(End::Expired));
            }
            Expiry::Pause => drop(self.phase.send_replace(Phase::Paused)),
            Expiry::At(_) | Expiry::WhenIdle => {}
        }
        decision
    }

    pub fn view(&self) -> SessionView {
        let live = self.live();
        let in_use = self.usage(&live).is_in_use();
        let phase = self.phase.borrow();
        let facts = &self.facts;
        // The time of one that waits in a pool has not begun.
        let is_waiting = matches!(*phase, Phase::Filling | Phase::Pooled);
        let last_activity = if in_use || is_waiting { Instant::now() } else { live.last_activity };
        SessionView {
            id: facts.id.clone(),
            image: facts.image.clone(),
            runtime: facts.runtime.clone(),
            status: phase.status(),
            cwd: live.cwd.clone(),
            workspace_id: facts.workspace.clone(),
            labels: facts.labels.clone(),
            resources: facts.resources,
            network: facts.network,
            writable_root: facts.writable_root,
            acquire_source: live.source,
            created_at: facts.clock.show(facts.created),
            expires_at: facts.clock.show(last_activity + facts.lifetime),
            last_activity: facts.clock.show(last_activity),
            reason: phase.reason().map(str::to_owned),
        }
    }
}
