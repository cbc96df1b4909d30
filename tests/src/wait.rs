//! Waits for a condition, never for a fixed time.

use std::time::{Duration, Instant};

/// The longest wait for something that should come at once. It is generous: a loaded machine is slow, and a blocked shell
/// takes forever.
pub const DEADLINE: Duration = Duration::from_secs(20);

/// The longest wait for an answer that moves gigabytes.
pub const LONG_DEADLINE: Duration = Duration::from_secs(300);

/// The interval between checks of a condition that sends no event.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Waits until `condition` returns a value. Panics with `what` after the deadline.
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

/// The same without async, as in a `Drop`. Returns whether the condition became true.
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
