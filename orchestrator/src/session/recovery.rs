//! Coming back to what an earlier daemon left, before anybody is let in.
//!
//! What is to be done is decided in `reconcile`; here it is carried out, by the same drivers that do it at any other time. Bounded
//! in how much at once and in how long the daemon's start waits for it: what takes longer goes on behind the first requests, which
//! then find a session that is being made, or removed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use shared_protocol::{RuntimeName, SessionId};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout, timeout_at};
use tracing::{info, warn};

use super::admission::Ask;
use super::driver::Beginning;
use super::reconcile::{Step, decide};
use super::shared::{Facts, Shared};
use super::table::{Entry, MAX_TOMBSTONES};
use super::{End, Phase, Registry, SessionError, SessionHandle};
use crate::failpoint;
use crate::runtime::Runtime;
use crate::store::SessionRow;
use crate::workspace::User;

/// Sandboxes that are taken over, finished or undone at the same moment.
const MAX_CONCURRENT_RECOVERIES: usize = 32;
/// Sandboxes without an owner that are removed at the same moment.
const MAX_CONCURRENT_REMOVALS: usize = 16;
/// How long the start waits for all of it. Milliseconds each, where nothing hangs.
const PATIENCE: Duration = Duration::from_secs(10);
const LIST_TIMEOUT: Duration = Duration::from_secs(10);
const REMOVE_TIMEOUT: Duration = Duration::from_secs(20);

/// What became of the sessions of an earlier daemon.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Recovered {
    pub adopted: usize,
    pub crashed: usize,
    /// Half-made, half-removed or without an owner.
    pub removed: usize,
    /// Not done when the daemon began to listen.
    pub pending: usize,
}

