//! All sessions: who may come in, who is known, who is gone.
//!
//! It decides under one short lock and lets drivers do the work. A create goes on to its end whether or not its client is
//! still there; what nobody could know of (no idempotency key, client gone) is destroyed again.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use serde_json::json;
use shared_protocol::api::{AcquireSource, CreateSessionRequest, ImageView, SessionStatus, SessionView, StatsView};
use shared_protocol::{RuntimeName, SessionId, WorkspaceId};
use tokio::sync::{Notify, Semaphore};
use tokio::time::{Instant, timeout};

use super::admission::{Ask, Limits, millicpus};
use super::driver::{Beginning, DriverParts};
use super::ledger::Ledger;
use super::member::NewMember;
use super::shared::{Facts, Shared};
use super::table::{Entry, KeyLookup, Table};
use super::{Clock, Driver, End, Phase, Plan, SessionError, SessionFilter, SessionHandle};
use crate::config::SessionsConfig;
use crate::hash::stable_hash;
use crate::metrics::Metrics;
use crate::pool::Shelf;
use crate::runtime::{Runtime, SandboxSpec, WorkspaceMount};
use crate::store::{Store, StoredKey, Write};
use crate::workspace::{User, WorkspaceClaim, WorkspaceDirs};

/// Sandboxes being made at the same moment; more only take the cpu from each other.
const MAX_CONCURRENT_CREATES: usize = 16;
/// Sandboxes being removed at the same moment when all are.
const MAX_CONCURRENT_DESTROYS: usize = 64;
const STATS_TIMEOUT: Duration = Duration::from_secs(5);
pub const MAX_IDEMPOTENCY_KEY_BYTES: usize = 255;

/// What a registry is made of.
pub struct RegistryParts {
    /// The first is the default.
    pub runtimes: Vec<Arc<dyn Runtime>>,
    pub config: SessionsConfig,
    pub workspaces: WorkspaceDirs,
    pub metrics: Metrics,
    pub store: Store,
    pub clock: Clock,
}

#[derive(Clone)]
pub struct Registry(pub(super) Arc<Inner>);

pub(super) struct Inner {
    pub runtimes: BTreeMap<RuntimeName, Arc<dyn Runtime>>,
    default_runtime: RuntimeName,
    pub config: SessionsConfig,
    pub workspaces: WorkspaceDirs,
    pub metrics: Metrics,
    pub clock: Clock,
    pub store: Store,
    /// Told when sessions were used.
    pub used: Arc<Notify>,
    pub turns: Arc<Semaphore>,
    table: Mutex<Table>,
    /// Locked behind the table, where both are.
    pub shelf: Mutex<Shelf>,
    /// Members of an earlier daemon, until there are pools.
    pub adopted: Mutex<Vec<NewMember>>,
}

impl Registry {
    /// `None` without a runtime.
    pub fn new(parts: RegistryParts) -> Option<Self> {
        let default_runtime = parts.runtimes.first()?.name();
        let limits = Limits {
            max_sessions: parts.config.max_sessions,
            max_total_memory_mb: parts.config.max_total_memory_mb,
            max_total_millicpus: parts.config.max_total_cpus.map(millicpus),
        };
        Some(Self(Arc::new(Inner {
            runtimes: parts.runtimes.into_iter().map(|runtime| (runtime.name(), runtime)).collect(),
            default_runtime,
            config: parts.config,
            workspaces: parts.workspaces,
            metrics: parts.metrics,
            clock: parts.clock,
            store: parts.store,
            used: Arc::default(),
            turns: Arc::new(Semaphore::new(MAX_CONCURRENT_CREATES)),
            table: Mutex::new(Table::new(limits)),
            shelf: Mutex::default(),
            adopted: Mutex::default(),
        })))
    }

    pub(super) fn table(&self) -> MutexGuard<'_, Table> {
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub async fn create(
        &self,
        request: CreateSessionRequest,
        idempotency_key: Option<&str>,
    ) -> Result<SessionView, SessionError> {
        let start = Instant::now();
        let result = self.create_or_repeat(request, idempotency_key).await;
        let seconds = start.elapsed().as_secs_f64();
        let source = result.as_ref().map_or(AcquireSource::Cold, |view| view.acquire_source);
        self.0.metrics.created(result.is_ok(), source, seconds);
        result
    }

