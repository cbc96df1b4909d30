//! Registers a descriptor with tokio's event loop.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A type that owns one open descriptor, which stays the same as long as the value lives. Only then is epoll sound.
pub trait OwnsDescriptor: AsRawFd {}

impl OwnsDescriptor for OwnedFd {}
impl OwnsDescriptor for super::tty::Master {}
impl OwnsDescriptor for nix::sys::signalfd::SignalFd {}

/// Registers `owner`'s descriptor for as long as the returned value lives.
pub fn register<T: OwnsDescriptor>(owner: T, interest: Interest) -> io::Result<AsyncFd<T>> {
    // SAFETY: `OwnsDescriptor` promises what the call asks for, and `AsyncFd` ends the registration before it returns `owner`.
    let registered = unsafe { AsyncFd::register_with_interest(owner, interest) };
    registered.map_err(|error| error.into_parts().1)
}
