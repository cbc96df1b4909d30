//! Forking a process that has one thread, and replacing a process by another program.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, IntoRawFd as _, OwnedFd, RawFd};

use nix::fcntl::AtFlags;
use nix::sys::signal::{SigSet, SigmaskHow, sigprocmask};
use rustix::process::{Signal, set_parent_process_death_signal};

/// Runs `child` in a new process, which exits when `child` returns. The caller gets the number of the new process.
///
/// Only a process with one thread may call this, as the launcher does: in the child no other thread exists that could hold a lock.
pub fn fork(child: impl FnOnce()) -> io::Result<i32> {
    // SAFETY: the caller has one thread, so the child's memory is consistent and the child may call any function.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            child();
            std::process::exit(0)
        }
        pid => Ok(pid),
    }
}

/// Asks the kernel to kill this process when its parent ends.
pub fn die_with_parent() -> io::Result<()> {
    Ok(set_parent_process_death_signal(Some(Signal::KILL))?)
}

/// Takes [`die_with_parent`] back.
pub fn outlive_parent() -> io::Result<()> {
    Ok(set_parent_process_death_signal(None)?)
}

/// Lets processes of the same user look at this one in `/proc`, as the kernel does not after a change of users.
pub fn allow_inspection() -> io::Result<()> {
    Ok(nix::sys::prctl::set_dumpable(true)?)
}

/// From now on neither this process nor anything it starts can gain privileges by exec.
pub fn no_new_privileges() -> io::Result<()> {
    Ok(rustix::thread::set_no_new_privs(true)?)
}

/// Unblocks every signal and gives each its default action. Exec would otherwise keep the mask and the ignored signals that the
/// parent left.
pub fn reset_signals() -> io::Result<()> {
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)?;
    for number in 1..=libc::SIGRTMAX() {
        // SAFETY: the default action runs no code of ours. For KILL and STOP the kernel refuses the call, which changes nothing.
        unsafe { libc::signal(number, libc::SIG_DFL) };
    }
    Ok(())
}

/// The descriptors that a program starts with. It inherits no others.
pub struct ProgramFds<'a> {
    pub stdin: BorrowedFd<'a>,
    pub stdout_and_stderr: BorrowedFd<'a>,
    /// Becomes [`SOCKET_FD`].
    pub socket: BorrowedFd<'a>,
    /// Get the numbers after [`SOCKET_FD`]. There may be [`MAX_OTHERS`].
    pub others: Vec<BorrowedFd<'a>>,
}

/// The number that a program finds its listening socket at.
pub const SOCKET_FD: RawFd = 3;

/// Descriptors from this number on are not overwritten by [`exec`].
const FIRST_KEPT_FD: RawFd = 16;

/// A file for each of six cgroups, a user namespace, and three connections for files of `/proc`.
const MAX_OTHERS: usize = 10;

/// Copies `fd` to a number that [`exec`] does not overwrite. The copy is closed at exec.
pub fn copy_out_of_the_way(fd: impl AsFd) -> io::Result<OwnedFd> {
    Ok(rustix::io::fcntl_dupfd_cloexec(fd, FIRST_KEPT_FD)?)
}

/// Replaces this process by the program in `file`.
///
/// Returns only if that fails. By then it may have overwritten the descriptors 0 to 15, whoever owns them, so all that is left to
/// do is to report the error over a descriptor that was copied out of the way, and to exit.
pub fn exec(file: impl AsFd, fds: &ProgramFds<'_>, arguments: &[CString], environment: &[CString]) -> io::Error {
    let replace = || -> io::Result<std::convert::Infallible> {
        let file = copy_out_of_the_way(file)?;
        let stdin = copy_out_of_the_way(fds.stdin)?;
        let output = copy_out_of_the_way(fds.stdout_and_stderr)?;
        let socket = copy_out_of_the_way(fds.socket)?;
        let others = fds.others.iter().map(copy_out_of_the_way).collect::<io::Result<Vec<_>>>()?;
        if others.len() > MAX_OTHERS {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        nix::unistd::dup2_stdin(stdin)?;
        nix::unistd::dup2_stdout(&output)?;
        nix::unistd::dup2_stderr(output)?;
        let mut number = SOCKET_FD;
        for fd in std::iter::once(socket).chain(others) {
            // SAFETY: whoever owns the number loses it with this process image; nothing uses it between here and the exec or the
            // exit.
            let _ = unsafe { nix::unistd::dup2_raw(fd, number) }?.into_raw_fd();
            number += 1;
        }
        close_on_exec_from(number)?;
        Ok(nix::unistd::execveat(file, c"", arguments, environment, AtFlags::AT_EMPTY_PATH)?)
    };
    match replace() {
        Ok(never) => match never {},
        Err(error) => error,
    }
}

/// Marks every descriptor from `first` on to be closed at exec.
fn close_on_exec_from(first: RawFd) -> io::Result<()> {
    // SAFETY: the call takes integers only, and closes nothing now.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
