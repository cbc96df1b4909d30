//! The one network interface of a sandbox.

use std::io;
use std::os::fd::AsRawFd;

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

/// Brings `lo` of this network namespace up.
pub fn up() -> io::Result<()> {
    let socket = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
    // SAFETY: an all-zero ifreq is a valid value of the type.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = libc::c_char::try_from(*from).map_err(io::Error::other)?;
    }
    request.ifr_ifru.ifru_flags =
        libc::c_short::try_from(libc::IFF_UP | libc::IFF_RUNNING).map_err(io::Error::other)?;
    // SAFETY: a live structure of the type that the request takes.
    if unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as _, &raw const request) } == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
