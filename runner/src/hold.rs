//! Stops every process of the sandbox for a while, so that its disk can be copied as of one moment: a runner cannot freeze its own
//! container and still answer.
//!
//! ```text
//! free ──hold──▶ held (all processes are stopped; requests wait) ──release──▶ free
//! ```
//!
//! A parent is stopped before its children and continued after them. So no shell sees a child that is stopped, and none takes it for a
//! suspended job. What was stopped before stays so.

use std::cell::RefCell;
use std::collections::HashSet;
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::reaper::Reaper;
use crate::sys::{proc, signal};

/// The longest time for all processes to stop. The daemon waits for 5 s.
const HOLD_TIMEOUT: Duration = Duration::from_secs(3);
/// How long to wait for signals to be delivered. The runner does nothing else meanwhile, so it starts no process.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);
/// The looks in a row that have to find everything stopped. One may miss the child of a process that stops meanwhile.
const QUIET_LOOKS: u32 = 2;

/// Whether processes are held. One for each runner.
pub struct Hold {
    reaper: Reaper,
    /// The processes that were stopped, parents first. `None` if nothing is held.
    stopped: RefCell<Option<Vec<i32>>>,
    released: Notify,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("process {pid} could not be stopped within {} s", HOLD_TIMEOUT.as_secs())]
pub struct NotStopped {
    pub pid: i32,
}

impl Hold {
    pub fn new(reaper: Reaper) -> Self {
        Self { reaper, stopped: RefCell::default(), released: Notify::new() }
    }

    pub fn is_held(&self) -> bool {
        self.stopped.borrow().is_some()
    }

    /// Stops all processes. If one does not stop, none stays stopped. Held processes stay held.
    pub fn hold(&self) -> Result<(), NotStopped> {
        if self.is_held() {
            return Ok(());
        }
        // The runner itself continues children that are stopped.
        self.reaper.ignore_stops(true);
        let mut stopped = Vec::new();
        match stop_all(&mut stopped) {
            Ok(()) => {
                *self.stopped.borrow_mut() = Some(stopped);
                Ok(())
            }
            Err(error) => {
                self.resume(&stopped);
                Err(error)
            }
        }
    }

    /// Continues what was stopped. Without a hold it does nothing.
    pub fn release(&self) {
        if let Some(stopped) = self.stopped.take() {
            self.resume(&stopped);
            self.released.notify_waiters();
        }
    }

    fn resume(&self, stopped: &[i32]) {
        // Their stops are collected while they are still ignored.
        while self.reaper.collect() {}
        self.reaper.ignore_stops(false);
        for pid in stopped.iter().rev() {
            let _ = signal::kill(*pid, libc::SIGCONT);
        }
    }

    /// Waits until nothing is held.
    pub async fn released(&self) {
        loop {
            let released = self.released.notified();
            tokio::pin!(released);
            released.as_mut().enable();
            if !self.is_held() {
                return;
            }
            released.await;
        }
    }
}

fn stop_all(stopped: &mut Vec<i32>) -> Result<(), NotStopped> {
    let deadline = Instant::now() + HOLD_TIMEOUT;
    let mut quiet = 0;
    loop {
        let moving = moving();
        let pids: HashSet<i32> = moving.iter().map(|(pid, _)| *pid).collect();
        let Some((first, _)) = moving.first() else {
            quiet += 1;
            if quiet == QUIET_LOOKS {
                return Ok(());
            }
            continue;
        };
        quiet = 0;
        if Instant::now() >= deadline {
            return Err(NotStopped { pid: *first });
        }
        for (pid, _) in moving.iter().filter(|(_, parent)| !pids.contains(parent)) {
            if signal::kill(*pid, libc::SIGSTOP).is_ok() && !stopped.contains(pid) {
                stopped.push(*pid);
            }
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
}

/// The processes below the runner, or of its whole namespace, of which a thread is not stopped, each with its parent.
fn moving() -> Vec<(i32, i32)> {
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    let all = if own == 1 { proc::pids() } else { proc::descendants() };
    let others = all.unwrap_or_default().into_iter().filter(|pid| *pid != own);
    others.filter(|pid| is_moving(*pid)).filter_map(|pid| Some((pid, proc::stat(pid)?.parent))).collect()
}

fn is_moving(pid: i32) -> bool {
    let is_still = |state: u8| matches!(state, b'T' | b't' | b'Z' | b'X' | b'x');
    proc::threads(pid).into_iter().any(|thread| proc::thread_state(pid, thread).is_some_and(|state| !is_still(state)))
}
