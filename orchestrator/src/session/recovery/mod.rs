//! Recovers the sessions of an earlier daemon before the daemon accepts requests.
//!
//! `reconcile` decides what to do; the usual drivers carry it out here. The work at the same time is limited, and so is the
//! time that the daemon's start waits for it: slower work continues while the first requests arrive, which then find a
//! session that is being created or removed.

mod reconcile;
#[cfg(test)]
mod recovery_test;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use shared_protocol::{RuntimeName, SessionId};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout, timeout_at};
use tracing::{info, warn};

use self::reconcile::{RecoveryStep, decide};
use super::driver::{Role, Start};
use super::facts::Facts;
use super::registry::Demand;
use super::registry::table::{Entry, MAX_TOMBSTONES};
use super::shared::Shared;
use super::{EndReason, Phase, Registry, SessionError, SessionHandle};
use crate::failpoint;
use crate::runtime::Runtime;
use crate::store::SessionRow;

/// The most sandboxes that are taken over, finished or undone at the same time.
const MAX_CONCURRENT_RECOVERIES: usize = 32;
/// The most sandboxes without an owner that are removed at the same time.
const MAX_CONCURRENT_REMOVALS: usize = 16;
/// How long the start waits for the whole recovery. Each sandbox takes milliseconds if nothing hangs.
const PATIENCE: Duration = Duration::from_secs(10);
const LIST_TIMEOUT: Duration = Duration::from_secs(10);
const REMOVE_TIMEOUT: Duration = Duration::from_secs(20);

/// The result of the recovery.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Recovered {
    pub adopted: usize,
    pub crashed: usize,
    /// The number of sandboxes that were half created, half removed or without an owner.
    pub removed: usize,
    /// The number of sessions that were not finished when the daemon began to listen.
    pub pending: usize,
}

impl Registry {
    /// Recovers everything. Called once, before any other call.
    pub async fn recover(&self, rows: Vec<SessionRow>) -> Recovered {
        let until = Instant::now() + PATIENCE;
        failpoint::pass("recover.loaded");
        self.recover_snapshots().await;
        let found = self.found().await;
        self.sweep_authorities(&rows).await;
        failpoint::pass("recover.listed");
        let permits = Arc::new(Semaphore::new(MAX_CONCURRENT_RECOVERIES));
        let (mut adopting, mut ending, mut unowned, mut over) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (mut waiting, mut kept) = (Vec::new(), Vec::new());
        for step in decide(rows, &found) {
            match step {
                RecoveryStep::Adopt { row, is_paused } => {
                    let phase = if is_paused { Phase::Paused } else { Phase::Running };
                    adopting.extend(self.take_over(&row, Start::Adopt(phase), &permits));
                }
                RecoveryStep::KeepStopped { row } => kept.extend(self.take_over_stopped(&row, &permits)),
                RecoveryStep::AdoptPooled { row } => waiting.extend(self.adopt_pooled(&row, &permits)),
                RecoveryStep::Finish { row, end } => ending.extend(self.take_over(&row, Start::Finish(end), &permits)),
                RecoveryStep::Undo { row } => ending.extend(self.undo(&row, &permits)),
                RecoveryStep::Bury { row, end } => over.push((row, end)),
                RecoveryStep::Absent { row } => {
                    warn!(session_id = %row.id, runtime = %row.spec.runtime, "session waits for its runtime");
                    let reason = format!("its runtime {} is not there; it may come back with it", row.spec.runtime);
                    over.push((row, EndReason::Crashed(reason)));
                }
                RecoveryStep::Remove { runtime, id } => {
                    unowned.extend(self.0.runtimes.get(&runtime).map(|r| (r.clone(), id)))
                }
            }
        }
        self.restore_tombstones(over);
        let pooled: Vec<SessionHandle> = waiting.iter().map(|sandbox| sandbox.handle.clone()).collect();
        self.keep_for_pools(waiting);
        let removals = unowned.len();
        // This is a task of its own, so that it continues if the start stops waiting for it.
        let removing = tokio::spawn(remove_unowned(unowned));
        let all = adopting.iter().chain(&ending).chain(&pooled).chain(&kept).map(|handle| settled(handle, until));
        let pending = futures_util::future::join_all(all).await.into_iter().filter(|is_settled| !is_settled).count();
        let is_swept = timeout_at(until, removing).await.is_ok();
        failpoint::pass("recover.done");
        let over = |handle: &&SessionHandle| handle.phase().refusal(handle.id()).is_some();
        let crashed = adopting.iter().filter(over).count();
        let recovered = Recovered {
            adopted: adopting.len() - crashed,
            crashed,
            removed: ending.len() + removals,
            pending: pending + if is_swept { 0 } else { removals },
        };
        if recovered != Recovered::default() {
            let Recovered { adopted, crashed, removed, pending } = recovered;
            info!(adopted, crashed, removed, pending, "recovered the sessions of an earlier daemon");
        }
        recovered
    }

    /// Removes the certificate authorities of sessions that have ended.
    async fn sweep_authorities(&self, rows: &[SessionRow]) {
        let live = rows.iter().filter(|row| row.ended_at.is_none()).map(|row| row.id.to_string());
        let live: BTreeSet<String> = live.collect();
        let swept = self.0.network.authorities().sweep(move |id| live.contains(id)).await;
        if let Err(cause) = swept {
            warn!(%cause, "certificate authorities of an earlier daemon are left");
        }
    }

