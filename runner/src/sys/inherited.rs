//! The listening socket that the runner was started with.

use std::io;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixListener;

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::socket::{getsockopt, sockopt};

use crate::config::INHERITED_SOCKET;

/// Takes it, once: commands must not have it, and whatever else is at that number is an error.
pub fn listener() -> io::Result<UnixListener> {
    // SAFETY: only looked at: whether anything is at that number.
    fcntl(unsafe { BorrowedFd::borrow_raw(INHERITED_SOCKET) }, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    // SAFETY: it is open, was left so at start for this one call, and nothing else in the process owns it.
    let socket = unsafe { OwnedFd::from_raw_fd(INHERITED_SOCKET) };
    if !getsockopt(&socket, sockopt::AcceptConn)? {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a listening socket"));
    }
    let listener = UnixListener::from(socket);
    listener.set_nonblocking(true)?;
    Ok(listener)
}