impl Registry {
    /// To be called once, before anything else.
    pub async fn recover(&self, rows: Vec<SessionRow>) -> Recovered {
        let until = Instant::now() + PATIENCE;
        failpoint::pass("recover.loaded");
        let found = self.found().await;
        failpoint::pass("recover.listed");
        let turns = Arc::new(Semaphore::new(MAX_CONCURRENT_RECOVERIES));
        let (mut adopting, mut ending, mut unowned, mut buried) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut waiting = Vec::new();
        for step in decide(rows, &found) {
            match step {
                Step::Adopt { row, is_paused } => {
                    adopting.extend(self.take_up(&row, Beginning::Adopt { is_paused }, &turns));
                }
                Step::AdoptMember { row } => waiting.extend(self.take_up_member(&row, &turns)),
                Step::Finish { row, end } => ending.extend(self.take_up(&row, Beginning::Finish(end), &turns)),
                Step::Undo { row } => ending.extend(self.undo(&row, &turns)),
                Step::Bury { row, end } => buried.push((row, end)),
                Step::Absent { row } => {
                    warn!(session_id = %row.id, runtime = %row.facts.runtime, "session waits for its runtime");
                    let reason = format!("its runtime {} is not there; it may come back with it", row.facts.runtime);
                    buried.push((row, End::Crashed(reason)));
                }
                Step::Remove { runtime, id } => unowned.extend(self.0.runtimes.get(&runtime).map(|r| (r.clone(), id))),
            }
        }
        self.bury_all(buried);
        let members: Vec<SessionHandle> = waiting.iter().map(|member| member.handle.clone()).collect();
        self.keep_for_pools(waiting);
        let removals = unowned.len();
        // On a task of its own, so that it goes on if the start does not wait for it.
        let removing = tokio::spawn(remove_unowned(unowned));
        let all = adopting.iter().chain(&ending).chain(&members).map(|handle| settled(handle, until));
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
            info!(adopted, crashed, removed, pending, "came back to what an earlier daemon left");
        }
        recovered
    }

    /// What a runtime cannot tell is left for the next start, and its sessions are asked for one by one.
    async fn found(&self) -> BTreeMap<RuntimeName, BTreeSet<SessionId>> {
        let mut found = BTreeMap::new();
        for (name, runtime) in &self.0.runtimes {
            let listed = match timeout(LIST_TIMEOUT, runtime.list()).await {
                Ok(Ok(listed)) => listed,
                Ok(Err(error)) => {
                    warn!(runtime = %name, cause = %SessionError::chain(&error), "leftovers are unknown");
                    Vec::new()
                }
                Err(_) => {
                    warn!(runtime = %name, cause = "timed out", "leftovers are unknown");
                    Vec::new()
                }
            };
            found.insert(name.clone(), listed.into_iter().collect());
        }
        found
    }

    /// A session that clients know, with its place, its key and its workspace.
    fn take_up(&self, row: &SessionRow, beginning: Beginning, turns: &Arc<Semaphore>) -> Option<SessionHandle> {
        let runtime = self.0.runtimes.get(&row.facts.runtime)?.clone();
        let facts = Facts::of_row(row, self.0.clock);
        let claim = facts
            .workspace
            .as_ref()
            .map(|workspace| self.0.workspaces.claim_again(workspace, User::Session(row.id.clone())));
        let ask = Ask::of(&facts.resources);
        let (handle, driver) = self.driver(facts, runtime, claim, turns.clone());
        driver.shared().recall(row);
        let entry = Entry { handle: handle.clone(), ask, key: row.key.as_ref().map(|key| key.key.clone()) };
        self.table().restore(entry, row.key.as_ref().map_or(0, |key| key.fingerprint));
        self.spawn(driver, beginning);
        Some(handle)
    }

    /// One that clients were never told of: it has no place, and its key is free.
    fn undo(&self, row: &SessionRow, turns: &Arc<Semaphore>) -> Option<SessionHandle> {
        let runtime = self.0.runtimes.get(&row.facts.runtime)?.clone();
        let (handle, driver) = self.driver(Facts::of_row(row, self.0.clock), runtime, None, turns.clone());
        tokio::spawn(driver.run(Beginning::Undo, |_| {}));
        Some(handle)
    }

    fn bury_all(&self, mut rows: Vec<(SessionRow, End)>) {
        let now = Instant::now();
        // The table forgets the first first.
        rows.sort_by_key(|(row, _)| row.ended_at.unwrap_or(row.last_activity));
        let surplus = rows.len().saturating_sub(MAX_TOMBSTONES);
        for (row, end) in rows.into_iter().skip(surplus) {
            let facts = Facts::of_row(&row, self.0.clock);
            let ask = Ask::of(&facts.resources);
            let since = row.ended_at.map_or(now, |at| self.0.clock.instant(at).min(now));
            let shared = Arc::new(Shared::new(facts, self.0.used.clone()));
            shared.recall(&row);
            shared.set_phase(Phase::Ended(end));
            let (key, fingerprint) = row.key.map(|key| (key.key, key.fingerprint)).unzip();
            let entry = Entry { handle: SessionHandle(shared), ask, key };
            self.table().restore_buried(entry, fingerprint.unwrap_or(0), since);
        }
    }
}

/// Waits until it can be used or nothing of it is left. `false`: it takes longer.
async fn settled(handle: &SessionHandle, until: Instant) -> bool {
    let is_settled = |phase: &Phase| !matches!(phase, Phase::Creating | Phase::Filling | Phase::Ending(_));
    timeout_at(until, handle.0.watch().wait_for(is_settled)).await.is_ok()
}

async fn remove_unowned(unowned: Vec<(Arc<dyn Runtime>, SessionId)>) {
    futures_util::stream::iter(unowned).for_each_concurrent(MAX_CONCURRENT_REMOVALS, remove).await;
}

/// What resists is named and left: it must not keep a daemon from starting.
async fn remove((runtime, id): (Arc<dyn Runtime>, SessionId)) {
    failpoint::pass("recover.unowned");
    let cause = match timeout(REMOVE_TIMEOUT, runtime.destroy(&id)).await {
        Ok(Ok(())) => return,
        Ok(Err(error)) => SessionError::chain(&error),
        Err(_) => "timed out".into(),
    };
    warn!(session_id = %id, %cause, "leftover is not removed");
}
