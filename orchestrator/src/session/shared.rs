//! What a session's driver and its handles share: the constant facts, the phase, and the count of activities.
//!
//! Only the driver sets the phase (and the registry, for a tombstone). The phase and the counts change together under
//! `state`, so that nothing can begin in a session at the moment when it is found idle.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use shared_protocol::api::{AcquireSource, SessionView};
use tokio::sync::{Notify, Semaphore, mpsc, watch};
use tokio::time::Instant;

use super::driver::expiry::{Expiry, Usage, expiry};
use super::driver::keep::{KeepAsked, MAX_KEEPS_ASKED};
use super::driver::pause::{MAX_PAUSES_ASKED, PauseAsked};
use super::driver::update::{MAX_UPDATES_ASKED, UpdateAsked};
use super::facts::{FIRST_CWD, Facts};
use super::resolve::Update;
use super::{Activity, DetachedActivity, EndReason, Phase, SessionError};
use crate::network::{Network, SessionNetwork};
use crate::runner_client::RunnerClient;
use crate::spec::{LinkGenerations, SessionSpec};
use crate::store::{SessionRow, Touch};

/// The most detached commands of one session that are followed to their end: each takes a connection to the runner. Further
/// ones run too, but do not count as use.
pub const MAX_DETACHED_FOLLOWED: usize = 64;

#[derive(Debug)]
pub struct Shared {
    pub facts: Facts,
    pub network: Arc<SessionNetwork>,
    /// The generations of links: those of the spec, until a client takes links back.
    pub links: watch::Sender<LinkGenerations>,
    state: Mutex<SessionState>,
    phase: watch::Sender<Phase>,
    /// Wakes the driver. The permit is kept, so no wake-up is lost while the driver is busy.
    pub destroy_asked: Notify,
    pub resume_asked: Notify,
    pub pause_asked: mpsc::Sender<PauseAsked>,
    pub update_asked: mpsc::Sender<UpdateAsked>,
    /// Snapshots, stops and starts.
    pub keep_asked: mpsc::Sender<KeepAsked>,
    /// One stop or start of the session at a time, from its admission to its end: so a start finds the place of a stopped session as the
    /// stop has left it.
    pub keep_turn: Arc<Semaphore>,
    /// The receivers of requests to the driver, until the driver takes them.
    requests: Mutex<Option<DriverRequests>>,
    pub idle: Notify,
    /// Notified when there is a use to store, and not again until that use was taken.
    used: Arc<Notify>,
}

/// What clients ask a driver for.
pub struct DriverRequests {
    pub pauses: mpsc::Receiver<PauseAsked>,
    pub updates: mpsc::Receiver<UpdateAsked>,
    pub keeps: mpsc::Receiver<KeepAsked>,
}

impl std::fmt::Debug for DriverRequests {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DriverRequests")
    }
}

/// The state that changes while the session lives.
#[derive(Debug)]
struct SessionState {
    /// The lifetime and the labels: those of the spec, until a client changes them.
    lifetime: Duration,
    labels: BTreeMap<String, String>,
    /// The runner's client, set from `Running` until the session is over.
    runner: Option<RunnerClient>,
    active: usize,
    /// The number of detached commands that are followed to their end.
    detached: usize,
    last_activity: Instant,
    cwd: String,
    /// Whether the driver waits for the end of all activity. If not, the end of an activity wakes nobody.
    driver_waits: bool,
    /// Whether the session was used since its last use was stored.
    is_used: bool,
    source: AcquireSource,
}

/// The result of an attempt to begin an activity.
pub enum Begin {
    Begun(Activity),
    Wait,
    Resume,
    Refused(SessionError),
}

