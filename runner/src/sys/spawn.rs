//! Starts a program.
//!
//! `std::process::Command` forks, executes and reports a failed exec. The rest happens in the child just before exec, with
//! plain system calls on values that were made before the fork. The `Child` is dropped, because the reaper waits for it.

use std::ffi::CString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::stat::{Mode, umask};
use nix::unistd::{chdir, setsid};
use rustix::process::ioctl_tiocsctty;

use super::identity::{self, Identity};
use super::tty::Slave;
use super::{cgroup, sched, signal};

/// The umask of commands. The runner's own umask is 0.
const COMMAND_UMASK: Mode = Mode::S_IWGRP.union(Mode::S_IWOTH);

/// The session of a new process. The process always leads a new one.
pub enum Session<'a> {
    /// Without a terminal.
    Detached,
    /// With this controlling terminal.
    Terminal(&'a Slave),
}

/// The most files that a command may have open, if it is less than what the runner may have. It belongs to the process, as the runner's
/// own limits do, and is set once before anything is started.
static OPEN_FILES: OnceLock<u64> = OnceLock::new();

/// Limits the open files of every process that is started from now on.
pub fn limit_open_files(max: u64) -> io::Result<()> {
    // Nobody can raise a limit again.
    let (_, own) = getrlimit(Resource::RLIMIT_NOFILE)?;
    OPEN_FILES.set(max.min(own)).map_err(|_| io::ErrorKind::AlreadyExists.into())
}

/// Starts `command` as the sandbox user and returns its pid, which the caller must hand to the reaper before it next awaits.
pub fn spawn(command: Command, identity: Identity, session: Session<'_>) -> io::Result<i32> {
    spawn_as(command, identity, session, None, Vec::new())
}

/// The same as `spawn`, in a directory that is entered as the sandbox user and not as the runner.
pub fn spawn_in(command: Command, identity: Identity, session: Session<'_>, dir: Option<&Path>) -> io::Result<i32> {
    spawn_as(command, identity, session, dir, Vec::new())
}

/// The same as `spawn`, with descriptors that the program inherits under the numbers that they have here.
pub fn spawn_with(
    command: Command,
    identity: Identity,
    session: Session<'_>,
    inherited: Vec<OwnedFd>,
) -> io::Result<i32> {
    spawn_as(command, identity, session, None, inherited)
}

fn spawn_as(
    mut command: Command,
    identity: Identity,
    session: Session<'_>,
    dir: Option<&Path>,
    inherited: Vec<OwnedFd>,
) -> io::Result<i32> {
    let dir = dir.map(|d| CString::new(d.as_os_str().as_bytes())).transpose()?;
    let oom_score: CString = identity::command_oom_score();
    let terminal = match session {
        Session::Detached => None,
        Session::Terminal(slave) => Some(slave.try_clone()?),
    };
    let before_exec = move || {
        setsid()?;
        for fd in &inherited {
            fcntl(fd, FcntlArg::F_SETFD(FdFlag::empty()))?;
        }
        if let Some(terminal) = &terminal {
            ioctl_tiocsctty(terminal)?;
            // A shell should answer at once. The programs that it starts do not inherit this.
            sched::request_short_slices();
        }
        cgroup::enter_commands()?;
        if let Some(max) = OPEN_FILES.get() {
            setrlimit(Resource::RLIMIT_NOFILE, *max, *max)?;
        }
        identity::raise_oom_score(&oom_score);
        // Blocked and ignored signals survive exec: the runner blocks some, and the process that started it may ignore
        // others.
        signal::reset_all();
        umask(COMMAND_UMASK);
        identity::become_user(identity)?;
        if let Some(dir) = &dir {
            chdir(dir.as_c_str())?;
        }
        Ok(())
    };
    // SAFETY: the closure makes async-signal-safe calls only, on values that it owns since before the fork.
    unsafe { command.pre_exec(before_exec) };
    pid_of(command)
}

fn pid_of(mut command: Command) -> io::Result<i32> {
    i32::try_from(command.spawn()?.id()).map_err(io::Error::other)
}
