//! Waiting on the event loop for a descriptor that tokio has no type for: a pidfd, an inotify instance.

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Registers `fd` with the event loop, to wait until it is readable. One descriptor can be registered once at a time.
pub fn register_readable(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` is open, belongs to its owner alone, and keeps its number for as long as it lives. `AsyncFd` owns it
    // until it has removed the registration.
    let registered = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) };
    registered.map_err(|error| error.into_parts().1)
}
