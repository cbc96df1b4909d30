//! A process held by a descriptor: it cannot be mistaken for another that got its number.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use nix::sys::signal::Signal;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::{check, descriptor};

pub fn open(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: integers only.
    descriptor(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) })
}

/// With the event loop: readable once the process has ended.
pub fn register(pidfd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` is open, its owner's alone and the same for as long as it lives, and `AsyncFd` gives it up only with
    // the registration.
    let registered = unsafe { AsyncFd::register_with_interest(pidfd, interest) };
    registered.map_err(|error| error.into_parts().1)
}

/// A process that has ended is `ESRCH`.
pub fn signal(pidfd: BorrowedFd<'_>, signal: Signal) -> io::Result<()> {
    // SAFETY: no siginfo is passed, integers otherwise.
    check(unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            pidfd.as_raw_fd(),
            signal as libc::c_int,
            std::ptr::null::<libc::siginfo_t>(),
            0,
        )
    })?;
    Ok(())
}
