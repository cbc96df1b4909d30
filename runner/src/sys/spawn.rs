//! Starting a program as the sandbox user.
//!
//! `std::process::Command` does fork, exec and the report of a failed exec; what it does not know is done in the child
//! just before exec. The `Child` it gives is dropped: the reaper waits.

use std::ffi::CString;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use super::identity::{self, Identity};
use super::tty::Slave;
use super::{sched, signal};

/// What a new process is to its terminal.
pub enum Session<'a> {
    /// Leader of a new session without a terminal.
    Detached,
    /// Leader of a new session whose controlling terminal is this one.
    Terminal(&'a Slave),
}

/// Spawns `command` and gives its pid, which the caller must hand to the reaper before it next awaits.
pub fn spawn(command: Command, identity: Identity, session: Session<'_>) -> io::Result<i32> {
    spawn_in(command, identity, session, None)
}

/// As `spawn`, in a directory that is entered as the sandbox user and not as the runner.
pub fn spawn_in(mut command: Command, identity: Identity, session: Session<'_>, dir: Option<&Path>) -> io::Result<i32> {
    let dir = dir.map(|d| CString::new(d.as_os_str().as_bytes())).transpose()?;
    let oom_score: CString = identity::command_oom_score();
    let terminal = match session {
        Session::Detached => None,
        Session::Terminal(slave) => Some(slave.as_raw_fd()),
    };
    // SAFETY: the closure only makes async-signal-safe calls on values captured before the fork. `terminal` stays open
    // in the parent until spawn returns.
    unsafe {
        command.pre_exec(move || {
            if libc::setsid() == -1 {
                return Err(io::Error::last_os_error());
            }
            if let Some(fd) = terminal
                && libc::ioctl(fd, libc::TIOCSCTTY, 0) == -1
            {
                return Err(io::Error::last_os_error());
            }
            identity::raise_oom_score(&oom_score);
            if terminal.is_some() {
                // A shell, which is waited for; what it starts is not.
                sched::take_short_turns();
            }
            // What is blocked or ignored stays so across exec: the runner blocks some, what started it may ignore others.
            signal::reset_all();
            // The runner's own is 0.
            libc::umask(0o022);
            identity::become_user(identity)?;
            match &dir {
                Some(dir) if libc::chdir(dir.as_ptr()) == -1 => Err(io::Error::last_os_error()),
                _ => Ok(()),
            }
        });
    }
    let child = command.spawn()?;
    i32::try_from(child.id()).map_err(io::Error::other)
}

/// Spawns `command` as whoever the runner is, in a process group of its own, with signals as a new program expects them.
pub fn spawn_plain(mut command: Command) -> io::Result<i32> {
    // SAFETY: `reset_all` makes async-signal-safe calls only.
    unsafe {
        command.process_group(0).pre_exec(|| {
            signal::reset_all();
            Ok(())
        });
    }
    i32::try_from(command.spawn()?.id()).map_err(io::Error::other)
}
