//! Mounts a workspace over `/workspace` of a running sandbox, in the same way as at a sandbox's start.
//!
//! A thread can enter a mount namespace if it shares its root and working directory with no other thread. Only a process with one
//! thread can enter a user namespace. So a root daemon uses a thread, and the daemon of an ordinary user starts `cove` again as a
//! process of its own. Both hold the sandbox's first process by a pidfd, which cannot come to mean another process.
//!
//! ```text
//! root           copy the mount, mapped to the sandbox's users ──▶ enter its mount namespace ──▶ attach
//!                (a process of its own, too, if the image names a user: its mapping has to be made)
//! ordinary user  enter its user namespace ──▶ make a mount namespace ──▶ copy the mount ──▶ enter its mount namespace ──▶ attach
//! ```

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat2};
use nix::sched::{CloneFlags, setns, unshare};
use shared_protocol::SANDBOX_USER;
use tokio::process::Command;
use tokio::sync::oneshot;

use super::ids::IdRange;
use super::launcher::{AtStep as _, LaunchError};
use super::{idmap, root};
use crate::runtime::policy::WORKSPACE;
use crate::runtime::{RuntimeError, WorkspaceMount, files};
use crate::sys::mount;

/// The hidden subcommand that makes `cove` mount a workspace.
pub const SUBCOMMAND: &str = "__mount-workspace";

/// The longest wait for the mount. On an idle host a thread takes far less than a millisecond, a process some milliseconds.
const TIMEOUT: Duration = Duration::from_secs(10);

const MAX_MESSAGE_BYTES: usize = 4 << 10;

fn failed(error: io::Error) -> RuntimeError {
    RuntimeError::failed("mounting the workspace", error)
}

fn timed_out(_: tokio::time::error::Elapsed) -> RuntimeError {
    failed(io::ErrorKind::TimedOut.into())
}

/// Mounts a workspace as root. `sandbox` is a pidfd of the sandbox's first process and `pid` its number; the owners of the
/// workspace's files are mapped to the users of its user namespace.
pub async fn by_thread(source: WorkspaceMount, pid: i32, sandbox: OwnedFd) -> Result<(), RuntimeError> {
    let (tell, told) = oneshot::channel();
    let work = move || {
        let _ = tell.send(mount_as_root(&source, pid, sandbox.as_fd()));
    };
    // This is a separate thread, not one of the event loop's: it cannot leave the sandbox's mount namespace again.
    std::thread::Builder::new().name("workspace".into()).spawn(work).map_err(failed)?;
    let done = tokio::time::timeout(TIMEOUT, told).await.map_err(timed_out)?;
    let done = done.map_err(|_| failed(io::Error::other("the thread panicked")))?;
    done.map_err(|LaunchError { step, error }| failed(io::Error::other(format!("{step}: {error}"))))
}

fn mount_as_root(source: &WorkspaceMount, pid: i32, sandbox: BorrowedFd<'_>) -> Result<(), LaunchError> {
    // If another process has the number by now, the pidfd's process has ended, and entering its namespaces fails below.
    let users = File::open(format!("/proc/{pid}/ns/user")).at("opening the sandbox's user namespace")?;
    let tree = tree_as_root(source, users.as_fd())?;
    unshare(CloneFlags::CLONE_FS).at("leaving the daemon's working directory")?;
    attach_inside(tree.as_fd(), sandbox)
}

/// Mounts a workspace as an ordinary user, or as root with a mapping of its own. `sandbox` is a pidfd of the sandbox's first process.
pub async fn by_process(
    source: &WorkspaceMount,
    map: Option<&[IdRange]>,
    sandbox: OwnedFd,
) -> Result<(), RuntimeError> {
    let task = serde_json::to_string(&(source, map)).map_err(|e| failed(e.into()))?;
    let mut command = Command::new("/proc/self/exe");
    command.arg(SUBCOMMAND).arg(task).env_clear().current_dir("/").kill_on_drop(true);
    command.stdin(Stdio::from(sandbox)).stdout(Stdio::piped()).stderr(Stdio::inherit());
    let output = tokio::time::timeout(TIMEOUT, command.output()).await.map_err(timed_out)?.map_err(failed)?;
    if output.status.success() {
        return Ok(());
    }
    let message = &output.stdout[..output.stdout.len().min(MAX_MESSAGE_BYTES)];
    Err(failed(io::Error::other(String::from_utf8_lossy(message).trim().to_owned())))
}

/// The whole program of the process that [`by_process`] starts. It has one thread.
pub fn main(task: &str) -> ExitCode {
    match mount(task) {
        Ok(()) => ExitCode::SUCCESS,
        Err(LaunchError { step, error }) => {
            println!("{step}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn mount(task: &str) -> Result<(), LaunchError> {
    let task = serde_json::from_str(task).map_err(io::Error::from).at("reading what to mount")?;
    let (source, map): (WorkspaceMount, Option<Vec<IdRange>>) = task;
    match map {
        None => mount_as_user(source.directory().at("opening the workspace")?),
        Some(map) => mount_mapped(&source, &map),
    }
}

fn mount_as_user(source: &Path) -> Result<(), LaunchError> {
    let stdin = io::stdin();
    let sandbox = stdin.as_fd();
    // An ordinary user may change the sandbox's mounts only from within its user namespace.
    setns(sandbox, CloneFlags::CLONE_NEWUSER).at("entering the sandbox's user namespace")?;
    unshare(CloneFlags::CLONE_NEWNS).at("making a mount namespace")?;
    let tree = root::writable_tree(source, None).at("opening the workspace")?;
    attach_inside(tree.as_fd(), sandbox)
}

/// Mounts a workspace as root in a sandbox whose user of commands is not the one that workspaces belong to.
fn mount_mapped(source: &WorkspaceMount, map: &[IdRange]) -> Result<(), LaunchError> {
    let users = idmap::make(map)?;
    let tree = tree_as_root(source, users.as_fd())?;
    attach_inside(tree.as_fd(), io::stdin().as_fd())
}

/// A copy of the workspace's mount, with owners mapped to the users of a namespace.
fn tree_as_root(source: &WorkspaceMount, users: BorrowedFd<'_>) -> Result<OwnedFd, LaunchError> {
    let tree = match source {
        WorkspaceMount::Directory(path) => {
            files::give(path, SANDBOX_USER).at("giving the workspace to its user")?;
            root::writable_tree(path, Some(users))
        }
        WorkspaceMount::Subvolume { device, subvolume } => root::subvolume_tree(device, *subvolume, users),
    };
    tree.at("opening the workspace")
}

fn attach_inside(tree: BorrowedFd<'_>, sandbox: BorrowedFd<'_>) -> Result<(), LaunchError> {
    setns(sandbox, CloneFlags::CLONE_NEWNS).at("entering the sandbox's mount namespace")?;
    attach(tree).at(format!("mounting {WORKSPACE}"))
}

/// Attaches the mount. `/` is now the sandbox's root. No command has run in it yet; still, no link is followed.
fn attach(tree: BorrowedFd<'_>) -> io::Result<()> {
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_SYMLINKS);
    let place = openat2(AT_FDCWD, Path::new(WORKSPACE), how)?;
    mount::attach(tree, place.as_fd())
}
