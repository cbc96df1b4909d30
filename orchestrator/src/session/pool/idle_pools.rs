//! The waiting sandboxes of all pools: a plain value under a short lock. Nothing here waits.
//!
//! **Invariant:** a pooled sandbox has one owner. Whoever takes it out of its pool owns it alone; if the owner drops it
//! without a hand-over, its driver removes the sandbox. So no sandbox is given out twice, and none is lost.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use shared_protocol::api::PoolView;
use shared_protocol::{RuntimeName, SessionId};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::PooledSandbox;
use super::policy::{Backoff, PoolCounts, PoolStep, next_step, refill_delay};
use crate::runner_client::RunnerClient;
use crate::session::SessionHandle;
use crate::session::registry::Demand;
use crate::spec::{LateWorkspaces, SessionSpec};

/// The most pools of one daemon.
pub const MAX_POOLS: usize = 64;

/// Identifies a pool: the image and the runtime of its sandboxes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolKey {
    pub image: String,
    pub runtime: RuntimeName,
}

impl PoolKey {
    pub fn of(spec: &SessionSpec) -> Self {
        Self { image: spec.image.clone(), runtime: spec.runtime.clone() }
    }
}

/// One pool.
#[derive(Debug)]
pub struct IdlePool {
    /// The spec of the pool's sandboxes. A create must ask for the same.
    pub template: Arc<SessionSpec>,
    late_workspaces: LateWorkspaces,
    size: usize,
    /// The waiting sandboxes. The one that waits longest is claimed first.
    idle: VecDeque<PooledSandbox>,
    /// The sandboxes that are being started, with the resources that each needs.
    filling: Vec<(SessionHandle, Demand)>,
    last_taken: Option<Instant>,
    backoff: Backoff,
    /// There was no room for another sandbox: the next attempt waits until something changes.
    is_full: bool,
    /// Why the last start failed. `None` after the next start that succeeds.
    failure: Option<String>,
    hits: u64,
    misses: u64,
    pub changed: Arc<Notify>,
}

/// The result of looking for a pooled sandbox for a create.
#[derive(Debug)]
pub enum Claimed {
    Sandbox(Box<PooledSandbox>),
    /// A pool fits, but it is empty.
    Miss,
    /// No pool fits the create.
    NoPool,
}

#[derive(Debug, Default)]
pub struct IdlePools {
    pools: BTreeMap<PoolKey, IdlePool>,
}

impl IdlePools {
    /// Creates or changes a pool. Returns `false` if the pool is new and needs a filler.
    pub fn set(
        &mut self,
        key: PoolKey,
        template: Arc<SessionSpec>,
        late_workspaces: LateWorkspaces,
        size: usize,
    ) -> Result<bool, usize> {
        if let Some(pool) = self.pools.get_mut(&key) {
            pool.size = size;
            pool.template = template;
            pool.backoff.worked();
            pool.is_full = false;
            pool.changed.notify_one();
            return Ok(true);
        }
        if self.pools.len() >= MAX_POOLS {
            return Err(MAX_POOLS);
        }
        let pool = IdlePool {
            template,
            late_workspaces,
            size,
            idle: VecDeque::new(),
            filling: Vec::new(),
            last_taken: None,
            backoff: Backoff::default(),
            is_full: false,
            failure: None,
            hits: 0,
            misses: 0,
            changed: Arc::new(Notify::new()),
        };
        self.pools.insert(key, pool);
        Ok(false)
    }

    pub fn get(&self, key: &PoolKey) -> Option<&IdlePool> {
        self.pools.get(key)
    }

    pub fn get_mut(&mut self, key: &PoolKey) -> Option<&mut IdlePool> {
        self.pools.get_mut(key)
    }

    /// Removes the pool if it is closed and has no sandbox left.
    pub fn remove_if_over(&mut self, key: &PoolKey) -> bool {
        let is_over = self.pools.get(key).is_none_or(|pool| pool.size == 0 && pool.count() == 0);
        if is_over {
            self.pools.remove(key);
        }
        is_over
    }

    pub fn take(&mut self, asked: &SessionSpec) -> Claimed {
        let Some(pool) = self.pools.get_mut(&PoolKey::of(asked)) else { return Claimed::NoPool };
        if pool.size == 0 || !pool.template.fits(asked, pool.late_workspaces) {
            return Claimed::NoPool;
        }
        pool.changed.notify_one();
        match pool.idle.pop_front() {
            Some(pooled) => {
                pool.hits += 1;
                pool.last_taken = Some(Instant::now());
                Claimed::Sandbox(Box::new(pooled))
            }
            None => {
                pool.misses += 1;
                Claimed::Miss
            }
        }
    }

