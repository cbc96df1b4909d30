//! A workspace for a sandbox that runs already: mounted over its own `/workspace`, as it would have been at its start.
//!
//! Mounts are entered by a thread that shares its root and working directory with no other, users only by a process of one thread.
//! So root does it in a thread, and who is not root in a process: `cove` itself, started anew. Either has the sandbox's first process
//! by a descriptor that cannot come to mean another.
//!
//! ```text
//! as root      copy the mount, with the sandbox's users as its mapping ──▶ enter the sandbox's mounts ──▶ put it in place
//! otherwise    enter the sandbox's users ──▶ mounts of our own, which they own ──▶ copy ──▶ enter ──▶ put it in place
//! ```

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat2};
use nix::sched::{CloneFlags, setns, unshare};
use tokio::process::Command;
use tokio::sync::oneshot;

use super::launcher::{AtStep as _, LaunchError};
use super::root;
use crate::runtime::RuntimeError;
use crate::runtime::policy::WORKSPACE;
use crate::sys::mount;

/// The hidden first argument.
pub const WORD: &str = "__mount-workspace";

/// Far less than a millisecond for a thread on an idle host, milliseconds for a process.
const TIMEOUT: Duration = Duration::from_secs(10);

const MAX_MESSAGE_BYTES: usize = 4 << 10;

fn failed(error: io::Error) -> RuntimeError {
    RuntimeError::failed("mounting the workspace", error)
}

fn timed_out(_: tokio::time::error::Elapsed) -> RuntimeError {
    failed(io::ErrorKind::TimedOut.into())
}

/// As root. `pid` is the number of `sandbox`, its first process, whose users are those that the workspace's files are mapped to.
pub async fn by_thread(source: PathBuf, pid: i32, sandbox: OwnedFd) -> Result<(), RuntimeError> {
    let (tell, told) = oneshot::channel();
    let work = move || {
        let _ = tell.send(mount_as_root(&source, pid, sandbox.as_fd()));
    };
    // Not one of the event loop's: it cannot come back from where it goes.
    std::thread::Builder::new().name("workspace".into()).spawn(work).map_err(failed)?;
    let done = tokio::time::timeout(TIMEOUT, told).await.map_err(timed_out)?;
    let done = done.map_err(|_| failed(io::Error::other("the thread panicked")))?;
    done.map_err(|LaunchError { step, error }| failed(io::Error::other(format!("{step}: {error}"))))
}

fn mount_as_root(source: &Path, pid: i32, sandbox: BorrowedFd<'_>) -> Result<(), LaunchError> {
    // Should the number be another's by now, the descriptor is nobody's, and the mount goes nowhere.
    let users = File::open(format!("/proc/{pid}/ns/user")).at("holding the sandbox's users")?;
    let tree = root::writable_tree(source, Some(users.as_fd())).at("opening the workspace")?;
    unshare(CloneFlags::CLONE_FS).at("leaving the daemon's working directory")?;
    put_in_place(tree.as_fd(), sandbox)
}

/// Not as root. `sandbox` is a descriptor of the sandbox's first process.
pub async fn by_process(source: &Path, sandbox: OwnedFd) -> Result<(), RuntimeError> {
    let mut command = Command::new("/proc/self/exe");
    command.arg(WORD).arg(source).env_clear().current_dir("/").kill_on_drop(true);
    command.stdin(Stdio::from(sandbox)).stdout(Stdio::piped()).stderr(Stdio::inherit());
    let output = tokio::time::timeout(TIMEOUT, command.output()).await.map_err(timed_out)?.map_err(failed)?;
    if output.status.success() {
        return Ok(());
    }
    let message = &output.stdout[..output.stdout.len().min(MAX_MESSAGE_BYTES)];
    Err(failed(io::Error::other(String::from_utf8_lossy(message).trim().to_owned())))
}

/// The whole program, where this process was started for it. Before any thread is made.
pub fn main(source: &Path) -> ExitCode {
    match mount_as_user(source) {
        Ok(()) => ExitCode::SUCCESS,
        Err(LaunchError { step, error }) => {
            println!("{step}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn mount_as_user(source: &Path) -> Result<(), LaunchError> {
    let stdin = io::stdin();
    let sandbox = stdin.as_fd();
    // Who is not root has to be one of the sandbox's own before its mounts are his.
    setns(sandbox, CloneFlags::CLONE_NEWUSER).at("entering the sandbox's users")?;
    unshare(CloneFlags::CLONE_NEWNS).at("making a mount namespace")?;
    let tree = root::writable_tree(source, None).at("opening the workspace")?;
    put_in_place(tree.as_fd(), sandbox)
}

fn put_in_place(tree: BorrowedFd<'_>, sandbox: BorrowedFd<'_>) -> Result<(), LaunchError> {
    setns(sandbox, CloneFlags::CLONE_NEWNS).at("entering the sandbox's mounts")?;
    attach(tree).at(format!("mounting {WORKSPACE}"))
}

/// From here on `/` is the sandbox's. Nobody's command has run in it yet, and still no link is followed.
fn attach(tree: BorrowedFd<'_>) -> io::Result<()> {
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_SYMLINKS);
    let place = openat2(AT_FDCWD, Path::new(WORKSPACE), how)?;
    mount::attach(tree, place.as_fd())
}
