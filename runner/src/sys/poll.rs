//! Registering a descriptor with the event loop.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Types whose descriptor is open, theirs alone and the same for as long as they live: what epoll needs to be sound.
pub trait OwnsDescriptor: AsRawFd {}

impl OwnsDescriptor for OwnedFd {}
impl OwnsDescriptor for super::tty::Master {}
impl OwnsDescriptor for super::signal::SignalFd {}

pub fn register<T: OwnsDescriptor>(owner: T, interest: Interest) -> io::Result<AsyncFd<T>> {
    // SAFETY: `OwnsDescriptor` is what the call asks for, and `AsyncFd` gives `owner` up only with the registration.
    let registered = unsafe { AsyncFd::register_with_interest(owner, interest) };
    registered.map_err(|error| error.into_parts().1)
}
