//! Workspaces: creates them, lists them, holds them for those who mount them, and deletes them.
//!
//! A workspace is a directory, or it is on the disks of sessions (`on_disks`); it stays what it was made as. This file owns
//! `<data>/workspaces`, which has the directories of the first owner, and those of the others in `.owners/NAME`. It
//! knows who uses which workspace. The content of a workspace belongs to clients: this code only removes it (`remove`) or
//! counts it (`usage`).
//!
//! ```text
//!  hold ──▶ WorkspaceHold ── prepare (on the disk's threads)
//!             until dropped, and until its work on the disk is over
//!  begin_delete ──▶ Deletion ── discard
//! ```
//!
//! A held workspace cannot be deleted, and a workspace that is being deleted cannot be held. Both are decided under one
//! lock, which is never held during I/O. A caller takes the hold first and looks at the disk second, so nothing can change
//! in between.

use std::collections::HashMap;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use shared_protocol::api::WorkspaceKind;
use shared_protocol::{KeyName, SANDBOX_USER, SessionId};

use super::on_disks::OnDisks;
use super::quota::{Project, Quota};
use super::records::Records;
use super::{WorkspaceError, remove};
use crate::config::{WorkspaceStorage, WorkspacesConfig};
use crate::disk::DiskThreads;
use crate::failpoint;
use crate::owner::WorkspaceName;
use crate::runtime::WorkspaceMount;
use crate::runtime::local::WorkspaceDisks;

/// The directory for deleted workspaces. No workspace can have this name, because an id begins with a letter or a digit.
const TRASH: &str = ".trash";

/// The directory with a directory for each owner but the first, whose workspaces lie beside it: they are from before there were
/// several owners.
pub(super) const OWNERS: &str = ".owners";

/// The directory with the records of workspaces on disks.
pub(super) const DISKS: &str = ".disks";

/// Creates a directory and makes the sandbox user its owner, if the daemon has the right. If that fails, the directory is
/// removed.
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

/// A user of a workspace, which mounts it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum User {
    Session(SessionId),
    /// A workspace sandbox, which serves the file routes.
    WorkspaceSandbox(SessionId),
}

/// What a runtime can mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// What has a path on the host.
    Paths,
    /// Also workspaces on disks without a path.
    Disks,
}

#[derive(Debug, Clone)]
pub struct WorkspaceDirs(pub(super) Arc<Inner>);

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) root: PathBuf,
    pub(super) quota: Quota,
    pub(super) on_disks: OnDisks,
    /// Where new workspaces are, for a runtime that can mount it.
    new: WorkspaceKind,
    max_per_owner: usize,
    /// Held while workspaces are counted and another one is made.
    making: Mutex<()>,
    disk: DiskThreads,
    uses: Mutex<HashMap<WorkspaceName, Use>>,
}

#[derive(Debug, Default)]
struct Use {
    users: Vec<User>,
    deleting: bool,
}

/// The right to mount a workspace. It lasts until the last clone is dropped; work on the disk keeps a clone.
#[derive(Debug, Clone)]
pub struct WorkspaceHold(Arc<Held>);

#[derive(Debug)]
struct Held {
    dirs: WorkspaceDirs,
    name: WorkspaceName,
    user: User,
}

impl WorkspaceHold {
    /// Prepares the workspace, applies the size limit to it, and tells how to mount it. For a session, a missing workspace is
    /// created; for a workspace sandbox, it is not. Two calls for the same workspace run one after the other.
    pub async fn prepare(&self, reach: Reach) -> Result<WorkspaceMount, WorkspaceError> {
        self.work(move |held| held.prepare(reach)).await?
    }

    async fn work<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Held) -> std::io::Result<T> + Send + 'static,
    ) -> Result<T, WorkspaceError> {
        let (held, Held { dirs, name, .. }) = (self.0.clone(), &*self.0);
        let id = &name.id;
        // The work holds a clone, so that nobody deletes the workspace if this caller stops waiting.
        let done = dirs.0.disk.run_for(&disk_key(name), move || work(&held)).await;
        done.map_err(std::io::Error::from)
            .and_then(|done| done)
            .map_err(|error| WorkspaceError::Failed(format!("workspace {id} could not be made: {error}")))
    }
}

