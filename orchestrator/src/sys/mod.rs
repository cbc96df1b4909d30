//! The seam to the kernel: every `unsafe` block of the orchestrator is below this folder, each with its reason.
//!
//! Nothing here decides anything. Functions take plain values, make one or a few system calls, and return.
#![allow(unsafe_code, reason = "the one place where the orchestrator talks to libc directly")]

pub mod capability;
pub mod loopback;
pub mod mount;
pub mod pidfd;
pub mod process;
pub mod quota;
pub mod sched;

use std::io;

/// The result of a raw system call.
fn check(result: libc::c_long) -> io::Result<libc::c_long> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// As [`check`], for calls that return a descriptor.
fn descriptor(result: libc::c_long) -> io::Result<std::os::fd::OwnedFd> {
    use std::os::fd::FromRawFd;
    let number = i32::try_from(check(result)?).map_err(io::Error::other)?;
    // SAFETY: the kernel just made it for this call, so nobody else owns it.
    Ok(unsafe { std::os::fd::OwnedFd::from_raw_fd(number) })
}
