//! When a runner was heard last, and whether there is a reason to doubt that it still answers.
//!
//! Calls and streams only note what they see here. The session's driver decides: it asks a doubted runner, and ends the
//! session of one that stays silent (`session/driver/health.rs`).

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

/// How long a runner may let a call or a stream wait before it is doubted. It answers within milliseconds, so this is rare
/// for a call. A command that prints nothing causes one question in each such time.
pub const DOUBT_AFTER: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub struct Pulse {
    start: Instant,
    /// Milliseconds from `start` to the last sign of life, plus one. 0 means that there was none.
    heard: AtomicU64,
    /// Holds one permit, so that a doubt is not lost while the driver is busy.
    doubted: Notify,
}

impl Default for Pulse {
    fn default() -> Self {
        Self { start: Instant::now(), heard: AtomicU64::new(0), doubted: Notify::new() }
    }
}

impl Pulse {
    /// Notes that the runner has sent something.
    pub fn heard(&self) {
        let elapsed = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX - 1);
        self.heard.store(elapsed + 1, Ordering::Relaxed);
    }

    /// When the runner was heard last. `None` if it never was.
    pub fn last_heard(&self) -> Option<Instant> {
        let since_start = self.heard.load(Ordering::Relaxed).checked_sub(1)?;
        Some(self.start + Duration::from_millis(since_start))
    }

    /// Notes a reason to doubt that the runner answers.
    pub fn doubt(&self) {
        self.doubted.notify_one();
    }

    /// Waits for a reason to doubt.
    pub async fn doubted(&self) {
        self.doubted.notified().await;
    }

    /// Waits for `work`, at most `limit`. The runner is doubted if it takes long, and again if the time runs out.
    pub async fn in_time<T>(&self, limit: Duration, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        let at_first = DOUBT_AFTER.min(limit);
        if let Ok(done) = timeout(at_first, work.as_mut()).await {
            return Some(done);
        }
        self.doubt();
        timeout(limit - at_first, work).await.ok()
    }
}
