//! Calls to the kernel: every `unsafe` block of the orchestrator is in this folder, and each says why it is sound.
//!
//! Where `nix` or `rustix` has a safe function for a call, that one is used. What is left unsafe here has none: `fork`, signal
//! actions, a descriptor at a fixed number, `close_range`, `mount_setattr`, `sched_setattr`, project quotas, Landlock, the `ioctl`
//! calls of btrfs, of loop devices and of the loopback interface, and `getaddrinfo` with the name behind an alias.
//!
//! Nothing here decides anything. A function takes plain values, makes one or a few system calls, and returns.
#![allow(unsafe_code, reason = "the one place where the orchestrator makes system calls that no library makes safely")]

pub mod async_fd;
pub mod btrfs;
pub mod capability;
pub mod landlock;
pub mod loop_device;
pub mod loopback;
pub mod mount;
pub mod name_service;
pub mod oom_score;
pub mod pidfd;
pub mod process;
pub mod quota;
pub mod sched;

use std::os::fd::{FromRawFd as _, OwnedFd, RawFd};

/// Takes a descriptor that `recvmsg` has just received. Nobody else knows its number.
pub fn received_fd(number: RawFd) -> OwnedFd {
    // SAFETY: the kernel has made this descriptor for the message; the caller passes each of them here once.
    unsafe { OwnedFd::from_raw_fd(number) }
}
