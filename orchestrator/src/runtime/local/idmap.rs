//! User namespaces that exist only to be the mapping of an idmapped mount. Only root can make such mounts.

use std::fs::File;
use std::io::Read as _;
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
use crate::sys::mount::{self, Restrictions};
use crate::sys::process;

/// One for each mapping that the plan names. Made by the launcher, since it sees processes by the numbers that its `/proc` has.
pub fn namespaces(plan: &LaunchPlan) -> Result<Vec<(Vec<IdRange>, OwnedFd)>, LaunchError> {
    let of_root = match &plan.root {
        RootPlan::Empty => None,
        RootPlan::Image { idmap, .. } | RootPlan::Overlay { idmap, .. } => idmap.as_ref(),
    };
    let of_steps = plan.steps.iter().filter_map(|step| match step {
        Step::Bind { idmap, .. } => idmap.as_ref(),
        _ => None,
    });
    let mut made: Vec<(Vec<IdRange>, OwnedFd)> = Vec::new();
    for map in of_root.into_iter().chain(of_steps) {
        if !made.iter().any(|(known, _)| known == map) {
            made.push((map.clone(), make(map)?));
        }
    }
    Ok(made)
}

/// A child enters the namespace and waits; once a descriptor holds the namespace, it is not needed any more.
pub fn make(map: &[IdRange]) -> Result<OwnedFd, LaunchError> {
    let (entered, enter) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).at("making a pipe")?;
    let pid = process::fork(|| {
        if nix::sched::unshare(CloneFlags::CLONE_NEWUSER).is_ok() {
            drop(enter);
            nix::unistd::pause();
        }
        std::process::exit(1)
    })
    .at("forking")?;
    // Its end closes the pipe as well; then the files below do not exist, which is said.
    let _ = File::from(entered).read(&mut [0]);
    let opened = ["uid_map", "gid_map"]
        .into_iter()
        .try_for_each(|file| std::fs::write(format!("/proc/{pid}/{file}"), ids::lines(map)))
        .and_then(|()| File::open(format!("/proc/{pid}/ns/user")));
    let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
    let _ = waitpid(Pid::from_raw(pid), None);
    Ok(opened.at("making a mapping for mounts")?.into())
}

/// The hidden first argument of the process that tries it out.
pub const PROBE_WORD: &str = "__probe-idmap";

/// Whether mounts of the file system that `path` is on can be idmapped. Tried in a process of its own: it forks.
pub fn is_supported(path: &Path) -> bool {
    let tried = Command::new("/proc/self/exe").arg(PROBE_WORD).arg(path).stdin(Stdio::null()).status();
    tried.is_ok_and(|status| status.success())
}

/// What that process does.
pub fn probe(path: &Path) -> ExitCode {
    let tried = make(&ids::block_map(0)).and_then(|namespace| {
        let tree = mount::clone_tree(nix::fcntl::AT_FDCWD, path, false).at("copying the mount")?;
        mount::restrict(tree.as_fd(), Restrictions::default(), false, Some(namespace.as_fd())).at("mapping the mount")
    });
    if tried.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