    async fn create_or_repeat(
        &self,
        request: CreateSessionRequest,
        key: Option<&str>,
    ) -> Result<SessionView, SessionError> {
        let is_key = |key: &str| {
            (1..=MAX_IDEMPOTENCY_KEY_BYTES).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_graphic())
        };
        if key.is_some_and(|key| !is_key(key)) {
            let message =
                format!("an idempotency key has 1 to {MAX_IDEMPOTENCY_KEY_BYTES} characters of plain ASCII, no spaces");
            return Err(SessionError::InvalidRequest(message));
        }
        let stored_key = match key {
            Some(key) => Some(StoredKey { key: key.to_owned(), fingerprint: fingerprint(&request)? }),
            None => None,
        };
        let plan = Plan::resolve(request, &self.0.config)?;
        let (handle, is_new) = self.admit(plan, stored_key)?;
        if !is_new {
            // The first request's answer, once there is one; of a session that is over since, what it has become.
            return match handle.phase() {
                Phase::Creating => handle.created().await,
                _ => Ok(handle.view()),
            };
        }
        // Dropped with this future, if its client goes away.
        let unknown = UnlessKept { handle: key.is_none().then(|| handle.clone()) };
        let view = handle.created().await;
        unknown.keep();
        view
    }

    /// Decides, and starts the driver of a session that is let in. The second value tells a new one from a repeat.
    fn admit(&self, plan: Plan, key: Option<StoredKey>) -> Result<(SessionHandle, bool), SessionError> {
        let runtime = self.runtime(plan.runtime.as_ref())?;
        let ask = Ask::of(&plan.resources);
        let mut table = self.table();
        if let Some(StoredKey { key, fingerprint }) = &key {
            match table.look_up_key(key, *fingerprint) {
                KeyLookup::New => {}
                KeyLookup::Same(handle) => return Ok((handle, false)),
                KeyLookup::OtherRequest => {
                    let message = format!("the idempotency key {key:?} came with another request before");
                    return Err(SessionError::Conflict(message));
                }
            }
        }
        if table.closed {
            let message = "the daemon is stopping".to_owned();
            return Err(SessionError::Limit { message, details: json!({ "what": "stopping" }) });
        }
        if let Some(handle) = self.claim_member(&mut table, &runtime, &plan, key.as_ref())? {
            return Ok((handle, true));
        }
        let id = fresh_id(|id| table.knows(id))?;
        let mut spec = plan.spec(id.clone());
        spec.workspace = plan.workspace.as_ref().map(|id| self.0.workspaces.mount(id));
        runtime.check(&spec)?;
        self.make_room(&mut table, &ask)?;
        let claim = match &plan.workspace {
            None => None,
            Some(workspace) => match self.0.workspaces.claim(workspace, User::Session(id.clone())) {
                Ok(claim) => Some(claim),
                Err(error) => {
                    table.release(&ask);
                    return Err(error);
                }
            },
        };
        spec.workspace = claim.as_ref().map(WorkspaceClaim::mount);
        let facts = self.facts(&spec, &plan, runtime.name(), AcquireSource::Cold);
        let row = facts.to_row(key.clone());
        let (handle, driver) = self.driver(facts, runtime, claim, self.0.turns.clone());
        let fingerprint = key.as_ref().map_or(0, |key| key.fingerprint);
        table.insert(Entry { handle: handle.clone(), ask, key: key.map(|key| key.key) }, fingerprint);
        drop(table);
        self.spawn(driver, Beginning::Create { spec: Box::new(spec), row: Box::new(row) });
        Ok((handle, true))
    }

    pub(super) fn driver(
        &self,
        facts: Facts,
        runtime: Arc<dyn Runtime>,
        claim: Option<WorkspaceClaim>,
        turns: Arc<Semaphore>,
    ) -> (SessionHandle, Driver) {
        let ledger = Ledger::new(Some(self.0.store.clone()), facts.id.clone(), facts.clock);
        let shared = Arc::new(Shared::new(facts, self.0.used.clone()));
        Driver::new(DriverParts { shared, runtime, ledger, claim, turns })
    }

    /// Lets the driver of a session in the table do its work, and buries it at the end.
    pub(super) fn spawn(&self, driver: Driver, beginning: Beginning) {
        let registry = self.clone();
        let id = driver.id().clone();
        tokio::spawn(driver.run(beginning, move |last| registry.bury(&id, last)));
    }

    /// Of one whose sandbox is gone.
    pub(super) fn bury(&self, id: &SessionId, last: &Phase) {
        self.table().bury(id, matches!(last, Phase::Ended(_)));
        self.shelf().gone(id);
    }

    pub(super) fn facts(&self, spec: &SandboxSpec, plan: &Plan, runtime: RuntimeName, source: AcquireSource) -> Facts {
        Facts {
            id: spec.id.clone(),
            image: spec.image.clone(),
            runtime,
            workspace: plan.workspace.clone(),
            labels: plan.labels.clone(),
            resources: spec.resources,
            network: spec.network,
            writable_root: spec.writable_root,
            lifetime: plan.lifetime,
            idle_pause: plan.idle_pause,
            source,
            created: Instant::now(),
            clock: self.0.clock,
        }
    }

    pub(super) fn runtime(&self, name: Option<&RuntimeName>) -> Result<Arc<dyn Runtime>, SessionError> {
        let name = name.unwrap_or(&self.0.default_runtime);
        self.0.runtimes.get(name).cloned().ok_or_else(|| {
            let known: Vec<&str> = self.0.runtimes.keys().map(RuntimeName::as_str).collect();
            SessionError::InvalidRequest(format!("no runtime {name} here; there is: {}", known.join(", ")))
        })
    }

    /// A sandbox for the daemon's own use: neither counted nor listed, and never asked for by a client.
    pub(crate) fn start_internal(
        &self,
        plan: Plan,
        mount: impl FnOnce(&SessionId) -> Result<WorkspaceClaim, SessionError>,
        gone: impl FnOnce() + Send + 'static,
    ) -> Result<SessionHandle, SessionError> {
        let runtime = self.runtime(plan.runtime.as_ref())?;
        let id = fresh_id(|id| self.table().knows(id))?;
        let claim = mount(&id)?;
        let workspace: Option<WorkspaceMount> = Some(claim.mount());
        let spec = SandboxSpec { workspace, ..plan.spec(id) };
        runtime.check(&spec)?;
        let facts = self.facts(&spec, &plan, runtime.name(), AcquireSource::Cold);
        let row = facts.to_row(None);
        // Not written down: whatever is left of it after a crash is nobody's, and goes.
        let ledger = Ledger::new(None, spec.id.clone(), facts.clock);
        let shared = Arc::new(Shared::new(facts, self.0.used.clone()));
        let parts = DriverParts { shared, runtime, ledger, claim: Some(claim), turns: self.0.turns.clone() };
        let (handle, driver) = Driver::new(parts);
        let beginning = Beginning::Create { spec: Box::new(spec), row: Box::new(row) };
        tokio::spawn(driver.run(beginning, move |_| gone()));
        Ok(handle)
    }

    pub fn get(&self, id: &SessionId) -> Result<SessionHandle, SessionError> {
        self.table().get(id).ok_or_else(|| SessionError::NotFound(id.clone()))
    }

    /// Those that are not over.
    pub fn live(&self) -> Vec<SessionHandle> {
        self.table().live().cloned().collect()
    }

    pub fn list(&self, filter: &SessionFilter) -> Vec<SessionView> {
        self.table().list(filter)
    }

    /// How many there are, by status, tombstones included.
    pub fn counts(&self) -> HashMap<SessionStatus, u64> {
        let all = SessionFilter { statuses: SessionStatus::ALL.to_vec(), labels: Vec::new() };
        let mut counts = HashMap::new();
        for view in self.table().list(&all) {
            *counts.entry(view.status).or_default() += 1;
        }
        counts
    }

    /// Places taken, sessions that are still being removed included.
    pub fn in_use(&self) -> u64 {
        self.table().in_use()
    }

    /// Live sessions that have it mounted.
    pub fn using(&self, workspace: &WorkspaceId) -> Vec<SessionHandle> {
        self.table().live().filter(|handle| handle.facts().workspace.as_ref() == Some(workspace)).cloned().collect()
    }

    /// A look from outside: it does not renew the session's time, so that a monitor keeps nothing alive.
    pub async fn stats(&self, id: &SessionId) -> Result<StatsView, SessionError> {
        let handle = self.get(id)?;
        // Waits for one that is being made, and refuses what is over.
        handle.created().await?;
        let runtime = self.runtime(Some(&handle.facts().runtime))?;
        match timeout(STATS_TIMEOUT, runtime.stats(id)).await {
            Ok(Ok(stats)) => Ok(stats),
            Ok(Err(error)) => Err(handle.phase().refusal(id).unwrap_or_else(|| error.into())),
            Err(_) => Err(SessionError::Internal(format!("no statistics within {} s", STATS_TIMEOUT.as_secs()))),
        }
    }

    pub fn default_image(&self) -> &str {
        &self.0.config.default_image
    }

    pub fn images(&self) -> Vec<ImageView> {
        let mut images: Vec<ImageView> = self.0.runtimes.values().flat_map(|runtime| runtime.images()).collect();
        for image in &mut images {
            image.default = image.name == self.0.config.default_image && image.runtime == self.0.default_runtime;
        }
        images
    }

    /// Whether every runtime answers and the store can be written, with what is wrong otherwise.
    pub async fn ready(&self, within: Duration) -> Result<(), String> {
        if let Some(failure) = self.0.store.failure() {
            return Err(failure);
        }
        for (name, runtime) in &self.0.runtimes {
            match timeout(within, runtime.list()).await {
                Ok(Ok(_)) => {}
                Ok(Err(error)) => return Err(format!("runtime {name}: {}", SessionError::chain(&error))),
                Err(_) => return Err(format!("runtime {name} does not answer")),
            }
        }
        Ok(())
    }

    /// Destroys one that is known; of one that is over, that is nothing.
    pub async fn destroy(&self, id: &SessionId) -> Result<(), SessionError> {
        let buried = self.table().buried(id);
        let Some(tombstone) = buried else { return self.get(id)?.destroy().await };
        if tombstone.phase() != Phase::Ended(End::Destroyed) {
            tombstone.mark_destroyed();
            let (id, end) = (id.clone(), End::Destroyed.to_stored());
            // Where its runtime is not here, neither is what is left of it: the start that has both ends it.
            let write = match self.0.runtimes.contains_key(&tombstone.facts().runtime) {
                true => Write::Ended { id, end, at: self.0.clock.wall(Instant::now()) },
                false => Write::Destroying { id, end },
            };
            if let Err(cause) = self.0.store.write(write).await {
                tracing::warn!(session_id = %tombstone.id(), step = "destroy", %cause, "session is not written down");
            }
        }
        Ok(())
    }

    /// Lets nobody in any more and destroys all, each within its own bound.
    pub async fn destroy_all(&self) {
        let all: Vec<SessionHandle> = {
            let mut table = self.table();
            table.closed = true;
            table.live().cloned().collect()
        };
        // Over for their clients at once; the runtime's work is spread.
        let destroys = all.into_iter().map(|handle| async move {
            if let Err(error) = handle.destroy().await {
                tracing::warn!(session_id = %handle.id(), cause = %error, "session is left");
            }
        });
        futures_util::stream::iter(destroys).buffer_unordered(MAX_CONCURRENT_DESTROYS).collect::<()>().await;
    }
}

