//! Ends every process below the runner: TERM, a grace period, then KILL. The time is bounded, whatever the processes do.

use std::time::Duration;

use tokio::time::Instant;

use crate::reaper::Reaper;
use crate::sys::{proc, signal, wait};

/// The longest wait after KILL. A process that cannot die (in a dead file system) is left.
const KILL_BOUND: Duration = Duration::from_secs(2);

/// How often to check whether all have ended. This happens only during the shutdown.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// Ends every process below this one. Returns whether all have ended.
pub async fn end_everything(reaper: &Reaper, grace: Duration) -> bool {
    signal_everything(libc::SIGTERM);
    signal_everything(libc::SIGCONT);
    if all_gone(reaper, grace, None).await {
        return true;
    }
    all_gone(reaper, KILL_BOUND, Some(libc::SIGKILL)).await
}

/// Waits until no child is left. If `again` is given, it sends that signal in every round, because a fork may have escaped
/// the last one.
async fn all_gone(reaper: &Reaper, within: Duration, again: Option<i32>) -> bool {
    let deadline = Instant::now() + within;
    loop {
        if let Some(number) = again {
            signal_everything(number);
        }
        while reaper.collect() {}
        if !wait::has_children() {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}

/// Signals all processes: as PID 1 the whole pid namespace, otherwise only the runner's descendants and no other process of
/// the same user.
fn signal_everything(number: i32) {
    if std::process::id() == 1 {
        let _ = signal::kill_namespace(number);
        return;
    }
    for pid in proc::descendants().unwrap_or_default() {
        let _ = signal::kill(pid, number);
    }
}
