//! The registry's side of pools: starting sandboxes in advance, giving a pooled sandbox to a create, and evicting pooled
//! sandboxes to make room for a create.
//!
//! Decisions are made under the table's lock and then the pools' lock, always in this order. Neither is held over an await
//! or a disk operation.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::json;
use shared_protocol::RuntimeName;
use shared_protocol::api::{AcquireSource, CreateSessionRequest, PoolView};
use tokio::sync::{Notify, Semaphore, oneshot};
use tokio::time::timeout;
use tracing::{info, warn};

use super::filler::{Filler, health_problem};
use super::idle_pools::{Claimed, IdlePools, PoolKey};
use super::policy::choose_evictions;
use super::{FillingSandbox, PooledSandbox};
use crate::config::MAX_POOL_SIZE;
use crate::metrics::{Metrics, PoolResult};
use crate::owner::Creator;
use crate::runtime::{Origin, Purpose, Runtime, SandboxSpec};
use crate::session::driver::{Claim, Role, Start};
use crate::session::facts::Facts;
use crate::session::registry::table::{Entry, Table};
use crate::session::registry::{Demand, Refusal, Scope, fresh_id};
use crate::session::{Phase, Plan, Registry, SessionError, SessionHandle};
use crate::spec::{LateWorkspaces, SessionSpec, Variables};
use crate::store::{SessionRow, StoredKey};

/// How long the start of the daemon waits for a pooled sandbox of an earlier daemon. A new one is started faster than that.
const ADOPT_PATIENCE: Duration = Duration::from_secs(10);

fn limit(refusal: &Refusal) -> SessionError {
    SessionError::Limit { message: refusal.message(), details: refusal.details() }
}

/// The refusal as this creator may see it: how much of the daemon is in use is a fact about the sessions of others.
fn limit_for(creator: &Creator, refusal: &Refusal) -> SessionError {
    if refusal.of == Scope::Key || creator.sees_totals {
        return limit(refusal);
    }
    let message = "the daemon has no room for another session now; try again later".to_owned();
    SessionError::Limit { message, details: json!({ "of": "daemon" }) }
}

impl Registry {
    pub(in crate::session) fn idle_pools(&self) -> MutexGuard<'_, IdlePools> {
        self.0.pools.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(in crate::session) fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    pub fn pools(&self) -> Vec<PoolView> {
        self.idle_pools().views()
    }

    /// Creates a pool, or changes how many sandboxes wait in it; 0 closes it.
    pub async fn set_pool(
        &self,
        image: &str,
        runtime: Option<&RuntimeName>,
        size: u64,
    ) -> Result<PoolView, SessionError> {
        let (key, view, is_known) = self.define_pool(image, runtime, size).await?;
        if !is_known {
            self.start_filler(key);
        }
        Ok(view)
    }

    async fn define_pool(
        &self,
        image: &str,
        runtime: Option<&RuntimeName>,
        size: u64,
    ) -> Result<(PoolKey, PoolView, bool), SessionError> {
        let size = usize::try_from(size)
            .ok()
            .filter(|_| size <= MAX_POOL_SIZE)
            .ok_or_else(|| SessionError::InvalidRequest(format!("size must be 0 to {MAX_POOL_SIZE}, not {size}")))?;
        let runtime = self.runtime(runtime.unwrap_or(&self.0.default_runtime))?;
        let request = CreateSessionRequest {
            image: Some(image.to_owned()),
            runtime: Some(runtime.name()),
            ..CreateSessionRequest::default()
        };
        // The template is an empty request with all defaults, so an ordinary create fits the pool.
        let template = self.resolve(request, &Creator::first())?.spec;
        if size > 0 {
            runtime.check(&template, &Origin::Empty).await?;
        }
        let key = PoolKey::of(&template);
        let mut pools = self.idle_pools();
        let is_known =
            pools.set(key.clone(), template, runtime.late_workspaces(), size).map_err(|most| SessionError::Limit {
                message: format!("there are {most} pools already"),
                details: json!({ "what": "pools", "limit": most }),
            })?;
        let view = pools.get(&key).map(|pool| pool.view(&key));
        let view = view.ok_or_else(|| SessionError::Internal("the pool is gone".into()))?;
        Ok((key, view, is_known))
    }

    fn start_filler(&self, key: PoolKey) {
        let changed: Option<Arc<Notify>> = self.idle_pools().get(&key).map(|pool| pool.changed.clone());
        if let Some(changed) = changed {
            tokio::spawn(Filler::new(self.clone(), key, changed).run());
        }
    }

