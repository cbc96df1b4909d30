//! The directories themselves: made, listed, claimed by those who mount them, and taken away.
//!
//! Owns `<data>/workspaces` and the count of who uses what. What is inside a workspace is a client's and is never looked at
//! here, except to remove it (`remove`). A workspace that is claimed cannot be deleted, and one that is being deleted cannot be
//! claimed; both are decided under one lock.

use std::collections::HashMap;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use shared_protocol::{SessionId, WorkspaceId};

use super::quota::{Project, Quota};
use super::usage;
use crate::runtime::WorkspaceMount;
use crate::session::SessionError;

/// No workspace can have this name: an id begins with a letter or a digit.
const TRASH: &str = ".trash";

/// Whom commands run as, on every runtime.
const SANDBOX_USER: u32 = 1000;

/// A new one belongs to the sandbox's user, as far as we can give it away. One that could not be is not left behind.
fn make(path: &Path) -> std::io::Result<()> {
    std::fs::DirBuilder::new().mode(0o700).create(path)?;
    if nix::unistd::geteuid().is_root() {
        let given = std::os::unix::fs::lchown(path, Some(SANDBOX_USER), Some(SANDBOX_USER));
        if let Err(error) = given {
            std::fs::remove_dir(path)?;
            return Err(error);
        }
    }
    Ok(())
}

/// Who mounts a workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum User {
    Session(SessionId),
    /// A sandbox of the daemon's own, for the file routes.
    Keeper(SessionId),
}

#[derive(Debug, Clone)]
pub struct WorkspaceDirs(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    root: PathBuf,
    quota: Quota,
    uses: Mutex<HashMap<WorkspaceId, Use>>,
}

#[derive(Debug, Default)]
struct Use {
    users: Vec<User>,
    deleting: bool,
}

/// The right to mount a workspace, until dropped.
#[derive(Debug)]
pub struct WorkspaceClaim {
    dirs: WorkspaceDirs,
    id: WorkspaceId,
    user: User,
}

impl WorkspaceClaim {
    pub fn mount(&self) -> WorkspaceMount {
        self.dirs.mount(&self.id)
    }
}

impl Drop for WorkspaceClaim {
    fn drop(&mut self) {
        let mut uses = self.dirs.uses();
        if let Some(found) = uses.get_mut(&self.id) {
            if let Some(at) = found.users.iter().position(|user| *user == self.user) {
                found.users.swap_remove(at);
            }
            if found.users.is_empty() && !found.deleting {
                uses.remove(&self.id);
            }
        }
    }
}

/// The only one who may delete, until dropped.
#[derive(Debug)]
pub struct Deletion {
    dirs: WorkspaceDirs,
    id: WorkspaceId,
}

impl Drop for Deletion {
    fn drop(&mut self) {
        self.dirs.uses().remove(&self.id);
    }
}