    /// Undoes `take` for a sandbox that was not used.
    pub fn put_back(&mut self, key: &PoolKey, pooled: PooledSandbox) {
        if let Some(pool) = self.pools.get_mut(key) {
            pool.hits = pool.hits.saturating_sub(1);
            pool.idle.push_front(pooled);
        }
    }

    /// The pooled sandboxes that can be evicted for a session. Those of the largest pool come first, and waiting ones come
    /// before starting ones.
    pub fn evictable(&self) -> Vec<(SessionId, Demand)> {
        let mut pools: Vec<&IdlePool> = self.pools.values().collect();
        pools.sort_by_key(|pool| std::cmp::Reverse(pool.idle.len()));
        // The order is from the back: the sandboxes that came last would be claimed last.
        let idle =
            pools.iter().flat_map(|pool| pool.idle.iter().rev()).map(|pooled| (pooled.id().clone(), pooled.demand));
        let filling =
            pools.iter().flat_map(|pool| &pool.filling).map(|(handle, demand)| (handle.id().clone(), *demand));
        idle.chain(filling).collect()
    }

    /// Takes a sandbox out of its pool, so that its driver removes it.
    pub fn discard(&mut self, id: &SessionId) {
        for pool in self.pools.values_mut() {
            pool.idle.retain(|pooled| pooled.id() != id);
            pool.filling.iter().filter(|(handle, _)| handle.id() == id).for_each(|(handle, _)| handle.ask_destroy());
        }
    }

    /// Records that a sandbox is gone: perhaps there is room for a pool again.
    pub fn sandbox_is_gone(&mut self, id: &SessionId) {
        for pool in self.pools.values_mut() {
            let before = pool.idle.len();
            pool.idle.retain(|pooled| pooled.id() != id);
            if pool.idle.len() < before || pool.is_full {
                pool.is_full = false;
                pool.changed.notify_one();
            }
        }
    }

    pub fn views(&self) -> Vec<PoolView> {
        self.pools.iter().map(|(key, pool)| pool.view(key)).collect()
    }
}

impl IdlePool {
    fn count(&self) -> usize {
        self.idle.len() + self.filling.len()
    }

    pub fn next_step(&self, now: Instant) -> (PoolStep, Option<Instant>) {
        let until = self.backoff.until(now).max(refill_delay(self.idle.len(), self.last_taken, now));
        let counts = PoolCounts { size: self.size, idle: self.idle.len(), filling: self.filling.len() };
        (next_step(counts, until.is_none() && !self.is_full), until)
    }

    /// Drops this many sandboxes, the youngest first, so that their drivers remove them.
    pub fn drop_youngest(&mut self, count: usize) {
        let keep = self.idle.len().saturating_sub(count);
        self.idle.truncate(keep);
    }

    pub fn filling(&mut self, handle: SessionHandle, demand: Demand) {
        self.filling.push((handle, demand));
    }

    /// Moves a sandbox from starting to waiting.
    pub fn filled(&mut self, pooled: PooledSandbox) {
        self.filling.retain(|(handle, _)| handle.id() != pooled.id());
        self.backoff.worked();
        self.failure = None;
        self.idle.push_back(pooled);
    }

    /// Adds a waiting sandbox of an earlier daemon.
    pub fn adopted(&mut self, pooled: PooledSandbox) {
        self.idle.push_back(pooled);
        self.changed.notify_one();
    }

    pub fn not_filled(&mut self, id: Option<&SessionId>, failure: String, now: Instant) {
        self.filling.retain(|(handle, _)| Some(handle.id()) != id);
        self.backoff.failed(now);
        self.failure = Some(failure);
    }

    /// Removes a starting sandbox that was evicted for a session, or destroyed.
    pub fn not_wanted(&mut self, id: &SessionId) {
        self.filling.retain(|(handle, _)| handle.id() != id);
    }

    pub fn no_room(&mut self, failure: String) {
        self.is_full = true;
        self.failure = Some(failure);
    }

    /// The waiting sandboxes with their runners, to check each of them.
    pub fn runners(&self) -> Vec<(SessionId, RunnerClient)> {
        self.idle.iter().map(|pooled| (pooled.id().clone(), pooled.runner.clone())).collect()
    }

    /// Replaces every waiting sandbox's runner by one that does not answer.
    #[cfg(test)]
    pub fn forget_connections(&mut self) {
        for pooled in &mut self.idle {
            pooled.runner = RunnerClient::new(crate::runner_address::RunnerAddress::Unix("/nowhere".into()));
        }
    }

    pub fn view(&self, key: &PoolKey) -> PoolView {
        PoolView {
            image: key.image.clone(),
            runtime: key.runtime.clone(),
            size: self.size,
            idle: self.idle.len(),
            starting: self.filling.len(),
            hits: self.hits,
            misses: self.misses,
            failure: self.failure.clone(),
        }
    }
}
