//! Background writes that no request waits for: the last uses of sessions, and the removal of old tombstones. Also the clean
//! stop that leaves sessions to the next daemon.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use tracing::{info, warn};

use super::Registry;
use super::table::{MAX_TOMBSTONES, TOMBSTONE_AGE};
use crate::failpoint;
use crate::session::handle::DESTROY_WAIT;
use crate::session::{Phase, SessionHandle};
use crate::store::{StoreError, Write};

/// The period of writes. All uses within it are one write, and a daemon that is killed loses at most this much of a
/// session's last use.
pub const TOUCH_PERIOD: Duration = Duration::from_secs(1);
/// The time between two removals of old tombstones from the store.
const PRUNE_PERIOD: Duration = Duration::from_secs(60);

impl Registry {
    /// Stores the last uses of sessions until it is dropped. An idle daemon writes nothing.
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
                // While nobody uses the daemon, old tombstones can wait.
                self.0.used.notified().await;
            }
        }
    }

    /// Stores the last uses of sessions. Returns whether any session is in use now.
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
        // Without uses this still writes if a failed write waits to be tried again.
        if used.is_empty() && !self.0.store.owes() {
            return false;
        }
        let (users, touches): (Vec<_>, Vec<_>) = used.into_iter().unzip();
        let written = self.0.store.write(Write::Touch(touches)).await;
        failpoint::pass("touch.written");
        match written {
            Ok(()) => is_in_use,
            Err(cause) => {
                warn!(sessions = users.len(), %cause, "last uses of sessions are not stored yet");
                users.iter().for_each(|handle| handle.0.give_use_back());
                // The next round tries again, unless the store is closed.
                cause != StoreError::Closed
            }
        }
    }

    async fn prune(&self) {
        let now = self.0.clock.wall(Instant::now());
        let before = now.checked_sub(TOMBSTONE_AGE).unwrap_or(std::time::SystemTime::UNIX_EPOCH);
        if let Err(cause) = self.0.store.write(Write::Prune { before, keep: MAX_TOMBSTONES }).await {
            warn!(%cause, "old sessions are not removed from the store yet");
        }
    }

    /// Refuses new sessions and leaves the running ones to the next daemon. Returns how many those are. Creates in progress
    /// are undone, and sessions that are ending are waited for.
    pub async fn leave_all(&self) -> usize {
        let all = self.table().close();
        let is_half = |handle: &&SessionHandle| {
            !matches!(handle.phase(), Phase::Running | Phase::Paused | Phase::Pooled | Phase::Stopped)
        };
        let ends = all.iter().filter(is_half).map(|handle| async move {
            if matches!(handle.phase(), Phase::Creating | Phase::Filling) {
                handle.ask_destroy();
            }
            let mut phases = handle.0.watch();
            if timeout(DESTROY_WAIT, phases.wait_for(Phase::is_final)).await.is_err() {
                info!(session_id = %handle.id(), "session is left to the next start of the daemon");
            }
        });
        futures_util::future::join_all(ends).await;
        self.write_uses().await;
        let is_left =
            |handle: &&SessionHandle| matches!(handle.phase(), Phase::Running | Phase::Paused | Phase::Stopped);
        self.table().live().filter(is_left).count()
    }
}