    /// Lists the sandboxes of each runtime. If a runtime cannot answer, its leftovers stay until the next start, and its
    /// sessions are checked one by one.
    async fn found(&self) -> BTreeMap<RuntimeName, BTreeSet<SessionId>> {
        let mut found = BTreeMap::new();
        for (name, runtime) in &self.0.runtimes {
            let listed = match timeout(LIST_TIMEOUT, runtime.list()).await {
                Ok(Ok(listed)) => listed,
                Ok(Err(error)) => {
                    warn!(runtime = %name, cause = %SessionError::chain(&error), "sandboxes of the runtime could not be listed");
                    Vec::new()
                }
                Err(_) => {
                    warn!(runtime = %name, cause = "timed out", "sandboxes of the runtime could not be listed");
                    Vec::new()
                }
            };
            found.insert(name.clone(), listed.into_iter().collect());
        }
        found
    }

    /// Takes over a session that clients know, with its place, its key and its workspace. If the workspace was removed
    /// meanwhile, it is not created again, because it would not be what the session has.
    fn take_over(&self, row: &SessionRow, start: Start, permits: &Arc<Semaphore>) -> Option<SessionHandle> {
        let runtime = self.0.runtimes.get(&row.spec.runtime)?.clone();
        let facts = Facts::of_row(row, self.0.clock);
        // Nobody can delete a workspace before the daemon listens.
        let workspace = self.hold_workspace(&facts.spec, &row.id).ok().flatten();
        let demand = Demand::of(&facts.spec.resources);
        let (handle, driver) = self.driver(facts, Role::Session, runtime, workspace, permits.clone());
        driver.shared().recall(row);
        self.table().restore(Entry::session(handle.clone(), demand, row.key.clone()));
        self.spawn(driver, start);
        Some(handle)
    }

    /// Takes over a stopped session, with its place, its key, its disk and its workspace.
    fn take_over_stopped(&self, row: &SessionRow, permits: &Arc<Semaphore>) -> Option<SessionHandle> {
        let handle = self.take_over(row, Start::Stopped, permits)?;
        let (mut table, demand) = (self.table(), Demand::of(&row.spec.resources));
        // It needs no memory until it is started. Its driver has not told its phase yet.
        if table.release_parked(&row.id, &demand.parked()) {
            table.restore_demand(&row.id, demand.parked());
        }
        Some(handle)
    }

    /// Undoes a create that no client was told of: the session has no place, and its key is free.
    fn undo(&self, row: &SessionRow, permits: &Arc<Semaphore>) -> Option<SessionHandle> {
        let runtime = self.0.runtimes.get(&row.spec.runtime)?.clone();
        let facts = Facts::of_row(row, self.0.clock);
        let (handle, driver) = self.driver(facts, Role::Session, runtime, None, permits.clone());
        tokio::spawn(driver.run(Start::Undo, |_| {}));
        Some(handle)
    }

    fn restore_tombstones(&self, mut rows: Vec<(SessionRow, EndReason)>) {
        let now = Instant::now();
        // The table forgets tombstones in the order in which they were added.
        rows.sort_by_key(|(row, _)| row.ended_at.unwrap_or(row.last_activity));
        let surplus = rows.len().saturating_sub(MAX_TOMBSTONES);
        for (row, end) in rows.into_iter().skip(surplus) {
            let facts = Facts::of_row(&row, self.0.clock);
            let demand = Demand::of(&facts.spec.resources);
            let since = row.ended_at.map_or(now, |at| self.0.clock.instant(at).min(now));
            let shared = Arc::new(Shared::new(facts, &self.0.network, self.0.used.clone()));
            shared.recall(&row);
            shared.set_phase(Phase::Ended(end));
            self.table().restore_tombstone(Entry::session(SessionHandle(shared), demand, row.key), since);
        }
    }
}

/// Waits until the session is usable or nothing is left of it. Returns `false` if that takes too long.
async fn settled(handle: &SessionHandle, until: Instant) -> bool {
    let is_settled = |phase: &Phase| !matches!(phase, Phase::Creating | Phase::Filling | Phase::Ending(_));
    timeout_at(until, handle.0.watch().wait_for(is_settled)).await.is_ok()
}

async fn remove_unowned(unowned: Vec<(Arc<dyn Runtime>, SessionId)>) {
    futures_util::stream::iter(unowned).for_each_concurrent(MAX_CONCURRENT_REMOVALS, remove).await;
}

/// Removes a sandbox without an owner. A failure is logged, because it must not keep the daemon from starting.
async fn remove((runtime, id): (Arc<dyn Runtime>, SessionId)) {
    failpoint::pass("recover.unowned");
    let cause = match timeout(REMOVE_TIMEOUT, runtime.destroy(&id)).await {
        Ok(Ok(())) => return,
        Ok(Err(error)) => SessionError::chain(&error),
        Err(_) => "timed out".into(),
    };
    warn!(session_id = %id, %cause, "sandbox without a session could not be removed");
}
