//! What a session's driver and its handles share: facts that never change, the phase, and the count of activity.
//!
//! Only the driver sets the phase (and the registry, of a tombstone). Both the phase and the counts are changed under
//! `live`, so that nothing can begin in a session that is found to be idle in the same moment.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use shared_protocol::api::{AcquireSource, NetworkMode, ResourcesView, SessionView};
use shared_protocol::{RuntimeName, SessionId, WorkspaceId};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::clock::Clock;
use super::expiry::{Expiry, expiry};
use super::{Activity, End, Phase, SessionError};
use crate::runner_client::RunnerClient;

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
    pub created: Instant,
    pub clock: Clock,
}

#[derive(Debug)]
pub struct Shared {
    pub facts: Facts,
    live: Mutex<Live>,
    phase: watch::Sender<Phase>,
    /// Wake-ups of the driver. Each holds one permit, so that none is lost while it does something else.
    pub destroy_asked: Notify,
    pub resume_asked: Notify,
    pub pause_asked: Notify,
    pub idle: Notify,
}

#[derive(Debug)]
struct Live {
    /// There is one from `Running` until the session is over.
    runner: Option<RunnerClient>,
    active: usize,
    last_activity: Instant,
    cwd: String,
    /// The driver sleeps until nothing is active. Otherwise an end of activity costs no wake-up: it looks by itself.
    driver_waits: bool,
}

/// What became of an attempt to begin.
pub enum Begin {
    Begun(Activity),
    Wait,
    Resume,
    Refused(SessionError),
}

impl Shared {
    pub fn new(facts: Facts) -> Self {
        let last_activity = facts.created;
        Self {
            facts,
            live: Mutex::new(Live {
                runner: None,
                active: 0,
                last_activity,
                cwd: "/workspace".into(),
                driver_waits: false,
            }),
            phase: watch::Sender::new(Phase::Creating),
            destroy_asked: Notify::new(),
            resume_asked: Notify::new(),
            pause_asked: Notify::new(),
            idle: Notify::new(),
        }
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
                drop(live);
                Begin::Begun(Activity::new(self.clone(), runner))
            }
            (Phase::Paused, _) => Begin::Resume,
            (other, _) => other.refusal(&self.facts.id).map_or(Begin::Wait, Begin::Refused),
        }
    }

    pub fn end_activity(&self) {
        let mut live = self.live();
        live.active = live.active.saturating_sub(1);
        live.last_activity = Instant::now();
        if live.active == 0 && std::mem::take(&mut live.driver_waits) {
            self.idle.notify_one();
        }
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
        self.phase.send_replace(Phase::Running);
    }

    pub fn set_phase(&self, phase: Phase) {
        let mut live = self.live();
        if matches!(phase, Phase::Ending(_) | Phase::Ended(_) | Phase::Failed(_)) {
            live.runner = None;
        }
        self.phase.send_replace(phase);
    }

    /// Pauses unless something runs, or it does not run itself.
    pub fn set_paused_if_idle(&self) -> bool {
        let live = self.live();
        let may = live.active == 0 && matches!(*self.phase.borrow(), Phase::Running);
        if may {
            self.phase.send_replace(Phase::Paused);
        }
        may
    }

    /// Decides on expiry and, if it is due, ends the session in the same moment: nothing can begin between the two.
    pub fn expire_if_due(&self) -> Expiry {
        let mut live = self.live();
        let decision = expiry(Instant::now(), live.last_activity, live.active, self.facts.lifetime);
        live.driver_waits = decision == Expiry::WhenIdle;
        if decision == Expiry::Due {
            live.runner = None;
            self.phase.send_replace(Phase::Ending(End::Expired));
        }
        decision
    }

    pub fn view(&self) -> SessionView {
        let live = self.live();
        let phase = self.phase.borrow();
        let facts = &self.facts;
        let last_activity = if live.active > 0 { Instant::now() } else { live.last_activity };
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
            acquire_source: AcquireSource::Cold,
            created_at: facts.clock.show(facts.created),
            expires_at: facts.clock.show(last_activity + facts.lifetime),
            last_activity: facts.clock.show(last_activity),
            reason: phase.reason().map(str::to_owned),
        }
    }
}