impl WorkspaceDirs {
    /// Takes the folder over, made where it is missing, and only for us to enter.
    pub fn open(root: PathBuf) -> std::io::Result<Self> {
        for dir in [&root, &root.join(TRASH)] {
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
            std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o700))?;
        }
        Ok(Self(Arc::new(Inner { root, quota: Quota::Unlimited, uses: Mutex::default() })))
    }

    /// The same, each workspace held to so many MiB where the host can; 0 is no limit.
    pub fn with_limit(self, max_mb: u64) -> Self {
        let quota = Quota::open(&self.0.root, max_mb);
        if let Quota::Unenforceable { why } = &quota {
            tracing::warn!(%why, "workspaces.max_mb is not enforced");
        }
        Self(Arc::new(Inner { root: self.0.root.clone(), quota, uses: Mutex::default() }))
    }

    fn uses(&self) -> MutexGuard<'_, HashMap<WorkspaceId, Use>> {
        self.0.uses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn path(&self, id: &WorkspaceId) -> PathBuf {
        self.0.root.join(id.as_str())
    }

    pub fn trash(&self) -> PathBuf {
        self.0.root.join(TRASH)
    }

    pub fn mount(&self, id: &WorkspaceId) -> WorkspaceMount {
        WorkspaceMount { id: id.clone(), path: self.path(id) }
    }

    /// Not following a link: nobody but us makes entries there, and we make directories.
    pub fn exists(&self, id: &WorkspaceId) -> bool {
        std::fs::symlink_metadata(self.path(id)).is_ok_and(|metadata| metadata.is_dir())
    }

    /// Makes it where it does not exist, and holds it against deletion.
    pub fn claim(&self, id: &WorkspaceId, user: User) -> Result<WorkspaceClaim, SessionError> {
        let mut uses = self.uses();
        if uses.get(id).is_some_and(|found| found.deleting) {
            return Err(SessionError::Conflict(format!("workspace {id} is being deleted")));
        }
        let path = self.path(id);
        let made = match make(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
            made => made,
        };
        made.and_then(|()| self.0.quota.apply(&path))
            .map_err(|error| SessionError::Internal(format!("workspace {id} could not be made: {error}")))?;
        uses.entry(id.clone()).or_default().users.push(user.clone());
        Ok(WorkspaceClaim { dirs: self.clone(), id: id.clone(), user })
    }

    /// Holds it for a session of an earlier daemon. One that was taken away under it is not made again: the session does not have
    /// what is there then.
    pub fn claim_again(&self, id: &WorkspaceId, user: User) -> WorkspaceClaim {
        self.uses().entry(id.clone()).or_default().users.push(user.clone());
        WorkspaceClaim { dirs: self.clone(), id: id.clone(), user }
    }

    /// The right to delete, if nobody uses it; else who does.
    pub fn begin_delete(&self, id: &WorkspaceId) -> Result<Deletion, Vec<User>> {
        let mut uses = self.uses();
        let found = uses.entry(id.clone()).or_default();
        if found.deleting || !found.users.is_empty() {
            return Err(found.users.clone());
        }
        found.deleting = true;
        Ok(Deletion { dirs: self.clone(), id: id.clone() })
    }

    /// Out of sight in one step, whatever is inside; what is left to do can fail without anybody seeing half of it. The account
    /// of its quota, if it has one, is to be closed afterwards.
    pub fn discard(&self, deletion: &Deletion) -> std::io::Result<Option<Project>> {
        let project = self.0.quota.account_of(&self.path(&deletion.id));
        let name = format!("{}-{:016x}", deletion.id, getrandom::u64().map_err(std::io::Error::other)?);
        let to = self.trash().join(name);
        std::fs::rename(self.path(&deletion.id), &to)?;
        Ok(project)
    }

    /// What a workspace holds, by its account or by a walk; `None` where that would take too long.
    pub fn used_bytes(&self, id: &WorkspaceId, budget: &mut usage::Budget) -> Option<u64> {
        let path = self.path(id);
        match self.0.quota.account_of(&path).and_then(|project| project.used_bytes().ok()) {
            Some(bytes) => Some(bytes),
            None => usage::used_bytes(&path, budget),
        }
    }

    /// Every workspace there is with the time it was made, by id.
    pub fn list(&self) -> std::io::Result<Vec<(WorkspaceId, std::time::SystemTime)>> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(&self.0.root)? {
            let entry = entry?;
            let Some(id) = entry.file_name().to_str().and_then(|name| WorkspaceId::new(name).ok()) else { continue };
            // One that is deleted meanwhile is not there.
            let Ok(metadata) = entry.metadata() else { continue };
            if metadata.is_dir() {
                // The time of birth cannot be forged from inside; the other is for file systems without one.
                let made = metadata.created().or_else(|_| metadata.modified());
                found.push((id, made.unwrap_or(std::time::SystemTime::UNIX_EPOCH)));
            }
        }
        found.sort();
        Ok(found)
    }

    pub fn root(&self) -> &Path {
        &self.0.root
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dirs() -> (tempfile::TempDir, WorkspaceDirs) {
        let folder = tempfile::tempdir().unwrap();
        let dirs = WorkspaceDirs::open(folder.path().join("workspaces")).unwrap();
        (folder, dirs)
    }

    fn user(id: &str) -> User {
        User::Session(SessionId::new(id).unwrap())
    }

    #[test]
    fn a_workspace_in_use_is_not_deleted_and_one_being_deleted_is_not_claimed() {
        let (_folder, dirs) = dirs();
        let id = WorkspaceId::new("w").unwrap();
        let first = dirs.claim(&id, user("a")).unwrap();
        let second = dirs.claim(&id, user("b")).unwrap();
        assert_eq!(dirs.begin_delete(&id).unwrap_err(), [user("a"), user("b")]);
        drop(first);
        assert_eq!(dirs.begin_delete(&id).unwrap_err(), [user("b")]);
        drop(second);
        let deletion = dirs.begin_delete(&id).unwrap();
        assert!(dirs.begin_delete(&id).is_err(), "two delete at once");
        assert!(matches!(dirs.claim(&id, user("c")), Err(SessionError::Conflict(_))));
        dirs.discard(&deletion).unwrap();
        assert!(!dirs.exists(&id));
        drop(deletion);
        drop(dirs.claim(&id, user("c")).unwrap());
        assert!(dirs.exists(&id));
    }

    #[test]
    fn only_we_can_enter_and_the_trash_is_no_workspace() {
        let (_folder, dirs) = dirs();
        let mode = std::fs::metadata(dirs.root()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        drop(dirs.claim(&WorkspaceId::new("w").unwrap(), user("a")).unwrap());
        std::fs::write(dirs.root().join("file"), "").unwrap();
        std::os::unix::fs::symlink("/", dirs.root().join("link")).unwrap();
        let names: Vec<String> = dirs.list().unwrap().into_iter().map(|(id, _)| id.to_string()).collect();
        assert_eq!(names, ["w"]);
    }
}
