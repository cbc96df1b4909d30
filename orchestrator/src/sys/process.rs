//! Forking a process of one thread, and becoming another program by descriptor.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};

use super::check;

/// Runs `child` in a new process, which ends when that returns, and gives its number here.
///
/// Only for the launcher, which has one thread: no lock can be held by a thread that is not there any more.
pub fn fork(child: impl FnOnce()) -> io::Result<i32> {
    // SAFETY: the caller has one thread, so the child's memory is consistent and any function may be called in it.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            child();
            std::process::exit(0)
        }
        pid => Ok(pid),
    }
}

/// To be killed when the parent ends; `None` takes it back.
pub fn die_with_parent(signal: Option<nix::sys::signal::Signal>) -> io::Result<()> {
    let number = signal.map_or(0, |signal| signal as libc::c_ulong);
    // SAFETY: integers only.
    check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, number, 0, 0, 0) }.into()).map(drop)
}

/// Neither this process nor what it starts can gain privileges by exec any more.
pub fn no_new_privileges() -> io::Result<()> {
    // SAFETY: integers only.
    check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }.into()).map(drop)
}

/// Undoes what the parent's signal handling left: exec keeps ignored signals and the mask.
pub fn reset_signals() {
    // SAFETY: a zeroed set is initialised by sigemptyset; the default action is valid for every signal that takes one.
    unsafe {
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
        for number in 1..=libc::SIGRTMAX() {
            libc::signal(number, libc::SIG_DFL);
        }
    }
}

/// A copy of `fd` with a number from `first` on, closed at exec.
pub fn move_up(fd: &OwnedFd, first: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: integers only.
    super::descriptor(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, first) }.into())
}

/// Makes `fd` the descriptor `number`, to be kept over exec.
pub fn place(fd: OwnedFd, number: RawFd) -> io::Result<()> {
    if fd.as_raw_fd() == number {
        // SAFETY: integers only; clears close-on-exec.
        check(unsafe { libc::fcntl(number, libc::F_SETFD, 0) }.into())?;
        let _ = fd.into_raw_fd();
        return Ok(());
    }
    // SAFETY: both are open or free numbers of this process; whatever was at `number` is meant to go.
    check(unsafe { libc::dup2(fd.as_raw_fd(), number) }.into()).map(drop)
}

/// Every descriptor from `first` on is closed at exec.
pub fn close_on_exec_from(first: RawFd) -> io::Result<()> {
    // SAFETY: integers only.
    check(unsafe { libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) })
        .map(drop)
}

/// Becomes the program behind `file`. Returns only on an error.
pub fn exec(file: BorrowedFd<'_>, arguments: &[CString], environment: &[CString]) -> io::Error {
    let pointers = |strings: &[CString]| -> Vec<*const libc::c_char> {
        strings.iter().map(|s| CStr::as_ptr(s)).chain([std::ptr::null()]).collect()
    };
    let (arguments, environment) = (pointers(arguments), pointers(environment));
    // SAFETY: null-terminated arrays of live C strings.
    unsafe {
        libc::syscall(
            libc::SYS_execveat,
            file.as_raw_fd(),
            c"".as_ptr(),
            arguments.as_ptr(),
            environment.as_ptr(),
            libc::AT_EMPTY_PATH,
        );
    }
    io::Error::last_os_error()
}
