//! User namespaces that are made for a mapping: of an idmapped mount, which only root can make, or of commands that are root.
//!
//! To make one, the process forks, so all of this runs in a process with one thread.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use nix::sched::CloneFlags;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::Pid;

use super::ids::{self, IdRange};
use super::launcher::{AtStep as _, LaunchError};
use super::plan::{LaunchPlan, RootPlan, Step};
use crate::sys::mount::{self, Restrictions, Submounts};
use crate::sys::process;

/// Makes a user namespace for each mapping that the plan names. The launcher does this, because it still sees the host's `/proc`,
/// where its children have the numbers that it knows.
pub fn namespaces(plan: &LaunchPlan) -> Result<Vec<(Vec<IdRange>, OwnedFd)>, LaunchError> {
    let of_root = match &plan.root {
        RootPlan::Empty | RootPlan::Disk { .. } => None,
        RootPlan::Image { idmap, .. } | RootPlan::Overlay { idmap, .. } => idmap.as_ref(),
    };
    let of_steps = plan.steps.iter().filter_map(|step| match step {
        Step::Bind { idmap, .. } | Step::Overlay { idmap, .. } => idmap.as_ref(),
        Step::Subvolume { idmap, .. } => Some(idmap),
        _ => None,
    });
    let mut made: Vec<(Vec<IdRange>, OwnedFd)> = Vec::new();
    let of_disk = plan.disk.as_ref().map(|disk| &disk.idmap);
    for map in of_root.into_iter().chain(of_steps).chain(of_disk) {
        if !made.iter().any(|(known, _)| known == map) {
            made.push((map.clone(), make(map)?));
        }
    }
    Ok(made)
}

/// Makes the user namespace in which commands are root, below that of this process, which owns it: whatever enters it later gets all
/// rights in it, and none outside.
pub fn make_for_commands(map: &[IdRange]) -> Result<OwnedFd, LaunchError> {
    make_in(map, process::allow_inspection).at("making the user namespace of commands")
}

/// Makes a user namespace with this mapping. A child enters it and waits until a descriptor holds the namespace.
pub fn make(map: &[IdRange]) -> Result<OwnedFd, LaunchError> {
    make_in(map, || Ok(())).at("making an id mapping for mounts")
}

fn make_in(map: &[IdRange], prepare: impl FnOnce() -> io::Result<()>) -> io::Result<OwnedFd> {
    let (entered, enter) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
    let pid = process::fork(|| {
        if nix::sched::unshare(CloneFlags::CLONE_NEWUSER).is_ok() && prepare().is_ok() {
            drop(enter);
            nix::unistd::pause();
        }
        std::process::exit(1)
    })?;
    // If the child ends, the pipe closes as well. Opening its files below then fails, and that is the error.
    let _ = File::from(entered).read(&mut [0]);
    let opened = ["uid_map", "gid_map"]
        .into_iter()
        .try_for_each(|file| std::fs::write(format!("/proc/{pid}/{file}"), ids::lines(map)))
        .and_then(|()| File::open(format!("/proc/{pid}/ns/user")));
    let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
    let _ = waitpid(Pid::from_raw(pid), None);
    Ok(opened?.into())
}

/// The hidden subcommand that makes `cove` try out an idmapped mount.
pub const PROBE_SUBCOMMAND: &str = "__probe-idmap";

/// Whether mounts of the file system of `path` can be idmapped. A separate process tries it.
pub fn is_supported(path: &Path) -> bool {
    let tried = Command::new("/proc/self/exe").arg(PROBE_SUBCOMMAND).arg(path).stdin(Stdio::null()).status();
    tried.is_ok_and(|status| status.success())
}

/// The whole program of the process that [`is_supported`] starts.
pub fn probe(path: &Path) -> ExitCode {
    let tried = make(&ids::block_map(0)).and_then(|namespace| {
        let tree = mount::clone_tree(nix::fcntl::AT_FDCWD, path, Submounts::Exclude).at("copying the mount")?;
        mount::restrict_and_map(tree.as_fd(), Restrictions::default(), namespace.as_fd()).at("mapping the mount")
    });
    if tried.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
