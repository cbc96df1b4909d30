//! The size limit of workspaces, if the host can enforce it with project quotas of the data directory's file system.
//!
//! The directory of a workspace carries its project number itself, so the daemon stores it nowhere else. Numbers are random,
//! from a range that other programs rarely use, and a number is taken only if its project is empty. If the host cannot
//! enforce limits, there is no limit; the daemon logs that once at its start, and `cove doctor` reports it.

use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use crate::sys::quota;

/// The first project number of the daemon: Docker counts from 1, Kubernetes from 2^20.
const FIRST_PROJECT: u32 = 1 << 30;
const PROJECTS: u32 = 1 << 30;
const DRAWS: usize = 16;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Quota {
    /// The configuration sets no limit.
    Unlimited,
    Enforced {
        bytes: u64,
        /// The root of the workspaces, which is on the file system with the quotas.
        root: PathBuf,
    },
    /// The configuration sets a limit that this host cannot enforce.
    Unenforceable { why: String },
}

impl Quota {
    pub fn open(root: &Path, max_mb: u64) -> Self {
        match (max_mb, is_enforceable(root)) {
            (0, _) => Self::Unlimited,
            (max_mb, Ok(())) => Self::Enforced { bytes: max_mb << 20, root: root.to_owned() },
            (_, Err(why)) => Self::Unenforceable { why },
        }
    }

    /// The limit, if it is enforced.
    pub fn bytes(&self) -> Option<u64> {
        match self {
            Self::Enforced { bytes, .. } => Some(*bytes),
            Self::Unlimited | Self::Unenforceable { .. } => None,
        }
    }

    /// Applies the limit to a workspace, whatever its limit was before. Files from before there was a limit do not count.
    pub fn apply(&self, workspace: &Path) -> io::Result<()> {
        let Self::Enforced { bytes, .. } = self else { return Ok(()) };
        let dir = directory(workspace)?;
        let project = match quota::project(dir.as_fd())? {
            Some(project) => project,
            None => {
                let project = free_project(&dir)?;
                // The limit is set first, so that no file is in the project without a limit.
                quota::set_limit(dir.as_fd(), project, *bytes)?;
                quota::set_project(dir.as_fd(), project)?;
                return Ok(());
            }
        };
        quota::set_limit(dir.as_fd(), project, *bytes)
    }

    /// The quota project of a workspace, to be closed when its files are gone.
    pub fn account_of(&self, workspace: &Path) -> Option<Project> {
        let Self::Enforced { root, .. } = self else { return None };
        let dir = directory(workspace).ok()?;
        let project = quota::project(dir.as_fd()).ok().flatten()?;
        Some(Project { project, root: root.clone() })
    }
}

/// A quota project that belongs to a workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Project {
    project: u32,
    root: PathBuf,
}

impl Project {
    pub fn used_bytes(&self) -> io::Result<u64> {
        Ok(quota::usage(directory(&self.root)?.as_fd(), self.project)?.used)
    }

    /// Removes the limit. The number is free again when its files are gone.
    pub fn close(&self) -> io::Result<()> {
        quota::set_limit(directory(&self.root)?.as_fd(), self.project, 0)
    }
}

/// Checks whether the file system of a directory enforces limits. The error tells an operator why not.
pub fn is_enforceable(dir: &Path) -> Result<(), String> {
    let open = directory(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    match quota::is_enforced(open.as_fd()) {
        Ok(true) => Ok(()),
        Ok(false) => Err("the data directory's file system counts projects but holds them to nothing".into()),
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => Err("quotas need a daemon that runs as root".into()),
        Err(_) => Err("the data directory's file system is not mounted with project quotas".into()),
    }
}

fn free_project(dir: &File) -> io::Result<u32> {
    for _ in 0..DRAWS {
        let draw = getrandom::u32().map_err(io::Error::other)?;
        let project = FIRST_PROJECT + draw % PROJECTS;
        let account = quota::usage(dir.as_fd(), project)?;
        if (account.limit, account.used, account.files) == (0, 0, 0) {
            return Ok(project);
        }
    }
    Err(io::Error::other("no free account for a quota was found"))
}

fn directory(path: &Path) -> io::Result<File> {
    File::options().read(true).custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_limit_nothing_is_asked_of_the_host_and_nothing_fails() {
        let folder = tempfile::tempdir().unwrap();
        let quota = Quota::open(folder.path(), 0);
        assert_eq!(quota, Quota::Unlimited);
        quota.apply(folder.path()).unwrap();
        assert_eq!(quota.account_of(folder.path()), None);
    }

    #[test]
    fn a_limit_that_cannot_be_enforced_is_none_and_says_why() {
        // `/proc` never has quotas.
        let quota = Quota::open(Path::new("/proc"), 5);
        let Quota::Unenforceable { why } = &quota else { panic!("{quota:?}") };
        assert!(why.contains("quota"), "{why}");
        quota.apply(Path::new("/nowhere")).unwrap();
    }
}