impl Held {
    fn prepare(&self, reach: Reach) -> std::io::Result<Result<WorkspaceMount, WorkspaceError>> {
        failpoint::at("workspace.directory")?;
        let Self { dirs, name, user } = self;
        let on_disks = &dirs.0.on_disks;
        let kind = match (dirs.kind_now(name)?, user) {
            (Some(kind), _) => kind,
            (None, User::WorkspaceSandbox(_)) => return Ok(Err(WorkspaceError::NotFound(name.id.clone()))),
            (None, User::Session(_)) => {
                let _making = dirs.0.making.lock().unwrap_or_else(PoisonError::into_inner);
                if dirs.count(&name.owner)? >= dirs.0.max_per_owner {
                    return Ok(Err(WorkspaceError::too_many(dirs.0.max_per_owner)));
                }
                match dirs.kind_of_new(reach) {
                    WorkspaceKind::Directory => {
                        dirs.make_directory(name)?;
                        WorkspaceKind::Directory
                    }
                    WorkspaceKind::Disk => match on_disks.make(name)? {
                        Ok(()) => WorkspaceKind::Disk,
                        Err(refused) => return Ok(Err(refused)),
                    },
                }
            }
        };
        match kind {
            WorkspaceKind::Directory => {
                let path = dirs.path(name);
                dirs.0.quota.apply(&path)?;
                Ok(Ok(WorkspaceMount::Directory(path)))
            }
            WorkspaceKind::Disk if reach == Reach::Paths && on_disks.are_possible() && !on_disks.have_paths() => {
                Ok(Err(WorkspaceError::Unmountable(name.id.clone())))
            }
            WorkspaceKind::Disk => on_disks.prepare(name),
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut uses = self.dirs.uses();
        if let Some(found) = uses.get_mut(&self.name) {
            if let Some(at) = found.users.iter().position(|user| *user == self.user) {
                found.users.swap_remove(at);
            }
            if found.users.is_empty() && !found.deleting {
                uses.remove(&self.name);
            }
        }
    }
}

/// The key under which work on one workspace runs in order.
fn disk_key(name: &WorkspaceName) -> String {
    format!("{}/{}", name.owner, name.id)
}

/// The exclusive right to delete a workspace, until it is dropped.
#[derive(Debug)]
pub struct Deletion {
    dirs: WorkspaceDirs,
    name: WorkspaceName,
}

impl Drop for Deletion {
    fn drop(&mut self) {
        self.dirs.uses().remove(&self.name);
    }
}

impl WorkspaceDirs {
    /// Opens the folder. It is created if it is missing, and only the daemon's user can enter it.
    pub fn open(root: PathBuf) -> std::io::Result<Self> {
        for dir in [&root, &root.join(TRASH)] {
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
            std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o700))?;
        }
        let on_disks = OnDisks::new(None, Records::new(root.join(DISKS)), None);
        Ok(Self(Arc::new(Inner {
            root,
            quota: Quota::Unlimited,
            on_disks,
            new: WorkspaceKind::Directory,
            max_per_owner: usize::MAX,
            making: Mutex::default(),
            disk: DiskThreads::default(),
            uses: Mutex::default(),
        })))
    }

    /// Applies the configuration: limits, and where new workspaces are. It also makes the records of workspaces on these disks
    /// agree with what is there.
    pub fn with_config(self, config: &WorkspacesConfig, disks: Option<WorkspaceDisks>) -> std::io::Result<Self> {
        let root = self.0.root.clone();
        let quota = Quota::open(&root, config.max_mb);
        let on_disks = OnDisks::new(disks, Records::new(root.join(DISKS)), config.max_bytes());
        if config.storage == WorkspaceStorage::Disk && !on_disks.are_possible() {
            let why = "workspaces.storage is disk, and this daemon has no disks: see local.disk and cove doctor";
            return Err(std::io::Error::other(why));
        }
        on_disks.recover()?;
        let new = kind_of_new(config, quota.bytes().is_some(), on_disks.are_possible());
        match &quota {
            Quota::Unenforceable { why } if new == WorkspaceKind::Directory && config.is_own_limit => {
                tracing::warn!(%why, "workspaces.max_mb is not enforced");
            }
            Quota::Unenforceable { why } if new == WorkspaceKind::Directory => {
                tracing::info!(%why, "workspaces have no size limit");
            }
            _ => {}
        }
        let max_per_owner = usize::try_from(config.max_per_owner).unwrap_or(usize::MAX);
        let disk = self.0.disk.clone();
        Ok(Self(Arc::new(Inner {
            root,
            quota,
            on_disks,
            new,
            max_per_owner,
            making: Mutex::default(),
            disk,
            uses: Mutex::default(),
        })))
    }

    fn uses(&self) -> MutexGuard<'_, HashMap<WorkspaceName, Use>> {
        self.0.uses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn path(&self, name: &WorkspaceName) -> PathBuf {
        self.of_owner(&name.owner).join(name.id.as_str())
    }

    /// The directory of an owner's workspaces. An id has no slash and does not begin with a dot, so no id leads out of it.
    pub(super) fn of_owner(&self, owner: &KeyName) -> PathBuf {
        if owner.is_first() { self.0.root.clone() } else { self.0.root.join(OWNERS).join(owner.as_str()) }
    }

    fn trash(&self) -> PathBuf {
        self.0.root.join(TRASH)
    }

    /// Whether the entry is a directory. A link is not followed: only the daemon makes entries here, and it makes
    /// directories.
    fn is_directory(&self, name: &WorkspaceName) -> bool {
        std::fs::symlink_metadata(self.path(name)).is_ok_and(|metadata| metadata.is_dir())
    }

    /// What a workspace is, if it exists. What was made on a disk has precedence over a directory that somebody put there.
    fn kind_now(&self, name: &WorkspaceName) -> std::io::Result<Option<WorkspaceKind>> {
        if self.0.on_disks.exists(name)? {
            return Ok(Some(WorkspaceKind::Disk));
        }
        Ok(self.is_directory(name).then_some(WorkspaceKind::Directory))
    }

    fn kind_of_new(&self, reach: Reach) -> WorkspaceKind {
        if reach == Reach::Disks || self.0.on_disks.have_paths() { self.0.new } else { WorkspaceKind::Directory }
    }

    fn make_directory(&self, name: &WorkspaceName) -> std::io::Result<()> {
        let of_owner = self.of_owner(&name.owner);
        if !name.owner.is_first() {
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&of_owner)?;
        }
        match make(&of_owner.join(name.id.as_str())) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
            made => made,
        }
    }

    /// What a workspace needs of a runtime that mounts it.
    pub async fn needs(&self, name: &WorkspaceName) -> Result<Reach, WorkspaceError> {
        let (dirs, wanted, id) = (self.clone(), name.clone(), &name.id);
        let looked = self.0.disk.run(move || dirs.kind_now(&wanted)).await.map_err(std::io::Error::from);
        match looked.and_then(|looked| looked) {
            Ok(Some(WorkspaceKind::Disk)) if !self.0.on_disks.have_paths() => Ok(Reach::Disks),
            Ok(_) => Ok(Reach::Paths),
            Err(error) => Err(WorkspaceError::Failed(format!("workspace {id} could not be looked at: {error}"))),
        }
    }

    /// Whether the workspace exists. Unless the caller holds it, it may be gone the next moment.
    pub async fn exists(&self, name: &WorkspaceName) -> Result<bool, WorkspaceError> {
        let (dirs, wanted, id) = (self.clone(), name.clone(), &name.id);
        let looked = self.0.disk.run(move || dirs.kind_now(&wanted)).await.map_err(std::io::Error::from);
        let looked = looked.and_then(|looked| looked.map(|kind| kind.is_some()));
        looked.map_err(|error| WorkspaceError::Failed(format!("workspace {id} could not be looked at: {error}")))
    }

    /// Holds a workspace, so that it cannot be deleted, whether or not its directory exists yet. This does not touch the
    /// disk.
    pub fn hold(&self, name: &WorkspaceName, user: User) -> Result<WorkspaceHold, WorkspaceError> {
        let mut uses = self.uses();
        let found = uses.entry(name.clone()).or_default();
        if found.deleting {
            return Err(WorkspaceError::BeingDeleted(name.id.clone()));
        }
        found.users.push(user.clone());
        Ok(WorkspaceHold(Arc::new(Held { dirs: self.clone(), name: name.clone(), user })))
    }

    /// The right to delete a workspace if nobody uses it; otherwise its users.
    pub fn begin_delete(&self, name: &WorkspaceName) -> Result<Deletion, Vec<User>> {
        let mut uses = self.uses();
        let found = uses.entry(name.clone()).or_default();
        if found.deleting || !found.users.is_empty() {
            return Err(found.users.clone());
        }
        found.deleting = true;
        Ok(Deletion { dirs: self.clone(), name: name.clone() })
    }

    /// Takes the name of a workspace away in one step, whatever its content is. The remaining work can fail without anybody
    /// seeing half a workspace: emptying the trash, and then closing the quota project, if the workspace has one.
    pub async fn discard(&self, deletion: Deletion) -> Result<Option<Project>, WorkspaceError> {
        let (dirs, key, id) = (self.clone(), disk_key(&deletion.name), deletion.name.id.clone());
        let work = move || dirs.discard_now(&deletion);
        let discarded = self.0.disk.run_for(&key, work).await.map_err(std::io::Error::from);
        discarded.and_then(|discarded| discarded).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => WorkspaceError::NotFound(id),
            _ => WorkspaceError::Failed(format!("workspace {id} could not be deleted: {error}")),
        })?
    }

    fn discard_now(&self, deletion: &Deletion) -> std::io::Result<Result<Option<Project>, WorkspaceError>> {
        if self.kind_now(&deletion.name)? == Some(WorkspaceKind::Disk) {
            return Ok(self.0.on_disks.discard(&deletion.name)?.map(|()| None));
        }
        let project = self.0.quota.account_of(&self.path(&deletion.name));
        let name = format!("{}-{:016x}", deletion.name.id, getrandom::u64().map_err(std::io::Error::other)?);
        let to = self.trash().join(name);
        std::fs::rename(self.path(&deletion.name), &to)?;
        Ok(Ok(project))
    }

    /// Removes what the deletions of this daemon and of earlier ones left in the trash.
    pub async fn empty_trash(&self) -> std::io::Result<()> {
        let dirs = self.clone();
        let work = move || dirs.0.on_disks.sweep().and(remove::empty_trash(&dirs.trash()));
        // This has no time limit, because a tree can be large.
        tokio::task::spawn_blocking(work).await.map_err(std::io::Error::other)?
    }
}

/// Where new workspaces are: where they can be limited, and as plain directories if that is possible there or if no limit is
/// wanted.
fn kind_of_new(config: &WorkspacesConfig, has_quotas: bool, has_disks: bool) -> WorkspaceKind {
    match config.storage {
        WorkspaceStorage::Directory => WorkspaceKind::Directory,
        WorkspaceStorage::Disk => WorkspaceKind::Disk,
        WorkspaceStorage::Auto if config.max_mb == 0 || has_quotas || !has_disks => WorkspaceKind::Directory,
        WorkspaceStorage::Auto => WorkspaceKind::Disk,
    }
}

#[cfg(test)]
#[path = "dirs_test.rs"]
mod tests;