impl Shared {
    pub fn new(facts: Facts, network: &Network, used: Arc<Notify>) -> Self {
        let spec = &facts.spec;
        let policy = network.recall(&spec.network, &spec.network_maximum, spec.inject.as_deref().unwrap_or_default());
        let network = SessionNetwork::new(network.clone(), facts.id.clone(), spec.owner.clone(), policy);
        let network = Arc::new(network);
        let links = watch::Sender::new(spec.links.clone());
        let (last_activity, source) = (facts.created, facts.source);
        let (lifetime, labels) = (facts.spec.lifetime, facts.spec.labels.clone());
        let (pause_asked, pauses) = mpsc::channel(MAX_PAUSES_ASKED);
        let (update_asked, updates) = mpsc::channel(MAX_UPDATES_ASKED);
        let (keep_asked, keeps) = mpsc::channel(MAX_KEEPS_ASKED);
        Self {
            facts,
            network,
            links,
            state: Mutex::new(SessionState {
                lifetime,
                labels,
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
            update_asked,
            keep_asked,
            keep_turn: Arc::new(Semaphore::new(1)),
            idle: Notify::new(),
            requests: Mutex::new(Some(DriverRequests { pauses, updates, keeps })),
            used,
        }
    }

    /// The receivers of requests, for the one driver. A second caller gets queues without senders.
    pub fn take_requests(&self) -> DriverRequests {
        let taken = self.requests.lock().unwrap_or_else(PoisonError::into_inner).take();
        taken.unwrap_or_else(|| DriverRequests {
            pauses: mpsc::channel(1).1,
            updates: mpsc::channel(1).1,
            keeps: mpsc::channel(1).1,
        })
    }

    /// Changes lifetime, labels, network and links. The idle time restarts, and the driver looks again when the session expires.
    pub fn update(&self, update: Update) {
        if let Some(network) = update.network {
            self.network.set_policy(network);
        }
        if let Some(links) = update.links {
            self.links.send_replace(links);
        }
        let mut state = self.state();
        if let Some(lifetime) = update.lifetime {
            state.lifetime = lifetime;
        }
        if let Some(labels) = update.labels {
            state.labels = labels;
        }
        state.last_activity = Instant::now();
        self.note_use(&mut state);
    }

    /// Restores the use of the session that an earlier daemon stored. Call it before anybody else has the session.
    pub fn recall(&self, row: &SessionRow) {
        let mut state = self.state();
        state.last_activity = self.facts.clock.recall(row.last_activity, state.lifetime);
        row.cwd.clone_into(&mut state.cwd);
    }

    fn state(&self) -> MutexGuard<'_, SessionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn phase(&self) -> Phase {
        self.phase.borrow().clone()
    }

    pub fn watch(&self) -> watch::Receiver<Phase> {
        self.phase.subscribe()
    }

    pub fn begin(self: &Arc<Self>) -> Begin {
        let mut state = self.state();
        let phase = self.phase.borrow();
        match (&*phase, &state.runner) {
            (Phase::Running, Some(runner)) => {
                let runner = runner.clone();
                drop(phase);
                state.active += 1;
                state.last_activity = Instant::now();
                self.note_use(&mut state);
                drop(state);
                Begin::Begun(Activity::new(self.clone(), runner))
            }
            (Phase::Paused, _) => Begin::Resume,
            (other, _) => other.refusal(&self.facts.id).map_or(Begin::Wait, Begin::Refused),
        }
    }

    pub fn runner(&self) -> Option<RunnerClient> {
        let state = self.state();
        let runs = matches!(*self.phase.borrow(), Phase::Running);
        state.runner.clone().filter(|_| runs)
    }

    /// The runner's client, whether or not the session is paused.
    pub fn client(&self) -> Option<RunnerClient> {
        self.state().runner.clone()
    }

    pub fn end_activity(&self) {
        let mut state = self.state();
        state.active = state.active.saturating_sub(1);
        self.used(state);
    }

    /// Counts a detached command until the value is dropped. `None` if the most commands are already followed.
    pub fn begin_detached(self: &Arc<Self>) -> Option<DetachedActivity> {
        let mut state = self.state();
        if state.detached >= MAX_DETACHED_FOLLOWED {
            return None;
        }
        state.detached += 1;
        drop(state);
        Some(DetachedActivity::new(self.clone()))
    }

    pub fn end_detached(&self) {
        let mut state = self.state();
        state.detached = state.detached.saturating_sub(1);
        self.used(state);
    }

    /// Records the end of an activity: the idle time restarts, and the driver is woken if it waits for that.
    fn used(&self, mut state: MutexGuard<'_, SessionState>) {
        state.last_activity = Instant::now();
        self.note_use(&mut state);
        if state.active + state.detached == 0 && std::mem::take(&mut state.driver_waits) {
            self.idle.notify_one();
        }
    }

    fn usage(&self, state: &SessionState) -> Usage {
        Usage {
            last_activity: state.last_activity,
            requests: state.active,
            detached: state.detached,
            is_paused: matches!(*self.phase.borrow(), Phase::Paused),
        }
    }

    /// When the session was used last. `None` while it is in use.
    pub fn idle_since(&self) -> Option<Instant> {
        let usage = self.usage(&self.state());
        (!usage.is_in_use()).then_some(usage.last_activity)
    }

    fn note_use(&self, state: &mut SessionState) {
        if !std::mem::replace(&mut state.is_used, true) {
            self.used.notify_one();
        }
    }

    /// The last use, if there was one since the last call, and whether the session is in use now.
    pub fn take_use(&self) -> Option<(Touch, bool)> {
        let mut state = self.state();
        let is_active = state.active + state.detached > 0;
        if !std::mem::take(&mut state.is_used) && !is_active {
            return None;
        }
        let last_activity = if is_active { Instant::now() } else { state.last_activity };
        let facts = &self.facts;
        let touch =
            Touch { id: facts.id.clone(), last_activity: facts.clock.wall(last_activity), cwd: state.cwd.clone() };
        Some((touch, is_active))
    }

    /// Undoes `take_use`, because the use could not be stored.
    pub fn give_use_back(&self) {
        self.state().is_used = true;
    }

    pub fn set_cwd(&self, cwd: &str) {
        let mut state = self.state();
        if state.cwd != cwd {
            cwd.clone_into(&mut state.cwd);
        }
    }

    /// Sets the phase to running. The lifetime begins now, so a slow create takes nothing from it.
    pub fn set_running(&self, runner: RunnerClient) {
        let mut state = self.state();
        state.runner = Some(runner);
        state.last_activity = Instant::now();
        self.note_use(&mut state);
        self.phase.send_replace(Phase::Running);
    }

    /// Sets the phase to running after a pause. The idle time restarts, so that the session is not paused again before the
    /// request begins.
    pub fn set_awake(&self) {
        let mut state = self.state();
        state.last_activity = Instant::now();
        self.phase.send_replace(Phase::Running);
    }

    /// Restores the phase of a sandbox that an earlier daemon left. Its idle time continues.
    pub fn set_adopted(&self, runner: RunnerClient, next: Phase) {
        let mut state = self.state();
        state.runner = Some(runner);
        self.phase.send_replace(next);
    }

    /// Sets the phase of a sandbox that now waits in a pool.
    pub fn set_pooled(&self, runner: RunnerClient) {
        self.set_adopted(runner, Phase::Pooled);
    }

    pub fn pooled_runner(&self) -> Option<RunnerClient> {
        let state = self.state();
        let is_pooled = *self.phase.borrow() == Phase::Pooled;
        state.runner.clone().filter(|_| is_pooled)
    }

    /// Corrects the source of the sandbox.
    pub fn set_source(&self, source: AcquireSource) {
        self.state().source = source;
    }

    pub fn set_phase(&self, phase: Phase) {
        let mut state = self.state();
        if matches!(phase, Phase::Ending(_) | Phase::Ended(_) | Phase::Failed(_) | Phase::Stopped) {
            state.runner = None;
        }
        self.phase.send_replace(phase);
    }

    /// Pauses the session for a client. Refused while a request is in flight. Returns `false` if the session is already
    /// paused. The idle time restarts.
    pub fn set_paused(&self) -> Result<bool, SessionError> {
        let mut state = self.state();
        if matches!(*self.phase.borrow(), Phase::Paused) {
            return Ok(false);
        }
        if state.active > 0 {
            let message = format!(
                "{} requests are under way in session {}; wait for them, or run long commands with detach",
                state.active, self.facts.id
            );
            return Err(SessionError::Conflict(message));
        }
        state.last_activity = Instant::now();
        self.phase.send_replace(Phase::Paused);
        Ok(true)
    }

    /// Decides whether the session expires or is paused and, if so, changes the phase under the same lock, so that nothing
    /// can begin in between.
    pub fn decide(&self, idle_pause: Option<Duration>) -> Expiry {
        let mut state = self.state();
        let decision = expiry(Instant::now(), self.usage(&state), state.lifetime, idle_pause);
        state.driver_waits = decision == Expiry::WhenIdle;
        match decision {
            Expiry::Due => {
                state.runner = None;
                self.phase.send_replace(Phase::Ending(EndReason::Expired));
            }
            Expiry::Pause => drop(self.phase.send_replace(Phase::Paused)),
            Expiry::At(_) | Expiry::WhenIdle => {}
        }
        decision
    }

    /// The spec, with what clients have changed since.
    pub fn current_spec(&self) -> SessionSpec {
        let state = self.state();
        SessionSpec {
            lifetime: state.lifetime,
            labels: state.labels.clone(),
            network: self.network.asked(),
            ..(*self.facts.spec).clone()
        }
    }

    pub fn view(&self) -> SessionView {
        let state = self.state();
        let in_use = self.usage(&state).is_in_use();
        let phase = self.phase.borrow();
        let facts = &self.facts;
        // The lifetime of a pooled sandbox has not begun, and that of a stopped one begins when it is started.
        let is_waiting = matches!(*phase, Phase::Filling | Phase::Pooled | Phase::Stopped);
        let last_activity = if in_use || is_waiting { Instant::now() } else { state.last_activity };
        let spec = &facts.spec;
        SessionView {
            id: facts.id.clone(),
            name: spec.name.clone(),
            owner: spec.owner.clone(),
            image: spec.image.clone(),
            runtime: spec.runtime.clone(),
            status: phase.status(),
            cwd: state.cwd.clone(),
            workspace_id: spec.workspace.clone(),
            labels: state.labels.clone(),
            resources: spec.resources,
            network: self.network.asked(),
            writable_root: spec.writable_root,
            user: spec.user,
            profiles: spec.profiles.clone(),
            acquire_source: state.source,
            created_at: facts.clock.show(facts.created),
            expires_at: facts.clock.show(last_activity + state.lifetime),
            last_activity: facts.clock.show(last_activity),
            reason: phase.reason().map(str::to_owned),
        }
    }
}
