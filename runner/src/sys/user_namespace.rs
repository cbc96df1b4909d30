//! The user namespace of the commands, if they are root of the sandbox: a child of the runner's own, in which the runner's user does not
//! exist. What commands may do as root there reaches neither the runner's processes nor its files.
//!
//! Whoever makes the sandbox makes the namespace too. The system call filter lets the runner's children enter it under this one number.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::OnceLock;

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::fd::{close_from, close_range};

/// The namespace. It belongs to the process, as its descriptors do, and is set once before anything is started.
static NAMESPACE: OnceLock<OwnedFd> = OnceLock::new();

/// Takes ownership of the namespace with this number. Call it once, at the start.
pub fn keep(number: RawFd) -> io::Result<()> {
    // SAFETY: the descriptor is borrowed for this one call, which fails with EBADF if the number is not open.
    fcntl(unsafe { BorrowedFd::borrow_raw(number) }, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    // SAFETY: it is open, was left open at the start for this one call, and nothing else in the process owns it.
    let namespace = unsafe { OwnedFd::from_raw_fd(number) };
    NAMESPACE.set(namespace).map_err(|_| io::ErrorKind::AlreadyExists.into())
}

/// Whether commands are root of a namespace of their own.
pub fn is_kept() -> bool {
    NAMESPACE.get().is_some()
}

/// Closes every descriptor from `first` on, except the namespace. The same rules as for [`close_from`] apply.
pub fn close_all_others_from(first: RawFd) {
    match NAMESPACE.get().map(AsRawFd::as_raw_fd) {
        Some(number) if number >= first => {
            close_range(first, number - 1);
            close_from(number + 1);
        }
        _ => close_from(first),
    }
}

/// Moves this process, which has one thread, to the commands' namespace, if there is one. There it has every capability and no user yet.
/// Call it in a forked child.
pub fn enter() -> io::Result<bool> {
    let Some(namespace) = NAMESPACE.get() else { return Ok(false) };
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::User))?;
    Ok(true)
}
