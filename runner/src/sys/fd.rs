//! Descriptors by number: closing the ones that nobody owns, and taking the socket that the runner was started with.

use std::io;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixListener;

use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::socket::{getsockopt, sockopt};

/// The most descriptors that are closed one by one if `close_range` is missing. The process's limit applies too.
const MAX_CLOSED_ONE_BY_ONE: RawFd = 1 << 20;

/// Closes every descriptor from `first` on. Call it only when nothing in this process owns one of them: at the very start,
/// or in a forked child.
pub fn close_from(first: RawFd) {
    close_range(first, RawFd::MAX);
}

/// The same for the descriptors from `first` to `last`, if there are any.
pub fn close_range(first: RawFd, last: RawFd) {
    if last < first {
        return;
    }
    // SAFETY: closes descriptors that no owner in this process uses again. A raw system call, since musl has no wrapper.
    let result =
        unsafe { libc::syscall(libc::SYS_close_range, libc::c_long::from(first), libc::c_long::from(last), 0) };
    if result == 0 {
        return;
    }
    let limit = getrlimit(Resource::RLIMIT_NOFILE).map_or(u64::MAX, |(soft, _)| soft);
    let most = RawFd::try_from(limit).unwrap_or(RawFd::MAX).min(MAX_CLOSED_ONE_BY_ONE);
    for number in first..=last.min(most - 1) {
        let _ = nix::unistd::close(number);
    }
}

/// Takes ownership of the descriptor `number`, which then does not block and which commands do not inherit. Call it once.
pub fn inherited(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: the descriptor is borrowed for this one call, which fails with EBADF if the number is not open.
    fcntl(unsafe { BorrowedFd::borrow_raw(number) }, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    // SAFETY: it is open, was left open at the start for this one call, and nothing else in the process owns it.
    let fd = unsafe { OwnedFd::from_raw_fd(number) };
    fcntl(&fd, FcntlArg::F_SETFL(OFlag::O_RDWR | OFlag::O_NONBLOCK))?;
    Ok(fd)
}

/// Takes ownership of the listening socket at descriptor `number`. Call it once. Commands do not inherit the socket, and
/// anything that is not a listening socket is an error.
pub fn inherited_listener(number: RawFd) -> io::Result<UnixListener> {
    // SAFETY: the descriptor is borrowed for this one call, which fails with EBADF if the number is not open.
    fcntl(unsafe { BorrowedFd::borrow_raw(number) }, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    // SAFETY: it is open, was left open at the start for this one call, and nothing else in the process owns it.
    let socket = unsafe { OwnedFd::from_raw_fd(number) };
    if !getsockopt(&socket, sockopt::AcceptConn)? {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a listening socket"));
    }
    let listener = UnixListener::from(socket);
    listener.set_nonblocking(true)?;
    Ok(listener)
}
