//! Waits for any child.
//!
//! It uses rustix: nix turns the death of a child by a real-time signal into an error after it has collected the child, so
//! the status would be lost.

use std::io;

use rustix::io::Errno;
use rustix::process::{WaitId, WaitIdOptions, WaitOptions, WaitStatus, wait, waitid};

/// A change of a child's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Collected {
    /// The pid and its exit code.
    Exited(i32, i32),
    /// The pid and the signal that killed it.
    Killed(i32, i32),
    Stopped(i32),
}

/// Collects one child that has ended or was stopped. `None` if there is none at the moment.
pub fn next_child() -> io::Result<Option<Collected>> {
    loop {
        let (pid, status) = match wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
            Ok(Some((pid, status))) => (pid.as_raw_nonzero().get(), status),
            Ok(None) | Err(Errno::CHILD) => return Ok(None),
            Err(Errno::INTR) => continue,
            Err(errno) => return Err(errno.into()),
        };
        if let Some(collected) = classify(pid, status) {
            return Ok(Some(collected));
        }
    }
}

fn classify(pid: i32, status: WaitStatus) -> Option<Collected> {
    if let Some(code) = status.exit_status() {
        return Some(Collected::Exited(pid, code));
    }
    if let Some(signal) = status.terminating_signal() {
        return Some(Collected::Killed(pid, signal));
    }
    status.stopped().then_some(Collected::Stopped(pid))
}

/// Whether any child is left, including ended ones that were not collected. It collects nothing.
pub fn has_children() -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    !matches!(waitid(WaitId::All, options), Err(Errno::CHILD))
}