    /// Starts a sandbox for a pool. It takes a free place and evicts nothing.
    pub(super) fn start_pooled(&self, template: &Arc<SessionSpec>) -> Result<FillingSandbox, SessionError> {
        let runtime = self.runtime(&template.runtime)?;
        let demand = Demand::of(&template.resources);
        let mut table = self.table();
        table.refuse_if_closed()?;
        let id = fresh_id(|id| table.knows(id))?;
        table.admit(&demand, None).map_err(|refusal| limit(&refusal))?;
        let sandbox = SandboxSpec {
            id,
            session: template.clone(),
            workspace: None,
            awaits_workspace: true,
            env: Variables::default(),
            authority: None,
            purpose: Purpose::Session,
            origin: Origin::Empty,
        };
        let (facts, creation) = self.creation(sandbox, AcquireSource::Pool, None);
        let start = Start::Create(Box::new(creation));
        let permits = self.0.create_permits.clone();
        Ok(self.spawn_pooled(facts, demand, runtime, permits, start, |entry| table.insert(entry)))
    }

    fn spawn_pooled(
        &self,
        facts: Facts,
        demand: Demand,
        runtime: Arc<dyn Runtime>,
        permits: Arc<Semaphore>,
        start: Start,
        insert: impl FnOnce(Entry),
    ) -> FillingSandbox {
        let (hand_over, request) = oneshot::channel();
        let (handle, driver) = self.driver(facts, Role::Pooled(request), runtime, None, permits);
        handle.0.set_phase(Phase::Filling);
        insert(Entry::pooled(handle.clone(), demand));
        self.spawn(driver, start);
        FillingSandbox { handle, demand, hand_over }
    }

    /// Gives a waiting pooled sandbox to a create that fits. The session takes over its place and its id.
    pub(in crate::session) fn claim_pooled(
        &self,
        table: &mut Table,
        creator: &Creator,
        runtime: &Arc<dyn Runtime>,
        plan: &Plan,
        key: Option<&StoredKey>,
    ) -> Result<Option<SessionHandle>, SessionError> {
        let spec = &plan.spec;
        let mut pools = self.idle_pools();
        loop {
            let pooled = match pools.take(spec) {
                Claimed::Sandbox(pooled) => *pooled,
                Claimed::Miss => {
                    self.0.metrics.pool_claim(&spec.image, PoolResult::Miss);
                    return Ok(None);
                }
                Claimed::NoPool => return Ok(None),
            };
            let id = pooled.id().clone();
            if table.is_evicted(&id) {
                continue;
            }
            // The sandbox has its place among all, but the creator's key may have no room for it. Both are counted under this
            // lock, so what fits here still fits below.
            if let Err(refusal) = table.check_share(&pooled.demand, creator) {
                pools.put_back(&PoolKey::of(spec), pooled);
                return Err(limit_for(creator, &refusal));
            }
            let workspace = match self.hold_workspace(spec, &id) {
                Ok(workspace) => workspace,
                Err(error) => {
                    pools.put_back(&PoolKey::of(spec), pooled);
                    return Err(error);
                }
            };
            let PooledSandbox { demand, runner, hand_over, .. } = pooled;
            let (to, sandbox) = oneshot::channel();
            if hand_over.send(to).is_err() {
                // The sandbox ended, and its driver is about to report that.
                continue;
            }
            table.assign(&demand, creator).map_err(|refusal| limit_for(creator, &refusal))?;
            self.0.metrics.pool_claim(&spec.image, PoolResult::Hit);
            let asked = SandboxSpec {
                id,
                session: spec.clone(),
                workspace: None,
                awaits_workspace: false,
                env: plan.env.clone(),
                authority: None,
                purpose: Purpose::Session,
                origin: Origin::Empty,
            };
            let (facts, creation) = self.creation(asked, AcquireSource::Pool, key.cloned());
            let permits = self.0.create_permits.clone();
            let (handle, driver) = self.driver(facts, Role::Session, runtime.clone(), workspace, permits);
            // The session replaces the pooled sandbox in the table.
            table.insert(Entry::session(handle.clone(), demand, key.cloned()));
            let claim = Claim { creation, sandbox, runner, metrics: self.0.metrics.clone() };
            self.spawn(driver, Start::Claim(Box::new(claim)));
            return Ok(Some(handle));
        }
    }

