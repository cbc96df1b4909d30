//! Pidfds: descriptors of processes, which never stand for another process that got the same number later.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// Opens the process with this number. It must lead its thread group.
pub fn open(pid: i32) -> io::Result<OwnedFd> {
    let pid = Pid::from_raw(pid).ok_or(io::ErrorKind::InvalidInput)?;
    Ok(pidfd_open(pid, PidfdFlags::empty())?)
}

pub fn kill(pidfd: impl AsFd) -> io::Result<()> {
    Ok(pidfd_send_signal(pidfd, Signal::KILL)?)
}
