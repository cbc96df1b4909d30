//! What is written down without anybody waiting for it: when sessions were last used, and that old tombstones are gone. And the
//! clean stop that leaves sessions to the next daemon.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use tracing::{info, warn};

use super::handle::DESTROY_WAIT;
use super::table::{MAX_TOMBSTONES, TOMBSTONE_AGE};
use super::{Phase, Registry, SessionHandle};
use crate::failpoint;
use crate::store::{StoreError, Write};

/// The uses of so long are one write: this is what a daemon that is killed can forget of a session's time.
pub const TOUCH_PERIOD: Duration = Duration::from_secs(1);
/// Tombstones are as many as they are in memory, give or take this.
const PRUNE_PERIOD: Duration = Duration::from_secs(60);

impl Registry {
    /// Goes on until it is dropped. An idle daemon writes nothing.
    pub async fn keep_written(&self) {
        let mut pruned = None;
        loop {
            if pruned.is_none_or(|at: Instant| at.elapsed() >= PRUNE_PERIOD) {
                self.prune().await;
                pruned = Some(Instant::now());
            }
            let is_in_use = self.write_uses().await;
            sleep(TOUCH_PERIOD).await;
            if !is_in_use && !self.0.store.owes() {
                // Old tombstones of a daemon that nobody uses can wait.
                self.0.used.notified().await;
            }
        }
    }

    /// Writes down when sessions were last used, and says whether any is in use now.
    pub async fn write_uses(&self) -> bool {
        let handles: Vec<SessionHandle> = self.table().live().cloned().collect();
        let mut used = Vec::new();
        let mut is_in_use = false;
        for handle in &handles {
            if let Some((touch, is_active)) = handle.0.take_use() {
                is_in_use |= is_active;
                used.push((handle, touch));
            }
        }
        // Also without a use, if a write that failed waits for one that works.
        if used.is_empty() && !self.0.store.owes() {
            return false;
        }
        let (users, touches): (Vec<_>, Vec<_>) = used.into_iter().unzip();
        let written = self.0.store.write(Write::Touch(touches)).await;
        failpoint::pass("touch.written");
        match written {
            Ok(()) => is_in_use,
            Err(cause) => {
                warn!(sessions = users.len(), %cause, "uses of sessions are not written down yet");
                users.iter().for_each(|handle| handle.0.give_use_back());
                // To be tried again at the next turn, unless there is nobody to try it on.
                cause != StoreError::Closed
            }
        }
    }

    async fn prune(&self) {
        let now = self.0.clock.wall(Instant::now());
        let before = now.checked_sub(TOMBSTONE_AGE).unwrap_or(std::time::SystemTime::UNIX_EPOCH);
        if let Err(cause) = self.0.store.write(Write::Prune { before, keep: MAX_TOMBSTONES }).await {
            warn!(%cause, "old sessions are not forgotten yet");
        }
    }

    /// Lets nobody in any more and leaves what runs to the next daemon: how many that are. What is half-made is undone, and what is
    /// ending is waited for.
    pub async fn leave_all(&self) -> usize {
        let all: Vec<SessionHandle> = {
            let mut table = self.table();
            table.closed = true;
            table.live().cloned().collect()
        };
        let is_half =
            |handle: &&SessionHandle| !matches!(handle.phase(), Phase::Running | Phase::Paused | Phase::Pooled);
        let ends = all.iter().filter(is_half).map(|handle| async move {
            if matches!(handle.phase(), Phase::Creating | Phase::Filling) {
                handle.ask_destroy();
            }
            let mut phases = handle.0.watch();
            if timeout(DESTROY_WAIT, phases.wait_for(Phase::is_final)).await.is_err() {
                info!(session_id = %handle.id(), "session is left to the next start as it is");
            }
        });
        futures_util::future::join_all(ends).await;
        self.write_uses().await;
        self.table().live().filter(|handle| matches!(handle.phase(), Phase::Running | Phase::Paused)).count()
    }
}
