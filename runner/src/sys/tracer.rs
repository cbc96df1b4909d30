//! Finds and kills the processes that trace a child of the runner and so can keep its end from the runner.

use super::{pidfd, proc};

/// The most threads of one process that are looked at.
const MAX_THREADS: usize = 4096;

/// Kills every process that traces a thread of `pid`, a child that has not been collected. Returns the killed ones.
///
/// A tracer outside of the pid namespace has no number here, and stays. So does one that is not below the runner, if the
/// runner is not PID 1: it may be a debugger of the host.
pub fn kill_tracers(pid: i32) -> Vec<i32> {
    let mut killed = Vec::new();
    for thread in proc::threads(pid).into_iter().take(MAX_THREADS) {
        if let Some(tracer) = proc::tracer_of(pid, thread).and_then(|tracer| kill_tracer(pid, thread, tracer))
            && !killed.contains(&tracer)
        {
            killed.push(tracer);
        }
    }
    killed
}

/// Kills the process that the thread `tracer` belongs to. `None` if it is none of the sandbox.
fn kill_tracer(pid: i32, thread: i32, tracer: i32) -> Option<i32> {
    let process = proc::thread_group(tracer)?;
    if !is_of_the_sandbox(process) {
        return None;
    }
    let pidfd = pidfd::open(process).ok()?;
    // While the tracer traces it has not ended. So if it still does, the descriptor is of the tracer, and not of a process
    // that got its number.
    let is_same = proc::tracer_of(pid, thread) == Some(tracer) && proc::thread_group(tracer) == Some(process);
    (is_same && pidfd::kill(&pidfd).is_ok()).then_some(process)
}

fn is_of_the_sandbox(pid: i32) -> bool {
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    pid > 1 && pid != own && (own == 1 || proc::descendants().is_ok_and(|below| below.contains(&pid)))
}
