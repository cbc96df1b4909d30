//! `waitid` for any child, by hand: the wrappers of the crates we use turn a death by a real-time signal into an error
//! after the child has been collected, and its status would be lost.

use std::io;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Collected {
    Exited(i32, i32),
    Killed(i32, i32),
    Stopped(i32),
}

/// Collects one child that has ended or was stopped; `None` when there is none at the moment.
pub fn next_child() -> io::Result<Option<Collected>> {
    loop {
        let mut info = std::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
        // SAFETY: `info` is a writable siginfo_t; P_ALL ignores the id.
        let result =
            unsafe { libc::waitid(libc::P_ALL, 0, info.as_mut_ptr(), libc::WEXITED | libc::WSTOPPED | libc::WNOHANG) };
        if result == -1 {
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::ECHILD) => return Ok(None),
                Some(libc::EINTR) => continue,
                _ => return Err(error),
            }
        }
        // SAFETY: zeroed or filled by the kernel for a child event, so the SIGCHLD fields are the valid ones.
        let (pid, status, code) = unsafe {
            let info = info.assume_init();
            (info.si_pid(), info.si_status(), info.si_code)
        };
        return Ok(match (pid, code) {
            (0, _) => None,
            (pid, libc::CLD_EXITED) => Some(Collected::Exited(pid, status)),
            (pid, libc::CLD_KILLED | libc::CLD_DUMPED) => Some(Collected::Killed(pid, status)),
            (pid, libc::CLD_STOPPED) => Some(Collected::Stopped(pid)),
            _ => continue,
        });
    }
}

/// Whether there is any child left, ended and uncollected ones included.
pub fn has_children() -> bool {
    let mut info = std::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
    // SAFETY: `info` is a writable siginfo_t; nothing is collected.
    let result =
        unsafe { libc::waitid(libc::P_ALL, 0, info.as_mut_ptr(), libc::WEXITED | libc::WNOHANG | libc::WNOWAIT) };
    result == 0 || io::Error::last_os_error().raw_os_error() != Some(libc::ECHILD)
}
