//! The registry of all sessions: it admits new ones (`create`), finds known ones (`table`), and forgets ended ones.
//!
//! It decides under one short lock, the table's, and the drivers do the work.
//!
//! **Invariant:** nothing is awaited and no disk is touched under the table's lock, so a slow data directory delays only the
//! sessions that need it.

pub mod admission;
mod create;
mod maintenance;
pub mod table;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use shared_protocol::api::{ImageView, NetworkSpec, SessionStatus, SessionView, StatsView, UpdateSessionRequest};
use shared_protocol::{KeyName, RuntimeName, SessionId};
use tokio::sync::{Notify, Semaphore};
use tokio::time::{Instant, timeout};

pub use admission::{Demand, Limits, Refusal, Scope};
pub use create::{DestroyUnlessKept, FromSnapshot, fresh_id};

use self::admission::millicpus;
use self::table::Table;
use super::driver::{Driver, DriverParts, Role, SessionRecord, Start};
use super::facts::Facts;
use super::pool::{FillingSandbox, IdlePools};
use super::resolve::Update;
use super::shared::Shared;
use super::snapshots::SnapshotTable;
use super::{Clock, EndReason, Phase, SessionError, SessionFilter, SessionHandle};
use crate::config::{SessionsConfig, SnapshotsConfig};
use crate::metrics::Metrics;
use crate::network::Network;
use crate::owner::{OwnerUsage, WorkspaceName};
use crate::runtime::Runtime;
use crate::store::{Store, Write};
use crate::workspace::{WorkspaceDirs, WorkspaceHold};

/// The most sandboxes that are created at the same time. More would only take CPU time from each other.
const MAX_CONCURRENT_CREATES: usize = 16;
/// The most sandboxes that are removed at the same time when all of them are removed.
const MAX_CONCURRENT_DESTROYS: usize = 64;
const STATS_TIMEOUT: Duration = Duration::from_secs(5);

/// The parts that a registry is made of.
pub struct RegistryParts {
    /// The runtimes, the default one first.
    pub runtimes: Vec<Arc<dyn Runtime>>,
    pub config: SessionsConfig,
    pub snapshots: SnapshotsConfig,
    pub workspaces: WorkspaceDirs,
    pub network: Network,
    pub metrics: Metrics,
    pub store: Store,
    pub clock: Clock,
}

#[derive(Clone)]
pub struct Registry(pub(in crate::session) Arc<Inner>);

pub(in crate::session) struct Inner {
    pub runtimes: BTreeMap<RuntimeName, Arc<dyn Runtime>>,
    pub default_runtime: RuntimeName,
    pub config: SessionsConfig,
    pub workspaces: WorkspaceDirs,
    pub network: Network,
    pub metrics: Metrics,
    pub clock: Clock,
    pub store: Store,
    pub snapshots: SnapshotTable,
    /// Notified when a session is used.
    pub used: Arc<Notify>,
    /// The permits for creating sandboxes.
    pub create_permits: Arc<Semaphore>,
    table: Mutex<Table>,
    /// The pools. If both locks are needed, the table's is taken first.
    pub pools: Mutex<IdlePools>,
    /// The pooled sandboxes of an earlier daemon, until the pools are open.
    pub adopted: Mutex<Vec<FillingSandbox>>,
}

/// The disk limit for all sessions together. `None` if their files are in memory, which has its own limit.
fn disk_total_mb(parts: &RegistryParts) -> Option<u64> {
    let on_disk = parts.runtimes.iter().find_map(|runtime| runtime.disk_total_mb())?;
    Some(parts.config.max_total_disk_mb.unwrap_or(on_disk.saturating_mul(parts.config.disk_overcommit)))
}

