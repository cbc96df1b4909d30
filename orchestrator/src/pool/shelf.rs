//! The members that wait, of all pools. A plain value under a short lock; nothing here waits.
//!
//! **Invariant:** a member is owned. Whoever takes it off the shelf has it alone, and if it is dropped without having been given
//! to somebody, its driver removes the sandbox. So none is given twice, and none is lost.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use shared_protocol::api::PoolView;
use shared_protocol::{RuntimeName, SessionId};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::policy::{Backoff, Census, Step, breath, fits, next_step};
use crate::runner_client::RunnerClient;
use crate::session::{Ask, GiveTo, Plan, SessionHandle};

/// Pools of one daemon.
pub const MAX_POOLS: usize = 64;

/// What a pool is of.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolKey {
    pub image: String,
    pub runtime: RuntimeName,
}

/// A sandbox that waits for somebody.
#[derive(Debug)]
pub struct Member {
    pub handle: SessionHandle,
    pub ask: Ask,
    /// With a line to its runner that is open already.
    pub runner: RunnerClient,
    /// Its driver gives the sandbox up to whoever is named here; dropped, it removes it.
    pub give: GiveTo,
}

impl Member {
    pub fn id(&self) -> &SessionId {
        self.handle.id()
    }
}

#[derive(Debug)]
pub struct Pool {
    /// What its members are, and thus what a create has to ask for.
    pub template: Plan,
    pub can_give_workspace: bool,
    size: usize,
    /// The one that waits longest is given first.
    idle: VecDeque<Member>,
    /// Being started, with what each takes of the whole.
    filling: Vec<(SessionHandle, Ask)>,
    last_taken: Option<Instant>,
    backoff: Backoff,
    /// There was no room for one more: not to be tried before something has changed.
    is_full: bool,
    /// Of the last start that failed, until one works.
    failure: Option<String>,
    hits: u64,
    misses: u64,
    pub changed: Arc<Notify>,
}

/// What became of a create that asked.
#[derive(Debug)]
pub enum Taken {
    Member(Box<Member>),
    /// There is such a pool, and nobody waits in it.
    Miss,
    /// No pool has what is asked for.
    NoPool,
}

#[derive(Debug, Default)]
pub struct Shelf {
    pools: BTreeMap<PoolKey, Pool>,
}

impl Shelf {
    /// Makes or changes a pool. `false`: it is new, and needs somebody to fill it.
    pub fn set(&mut self, key: PoolKey, template: Plan, can_give_workspace: bool, size: usize) -> Result<bool, usize> {
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
        let pool = Pool {
            template,
            can_give_workspace,
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

    pub fn get(&self, key: &PoolKey) -> Option<&Pool> {
        self.pools.get(key)
    }

    pub fn get_mut(&mut self, key: &PoolKey) -> Option<&mut Pool> {
        self.pools.get_mut(key)
    }

    /// The pool is to be no more and has nothing left.
    pub fn remove_if_over(&mut self, key: &PoolKey) -> bool {
        let is_over = self.pools.get(key).is_none_or(|pool| pool.size == 0 && pool.count() == 0);
        if is_over {
            self.pools.remove(key);
        }
        is_over
    }

    pub fn take(&mut self, runtime: &RuntimeName, plan: &Plan) -> Taken {
        let key = PoolKey { image: plan.image.clone(), runtime: runtime.clone() };
        let Some(pool) = self.pools.get_mut(&key) else { return Taken::NoPool };
        if pool.size == 0 || !fits(&pool.template, plan, pool.can_give_workspace) {
            return Taken::NoPool;
        }
        pool.changed.notify_one();
        match pool.idle.pop_front() {
            Some(member) => {
                pool.hits += 1;
                pool.last_taken = Some(Instant::now());
                Taken::Member(Box::new(member))
            }
            None => {
                pool.misses += 1;
                Taken::Miss
            }
        }
    }

    /// Back to where it was taken from: nothing was done with it.
    pub fn put_back(&mut self, key: &PoolKey, member: Member) {
        if let Some(pool) = self.pools.get_mut(key) {
            pool.hits = pool.hits.saturating_sub(1);
            pool.idle.push_front(member);
        }
    }

    /// Members that can be given up for a session, the largest pool's first; those that wait before those that are being started.
    pub fn expendable(&self) -> Vec<(SessionId, Ask)> {
        let mut pools: Vec<&Pool> = self.pools.values().collect();
        pools.sort_by_key(|pool| std::cmp::Reverse(pool.idle.len()));
        // From the back: the ones that came last are the last to be claimed.
        let idle = pools.iter().flat_map(|pool| pool.idle.iter().rev()).map(|member| (member.id().clone(), member.ask));
        let filling = pools.iter().flat_map(|pool| &pool.filling).map(|(handle, ask)| (handle.id().clone(), *ask));
        idle.chain(filling).collect()
    }

    /// Takes one away, wherever it is: its driver removes the sandbox.
    pub fn give_up(&mut self, id: &SessionId) {
        for pool in self.pools.values_mut() {
            pool.idle.retain(|member| member.id() != id);
            pool.filling.iter().filter(|(handle, _)| handle.id() == id).for_each(|(handle, _)| handle.ask_destroy());
        }
    }

    /// A sandbox is gone, and with it maybe what kept a pool from being filled.
    pub fn gone(&mut self, id: &SessionId) {
        for pool in self.pools.values_mut() {
            let before = pool.idle.len();
            pool.idle.retain(|member| member.id() != id);
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

impl Pool {
    fn count(&self) -> usize {
        self.idle.len() + self.filling.len()
    }

    pub fn next_step(&self, now: Instant) -> (Step, Option<Instant>) {
        let until = self.backoff.until(now).max(breath(self.idle.len(), self.last_taken, now));
        let census = Census { size: self.size, idle: self.idle.len(), filling: self.filling.len() };
        (next_step(census, until.is_none() && !self.is_full), until)
    }

    /// The youngest.
    pub fn shed(&mut self, count: usize) {
        let keep = self.idle.len().saturating_sub(count);
        self.idle.truncate(keep);
    }

    pub fn filling(&mut self, handle: SessionHandle, ask: Ask) {
        self.filling.push((handle, ask));
    }

    /// One that was being started waits now.
    pub fn filled(&mut self, member: Member) {
        self.filling.retain(|(handle, _)| handle.id() != member.id());
        self.backoff.worked();
        self.failure = None;
        self.idle.push_back(member);
    }

    /// One of an earlier daemon, which waits as it did.
    pub fn adopted(&mut self, member: Member) {
        self.idle.push_back(member);
        self.changed.notify_one();
    }

    pub fn not_filled(&mut self, id: Option<&SessionId>, failure: String, now: Instant) {
        self.filling.retain(|(handle, _)| Some(handle.id()) != id);
        self.backoff.failed(now);
        self.failure = Some(failure);
    }

    /// One that was being started was given up for a session, or destroyed.
    pub fn not_wanted(&mut self, id: &SessionId) {
        self.filling.retain(|(handle, _)| handle.id() != id);
    }

    pub fn no_room(&mut self, failure: String) {
        self.is_full = true;
        self.failure = Some(failure);
    }

    /// Those that wait, to be looked at.
    pub fn runners(&self) -> Vec<(SessionId, RunnerClient)> {
        self.idle.iter().map(|member| (member.id().clone(), member.runner.clone())).collect()
    }

    /// As if nobody had spoken to them yet.
    #[cfg(test)]
    pub fn forget_lines(&mut self) {
        for member in &mut self.idle {
            member.runner = RunnerClient::new(crate::runtime::RunnerAddress::Unix("/nowhere".into()));
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