/// Destroys a session that its creator can no longer learn of.
struct UnlessKept {
    handle: Option<SessionHandle>,
}

impl UnlessKept {
    fn keep(mut self) {
        self.handle = None;
    }
}

impl Drop for UnlessKept {
    fn drop(&mut self) {
        if let Some(handle) = self.handle.take() {
            tracing::info!(session_id = %handle.id(), "client left before its session was there");
            handle.ask_destroy();
        }
    }
}

/// Of a request, the same in every build: it is kept with its key.
fn fingerprint(request: &CreateSessionRequest) -> Result<u64, SessionError> {
    let bytes = serde_json::to_vec(request).map_err(|e| SessionError::Internal(e.to_string()))?;
    Ok(stable_hash(&bytes))
}

/// Like `7183cb80-d6c`.
pub(super) fn fresh_id(taken: impl Fn(&SessionId) -> bool) -> Result<SessionId, SessionError> {
    const ATTEMPTS: usize = 16;
    for _ in 0..ATTEMPTS {
        let random = getrandom::u64().map_err(|e| SessionError::Internal(format!("no randomness: {e}")))?;
        let text = format!("{:08x}-{:03x}", (random >> 12) & 0xffff_ffff, random & 0xfff);
        let id = SessionId::new(text).map_err(|e| SessionError::Internal(e.to_string()))?;
        if !taken(&id) {
            return Ok(id);
        }
    }
    Err(SessionError::Internal("no free session id was found".into()))
}

#[cfg(test)]
#[path = "registry_test.rs"]
mod tests;
