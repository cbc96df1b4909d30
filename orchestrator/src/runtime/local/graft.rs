//! A workspace for a sandbox that runs already: mounted over its own `/workspace`, as it would have been at its start.
//!
//! Namespaces are entered by threads, so this is done by a process of one thread: `cove` itself, started anew, with the sandbox's
//! first process as its standard input, held by a descriptor that cannot come to mean another.
//!
//! ```text
//! as root      copy the mount, with its mapping ──▶ enter the sandbox's mounts ──▶ put it in place
//! otherwise    enter the sandbox's users ──▶ mounts of our own, which they own ──▶ copy ──▶ enter ──▶ put it in place
//! ```

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat2};
use nix::sched::{CloneFlags, setns, unshare};
use serde::{Deserialize, Serialize};
use tokio::process::Command;

use super::ids::IdRange;
use super::launcher::{AtStep as _, LaunchError};
use super::{idmap, root};
use crate::runtime::RuntimeError;
use crate::runtime::policy::WORKSPACE;
use crate::sys::mount;

/// The hidden first argument.
pub const WORD: &str = "__mount-workspace";

/// Milliseconds on an idle host.
const TIMEOUT: Duration = Duration::from_secs(10);

const MAX_MESSAGE_BYTES: usize = 4 << 10;

/// What the process is told, as its second argument.
#[derive(Debug, Serialize, Deserialize)]
pub struct GraftPlan {
    pub source: PathBuf,
    pub idmap: Option<Vec<IdRange>>,
    /// Who is not root has to be one of the sandbox's own before its mounts are his.
    pub enter_users: bool,
}

/// The daemon's side. `sandbox` is a descriptor of the sandbox's first process.
pub async fn graft(plan: &GraftPlan, sandbox: OwnedFd) -> Result<(), RuntimeError> {
    const STEP: &str = "mounting the workspace";
    let text = serde_json::to_string(plan).map_err(|e| RuntimeError::failed(STEP, e))?;
    let mut command = Command::new("/proc/self/exe");
    command.arg(WORD).arg(text).env_clear().current_dir("/").kill_on_drop(true);
    command.stdin(Stdio::from(sandbox)).stdout(Stdio::piped()).stderr(Stdio::inherit());
    let output = match tokio::time::timeout(TIMEOUT, command.output()).await {
        Ok(output) => output.map_err(|e| RuntimeError::failed(STEP, e))?,
        Err(_) => return Err(RuntimeError::failed(STEP, io::Error::from(io::ErrorKind::TimedOut))),
    };
    if output.status.success() {
        return Ok(());
    }
    let message = &output.stdout[..output.stdout.len().min(MAX_MESSAGE_BYTES)];
    Err(RuntimeError::failed(STEP, io::Error::other(String::from_utf8_lossy(message).trim().to_owned())))
}

/// The whole program, where this process was started for it. Before any thread is made.
pub fn main(plan: &str) -> ExitCode {
    match run(plan) {
        Ok(()) => ExitCode::SUCCESS,
        Err(LaunchError { step, error }) => {
            println!("{step}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(plan: &str) -> Result<(), LaunchError> {
    let plan: GraftPlan = serde_json::from_str(plan).at("reading the plan")?;
    let stdin = io::stdin();
    let sandbox = stdin.as_fd();
    let idmap = plan.idmap.as_deref().map(idmap::make).transpose()?;
    if plan.enter_users {
        setns(sandbox, CloneFlags::CLONE_NEWUSER).at("entering the sandbox's users")?;
        unshare(CloneFlags::CLONE_NEWNS).at("making a mount namespace")?;
    }
    let tree = root::writable_tree(&plan.source, idmap.as_ref().map(AsFd::as_fd)).at("opening the workspace")?;
    setns(sandbox, CloneFlags::CLONE_NEWNS).at("entering the sandbox's mounts")?;
    attach(tree.as_fd()).at(format!("mounting {WORKSPACE}"))
}

/// From here on `/` is the sandbox's. Nobody's command has run in it yet, and still no link is followed.
fn attach(tree: BorrowedFd<'_>) -> io::Result<()> {
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_SYMLINKS);
    let place = openat2(AT_FDCWD, Path::new(WORKSPACE), how)?;
    mount::attach(tree, place.as_fd())
}