impl Registry {
    /// Makes a registry. `None` if there is no runtime.
    pub fn new(parts: RegistryParts) -> Option<Self> {
        let default_runtime = parts.runtimes.first()?.name();
        let limits = Limits {
            max_sessions: parts.config.max_sessions,
            max_total_memory_mb: Some(parts.config.total_memory_mb()),
            max_total_disk_mb: disk_total_mb(&parts),
            max_total_millicpus: parts.config.max_total_cpus.map(millicpus),
        };
        let on_disk = parts.runtimes.iter().find_map(|runtime| runtime.disk_total_mb());
        Some(Self(Arc::new(Inner {
            runtimes: parts.runtimes.into_iter().map(|runtime| (runtime.name(), runtime)).collect(),
            default_runtime,
            config: parts.config,
            workspaces: parts.workspaces,
            network: parts.network,
            metrics: parts.metrics,
            clock: parts.clock,
            store: parts.store,
            snapshots: SnapshotTable::new(parts.snapshots.on_disks(on_disk)),
            used: Arc::default(),
            create_permits: Arc::new(Semaphore::new(MAX_CONCURRENT_CREATES)),
            table: Mutex::new(Table::new(limits)),
            pools: Mutex::default(),
            adopted: Mutex::default(),
        })))
    }

    pub(in crate::session) fn table(&self) -> MutexGuard<'_, Table> {
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(in crate::session) fn driver(
        &self,
        facts: Facts,
        role: Role,
        runtime: Arc<dyn Runtime>,
        workspace: Option<WorkspaceHold>,
        permits: Arc<Semaphore>,
    ) -> (SessionHandle, Driver) {
        let record = SessionRecord::new(Some(self.0.store.clone()), facts.id.clone(), facts.clock);
        let shared = Arc::new(Shared::new(facts, &self.0.network, self.0.used.clone()));
        Driver::new(DriverParts { shared, role, runtime, record, workspace, permits })
    }

    /// Runs the driver of a session in the table, and takes the session out of the table at the end.
    pub(in crate::session) fn spawn(&self, driver: Driver, start: Start) {
        let registry = self.clone();
        let id = driver.id().clone();
        tokio::spawn(driver.run(start, move |last| registry.sandbox_is_gone(&id, last)));
    }

    fn sandbox_is_gone(&self, id: &SessionId, last: &Phase) {
        self.table().retire(id, matches!(last, Phase::Ended(_)));
        self.idle_pools().sandbox_is_gone(id);
    }

    pub(in crate::session) fn runtime(&self, name: &RuntimeName) -> Result<Arc<dyn Runtime>, SessionError> {
        self.0.runtimes.get(name).cloned().ok_or_else(|| {
            let known: Vec<&str> = self.0.runtimes.keys().map(RuntimeName::as_str).collect();
            SessionError::InvalidRequest(format!("no runtime {name} here; there is: {}", known.join(", ")))
        })
    }

    pub fn default_runtime(&self) -> &RuntimeName {
        &self.0.default_runtime
    }

    pub fn get(&self, id: &SessionId) -> Result<SessionHandle, SessionError> {
        self.table().get(id).ok_or_else(|| SessionError::NotFound(id.clone()))
    }

    /// The sessions that have not ended.
    pub fn live(&self) -> Vec<SessionHandle> {
        self.table().live().cloned().collect()
    }

    pub fn list(&self, filter: &SessionFilter) -> Vec<SessionView> {
        self.table().list(filter)
    }

    /// The number of sessions by status, including tombstones.
    pub fn counts(&self) -> HashMap<SessionStatus, u64> {
        let all = SessionFilter { statuses: SessionStatus::ALL.to_vec(), ..SessionFilter::default() };
        let mut counts = HashMap::new();
        for view in self.table().list(&all) {
            *counts.entry(view.status).or_default() += 1;
        }
        counts
    }

    /// The number of taken places, including sessions that are still being removed.
    pub fn in_use(&self) -> u64 {
        self.table().in_use()
    }

    /// What the sessions of an owner have of the limits, including those that are still being removed.
    pub fn usage_of(&self, owner: &KeyName) -> OwnerUsage {
        self.table().usage_of(owner)
    }

