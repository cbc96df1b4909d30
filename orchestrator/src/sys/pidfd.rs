//! A process held by a descriptor, which cannot come to mean another process that later gets the same number.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// Opens the process that has this number now. A number that no process can have is `InvalidInput`.
pub fn open(pid: i32) -> io::Result<OwnedFd> {
    let pid = Pid::from_raw(pid).filter(|_| pid > 0).ok_or(io::ErrorKind::InvalidInput)?;
    Ok(pidfd_open(pid, PidfdFlags::empty())?)
}

/// Sends SIGKILL. For a process that has ended already, the error is `ESRCH`.
pub fn kill(pidfd: BorrowedFd<'_>) -> io::Result<()> {
    Ok(pidfd_send_signal(pidfd, Signal::KILL)?)
}

/// Sends SIGCONT, which continues a process that a signal has stopped.
pub fn resume(pidfd: BorrowedFd<'_>) -> io::Result<()> {
    Ok(pidfd_send_signal(pidfd, Signal::CONT)?)
}