    /// Takes room for a session. If only pooled sandboxes are in the way, some of them are evicted: the session gets their
    /// places at once, and their sandboxes are removed afterwards.
    pub(in crate::session) fn make_room(
        &self,
        table: &mut Table,
        demand: &Demand,
        creator: &Creator,
    ) -> Result<(), SessionError> {
        let Err(refusal) = table.admit(demand, Some(creator)) else { return Ok(()) };
        if refusal.of == Scope::Key {
            // Room in the daemon would not help.
            return Err(limit_for(creator, &refusal));
        }
        let mut pools = self.idle_pools();
        // This is tried on a copy first, so that nothing is evicted for a create that is refused anyway.
        let trial = RefCell::new(table.admission());
        let evicted = choose_evictions(
            pools.evictable().into_iter().filter(|(id, _)| !table.is_evicted(id)),
            || trial.borrow_mut().admit(demand, Some(creator)),
            |(_, demand)| trial.borrow_mut().release(demand, None),
        );
        let evicted = evicted.ok_or_else(|| limit_for(creator, &refusal))?;
        for (id, _) in &evicted {
            info!(session_id = %id, "pooled sandbox makes room for a session");
            table.evict(id);
            pools.discard(id);
        }
        table.admit(demand, Some(creator)).map_err(|refusal| limit_for(creator, &refusal))
    }

    /// Takes over a pooled sandbox of an earlier daemon.
    pub(in crate::session) fn adopt_pooled(
        &self,
        row: &SessionRow,
        permits: &Arc<Semaphore>,
    ) -> Option<FillingSandbox> {
        let runtime = self.0.runtimes.get(&row.spec.runtime)?.clone();
        let facts = Facts::of_row(row, self.0.clock);
        let demand = Demand::of(&facts.spec.resources);
        let start = Start::Adopt(Phase::Pooled);
        let insert = |entry| self.table().restore(entry);
        Some(self.spawn_pooled(facts, demand, runtime, permits.clone(), start, insert))
    }

    pub(in crate::session) fn keep_for_pools(&self, adopted: Vec<FillingSandbox>) {
        *self.0.adopted.lock().unwrap_or_else(PoisonError::into_inner) = adopted;
    }

    /// Opens the pools of the configuration, on the default runtime. Pooled sandboxes of an earlier daemon return to their
    /// pools before new ones are started; those that fit no pool are removed. Called once, after `recover`.
    pub async fn open_pools(&self, sizes: &BTreeMap<String, u64>) {
        let mut keys = Vec::new();
        for (image, size) in sizes.iter().filter(|(_, size)| **size > 0) {
            match self.define_pool(image, None, *size).await {
                Ok((key, ..)) => keys.push(key),
                Err(cause) => warn!(%image, %cause, "pool is left out"),
            }
        }
        let adopted = std::mem::take(&mut *self.0.adopted.lock().unwrap_or_else(PoisonError::into_inner));
        futures_util::future::join_all(adopted.into_iter().map(|sandbox| self.put_into_pool(sandbox))).await;
        keys.into_iter().for_each(|key| self.start_filler(key));
    }

    /// Puts a sandbox of an earlier daemon into its pool. If it does not fit or does not answer, it is dropped, and its
    /// driver removes it.
    async fn put_into_pool(&self, sandbox: FillingSandbox) {
        let FillingSandbox { handle, demand, hand_over } = sandbox;
        let spec = &handle.facts().spec;
        let key = PoolKey::of(spec);
        // The sandbox has no workspace, and a pool cannot give it one.
        let fits = |template: &SessionSpec| template.fits(spec, LateWorkspaces::AtStartOnly);
        let is_wanted = self.idle_pools().get(&key).is_some_and(|pool| fits(&pool.template));
        if !is_wanted {
            return info!(session_id = %handle.id(), "pooled sandbox of an earlier daemon fits no pool");
        }
        let cause = match timeout(ADOPT_PATIENCE, handle.pooled()).await {
            Ok(Ok(runner)) => match health_problem(&runner).await {
                None => {
                    if let Some(pool) = self.idle_pools().get_mut(&key) {
                        pool.adopted(PooledSandbox { handle, demand, runner, hand_over });
                    }
                    return;
                }
                Some(cause) => cause,
            },
            Ok(Err(error)) => error.to_string(),
            Err(_) => "timed out".into(),
        };
        info!(session_id = %handle.id(), %cause, "pooled sandbox of an earlier daemon does not work");
    }
}

#[cfg(test)]
#[path = "pooling_test.rs"]
mod tests;