    /// The live sessions that have this workspace mounted.
    pub fn using(&self, workspace: &WorkspaceName) -> Vec<SessionHandle> {
        self.table().live().filter(|handle| handle.facts().spec.uses(workspace)).cloned().collect()
    }

    /// Reads what a session uses. This is no activity of the session, so a monitor keeps nothing alive.
    pub async fn stats(&self, id: &SessionId) -> Result<StatsView, SessionError> {
        let handle = self.get(id)?;
        // This waits for a session that is being created, and refuses one that has ended.
        handle.created().await?;
        let runtime = self.runtime(&handle.facts().spec.runtime)?;
        match timeout(STATS_TIMEOUT, runtime.stats(id)).await {
            Ok(Ok(stats)) => Ok(stats),
            Ok(Err(error)) => Err(handle.phase().refusal(id).unwrap_or_else(|| error.into())),
            Err(_) => Err(SessionError::Internal(format!("no statistics within {} s", STATS_TIMEOUT.as_secs()))),
        }
    }

    /// Checks a change of a session by the rules of a create.
    /// Refuses a network that a session cannot be changed to.
    pub fn check_network(&self, session: &SessionHandle, asked: &NetworkSpec) -> Result<(), SessionError> {
        let runtime = self.runtime(&session.facts().spec.runtime)?;
        if runtime.is_fixed_network(&session.network().asked()) || runtime.is_fixed_network(asked) {
            let message = "the session has, or would have, a network of the container engine (docker.network), which it keeps \
                           for its whole life: create another session";
            return Err(SessionError::Conflict(message.into()));
        }
        if !asked.is_none() {
            runtime.opens_network(asked)?;
        }
        Ok(())
    }

    pub fn check_update(&self, request: UpdateSessionRequest) -> Result<Update, SessionError> {
        Update::resolve(request, &self.0.config)
    }

    pub fn default_image(&self) -> &str {
        &self.0.config.default_image
    }

    pub async fn images(&self) -> Vec<ImageView> {
        let mut images = Vec::new();
        for runtime in self.0.runtimes.values() {
            images.extend(runtime.images().await);
        }
        for image in &mut images {
            image.default = image.name == self.0.config.default_image && image.runtime == self.0.default_runtime;
        }
        images
    }

    /// Checks that every runtime answers and that the store can be written. The error says what is wrong.
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

    /// Destroys a session. A session that has already ended needs no work, and is no error.
    pub async fn destroy(&self, id: &SessionId) -> Result<(), SessionError> {
        let tombstone = self.table().tombstone(id);
        let Some(tombstone) = tombstone else { return self.get(id)?.destroy().await };
        if tombstone.phase() != Phase::Ended(EndReason::Destroyed) {
            tombstone.mark_destroyed();
            let (id, end) = (id.clone(), EndReason::Destroyed.to_stored());
            // If the session's runtime is missing, its sandbox may still exist: the next start that has the runtime removes
            // it.
            let write = match self.0.runtimes.contains_key(&tombstone.facts().spec.runtime) {
                true => Write::Ended { id, end, at: self.0.clock.wall(Instant::now()) },
                false => Write::Destroying { id, end },
            };
            if let Err(cause) = self.0.store.write(write).await {
                tracing::warn!(session_id = %tombstone.id(), step = "destroy", %cause, "session could not be stored");
            }
        }
        Ok(())
    }

    /// Refuses new sessions and destroys all existing ones, each with its own time limit.
    pub async fn destroy_all(&self) {
        // A stopped session was stopped to be kept.
        let all = self.table().close().into_iter().filter(|handle| handle.phase() != Phase::Stopped);
        // For clients all sessions end at once; the work of the runtime is spread.
        let destroys = all.map(|handle| async move {
            if let Err(error) = handle.destroy().await {
                tracing::warn!(session_id = %handle.id(), cause = %error, "session could not be destroyed");
            }
        });
        futures_util::stream::iter(destroys).buffer_unordered(MAX_CONCURRENT_DESTROYS).collect::<()>().await;
    }
}

#[cfg(test)]
#[path = "registry_test.rs"]
mod tests;
