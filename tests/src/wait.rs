//! Waiting for a condition, never for a time.

use std::time::{Duration, Instant};

/// How long a client waits for what should come at once. Generous: a loaded machine is slow, a wedged shell is forever.
pub const DEADLINE: Duration = Duration::from_secs(20);

/// For what moves gigabytes.
pub const LONG_DEADLINE: Duration = Duration::from_secs(300);

/// How often a condition that nothing announces is looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Waits until `condition` gives something; panics with `what` when the deadline has passed.
pub async fn wait_until<T>(what: &str, deadline: Duration, mut condition: impl AsyncFnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = condition().await {
            return found;
        }
        assert!(start.elapsed() < deadline, "{what}: not within {deadline:?}");
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// The same where no runtime can be awaited, as in a `Drop`. Gives whether the condition came true.
pub(crate) fn blocks_until(deadline: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while !condition() {
        if start.elapsed() >= deadline {
            return false;
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    true
}
