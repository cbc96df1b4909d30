//! The cgroup of the commands, apart from the runner's own, if whoever made the sandbox has made one.
//!
//! The runner is started with files of that cgroup open for writing. The kernel checks the rights of the user who opened them, so a
//! process of the sandbox can enter the cgroup and can do nothing else to it. The files are closed at exec: no command holds one.

use std::io;
use std::ops::Range;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::OnceLock;

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::unistd::write;

/// The files. They belong to the process, as its descriptors do, and are set once before anything is started.
static ENTRANCES: OnceLock<Vec<OwnedFd>> = OnceLock::new();

/// What a process that enters a cgroup writes: itself, whatever its number is.
const SELF: &[u8] = b"0";

/// Takes ownership of the files with these numbers. Call it once, at the start.
pub fn keep_entrances(numbers: Range<RawFd>) -> io::Result<()> {
    let mut entrances = Vec::new();
    for number in numbers {
        // SAFETY: the descriptor is borrowed for this one call, which fails with EBADF if the number is not open.
        fcntl(unsafe { BorrowedFd::borrow_raw(number) }, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
        // SAFETY: it is open, was left open at the start for this one call, and nothing else in the process owns it.
        entrances.push(unsafe { OwnedFd::from_raw_fd(number) });
    }
    ENTRANCES.set(entrances).map_err(|_| io::ErrorKind::AlreadyExists.into())
}

/// Moves this process, which has one thread, to the commands. Call it in a forked child. Without such a cgroup it does nothing.
pub fn enter_commands() -> io::Result<()> {
    for entrance in ENTRANCES.get().into_iter().flatten() {
        write(entrance, SELF)?;
    }
    Ok(())
}
