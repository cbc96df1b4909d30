//! Ending everything below the runner: TERM, a grace, KILL; within a bound, whatever the processes do.

use std::time::Duration;

use tokio::time::Instant;

use crate::reaper::Reaper;
use crate::sys::{proc, signal, wait};

/// After KILL the kernel needs a moment for each process; a process that cannot die (in a dead file system) is left.
const KILL_BOUND: Duration = Duration::from_secs(2);

/// How often to look whether all have gone. Only while ending.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// Ends every process below this one and gives whether all have gone.
pub async fn end_everything(reaper: &Reaper, grace: Duration) -> bool {
    signal_everything(libc::SIGTERM);
    signal_everything(libc::SIGCONT);
    if all_gone(reaper, grace, None).await {
        return true;
    }
    all_gone(reaper, KILL_BOUND, Some(libc::SIGKILL)).await
}

/// Waits until no child is left, signalling again and again where `again` is given: a fork may have escaped the last round.
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

/// As PID 1 the pid namespace is ours. Elsewhere only what descends from us is: never anything else of the same user.
fn signal_everything(number: i32) {
    if std::process::id() == 1 {
        let _ = signal::kill_namespace(number);
        return;
    }
    for pid in proc::descendants().unwrap_or_default() {
        let _ = signal::kill(pid, number);
    }
}
