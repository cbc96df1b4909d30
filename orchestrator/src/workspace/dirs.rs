//! The directories of workspaces: creates them, lists them, holds them for those who mount them, and deletes them.
//!
//! It owns `<data>/workspaces`, which has the workspaces of the first owner, and those of the others in `.owners/NAME`. It
//! knows who uses which workspace. The content of a workspace belongs to clients: this code only removes it (`remove`) or
//! counts it (`usage`).
//!
//! ```text
//!  hold ──▶ WorkspaceHold ── prepare_directory (on the disk's threads)
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

use shared_protocol::{KeyName, SANDBOX_USER, SessionId, WorkspaceId};

use super::WorkspaceError;
use super::quota::{Project, Quota};
use super::{remove, usage};
use crate::disk::DiskThreads;
use crate::failpoint;
use crate::owner::WorkspaceName;
use crate::runtime::WorkspaceMount;

/// The directory for deleted workspaces. No workspace can have this name, because an id begins with a letter or a digit.
const TRASH: &str = ".trash";

/// The directory with a directory for each owner but the first, whose workspaces lie beside it: they are from before there were
/// several owners.
const OWNERS: &str = ".owners";

/// The most files that one listing looks at to determine sizes, in all workspaces together.
const MAX_ENTRIES_COUNTED: usize = 50_000;

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

/// A workspace as a listing finds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundWorkspace {
    pub name: WorkspaceName,
    pub made: std::time::SystemTime,
    /// The size. `None` if counting would take too long.
    pub size_bytes: Option<u64>,
}

#[derive(Debug, Clone)]
pub struct WorkspaceDirs(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    root: PathBuf,
    quota: Quota,
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
    pub fn mount(&self) -> WorkspaceMount {
        WorkspaceMount { path: self.0.dirs.path(&self.0.name) }
    }

    /// Prepares the directory and applies the size limit to it. For a session, a missing directory is created; for a
    /// workspace sandbox, it is not. Two calls for the same workspace run one after the other.
    pub async fn prepare_directory(&self) -> Result<(), WorkspaceError> {
        self.work(Held::prepare).await?
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
    fn prepare(&self) -> std::io::Result<Result<(), WorkspaceError>> {
        failpoint::at("workspace.directory")?;
        let path = self.dirs.path(&self.name);
        match &self.user {
            User::Session(_) => {
                if let Some(of_owner) = path.parent().filter(|_| !self.name.owner.is_first()) {
                    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(of_owner)?;
                }
                match make(&path) {
                    Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                    made => made?,
                }
            }
            User::WorkspaceSandbox(_) if self.dirs.is_directory(&self.name) => {}
            User::WorkspaceSandbox(_) => return Ok(Err(WorkspaceError::NotFound(self.name.id.clone()))),
        }
        self.dirs.0.quota.apply(&path).map(Ok)
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
        Ok(Self(Arc::new(Inner {
            root,
            quota: Quota::Unlimited,
            disk: DiskThreads::default(),
            uses: Mutex::default(),
        })))
    }

    /// Sets the size limit of each workspace in MiB, if the host can enforce it; 0 means no limit.
    pub fn with_limit(self, max_mb: u64) -> Self {
        let quota = Quota::open(&self.0.root, max_mb);
        if let Quota::Unenforceable { why } = &quota {
            tracing::warn!(%why, "workspaces.max_mb is not enforced");
        }
        let (root, disk) = (self.0.root.clone(), self.0.disk.clone());
        Self(Arc::new(Inner { root, quota, disk, uses: Mutex::default() }))
    }

    fn uses(&self) -> MutexGuard<'_, HashMap<WorkspaceName, Use>> {
        self.0.uses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn path(&self, name: &WorkspaceName) -> PathBuf {
        self.of_owner(&name.owner).join(name.id.as_str())
    }

    /// The directory of an owner's workspaces. An id has no slash and does not begin with a dot, so no id leads out of it.
    fn of_owner(&self, owner: &KeyName) -> PathBuf {
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

    /// Whether the workspace exists. Unless the caller holds it, it may be gone the next moment.
    pub async fn exists(&self, name: &WorkspaceName) -> Result<bool, WorkspaceError> {
        let (dirs, wanted, id) = (self.clone(), name.clone(), &name.id);
        let looked = self.0.disk.run(move || dirs.is_directory(&wanted)).await;
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

    /// Moves a workspace to the trash in one step, whatever its content is. The remaining work can fail without anybody
    /// seeing half a workspace: emptying the trash, and then closing the quota project, if the workspace has one.
    pub async fn discard(&self, deletion: Deletion) -> Result<Option<Project>, WorkspaceError> {
        let (dirs, key, id) = (self.clone(), disk_key(&deletion.name), deletion.name.id.clone());
        let work = move || dirs.discard_now(&deletion);
        let discarded = self.0.disk.run_for(&key, work).await.map_err(std::io::Error::from);
        discarded.and_then(|discarded| discarded).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => WorkspaceError::NotFound(id),
            _ => WorkspaceError::Failed(format!("workspace {id} could not be deleted: {error}")),
        })
    }

    fn discard_now(&self, deletion: &Deletion) -> std::io::Result<Option<Project>> {
        let project = self.0.quota.account_of(&self.path(&deletion.name));
        let name = format!("{}-{:016x}", deletion.name.id, getrandom::u64().map_err(std::io::Error::other)?);
        let to = self.trash().join(name);
        std::fs::rename(self.path(&deletion.name), &to)?;
        Ok(project)
    }

    /// Removes what the deletions of this daemon and of earlier ones left in the trash.
    pub async fn empty_trash(&self) -> std::io::Result<()> {
        let trash = self.trash();
        // This has no time limit, because a tree can be large.
        tokio::task::spawn_blocking(move || remove::empty_trash(&trash)).await.map_err(std::io::Error::other)?
    }

    /// The size of a workspace, from its quota or by a walk. `None` if that would take too long.
    fn used_bytes(&self, name: &WorkspaceName, budget: &mut usage::Budget) -> Option<u64> {
        let path = self.path(name);
        match self.0.quota.account_of(&path).and_then(|project| project.used_bytes().ok()) {
            Some(bytes) => Some(bytes),
            None => usage::used_bytes(&path, budget),
        }
    }

    /// Lists the workspaces of one owner, or of all, with their creation times and sizes, sorted by owner and id.
    pub async fn list(&self, owner: Option<&KeyName>) -> Result<Vec<FoundWorkspace>, WorkspaceError> {
        let (dirs, owner) = (self.clone(), owner.cloned());
        let look = move || {
            let mut budget = usage::Budget(MAX_ENTRIES_COUNTED);
            let owners = owner.map_or_else(|| dirs.owners(), |owner| Ok(vec![owner]))?;
            let mut all = Vec::new();
            for owner in owners {
                all.extend(dirs.entries(&owner)?);
            }
            all.sort();
            let found = all.into_iter();
            let found = found.map(|(name, made)| FoundWorkspace {
                size_bytes: dirs.used_bytes(&name, &mut budget),
                name,
                made,
            });
            Ok(found.collect())
        };
        // This does not use the disk threads, whose time is limited: a walk of large trees may take long.
        let found = tokio::task::spawn_blocking(look).await.map_err(std::io::Error::other);
        let found: std::io::Result<Vec<FoundWorkspace>> = found.and_then(|found| found);
        found.map_err(|error| WorkspaceError::Failed(format!("workspaces could not be listed: {error}")))
    }

    /// The owners that have, or had, a workspace.
    fn owners(&self) -> std::io::Result<Vec<KeyName>> {
        let mut owners = vec![KeyName::first()];
        for entry in directory(&self.0.root.join(OWNERS))? {
            owners.extend(entry?.file_name().to_str().and_then(|name| KeyName::new(name).ok()));
        }
        Ok(owners)
    }

    fn entries(&self, owner: &KeyName) -> std::io::Result<Vec<(WorkspaceName, std::time::SystemTime)>> {
        let mut found = Vec::new();
        for entry in directory(&self.of_owner(owner))? {
            let entry = entry?;
            let Some(id) = entry.file_name().to_str().and_then(|name| WorkspaceId::new(name).ok()) else { continue };
            // A workspace that is deleted meanwhile is left out.
            let Ok(metadata) = entry.metadata() else { continue };
            if metadata.is_dir() {
                // Code inside a sandbox cannot forge the creation time. The modification time is for file systems without a
                // creation time.
                let made = metadata.created().or_else(|_| metadata.modified());
                let name = WorkspaceName { owner: owner.clone(), id };
                found.push((name, made.unwrap_or(std::time::SystemTime::UNIX_EPOCH)));
            }
        }
        Ok(found)
    }
}

/// The entries of a directory; none if it does not exist.
fn directory(path: &Path) -> std::io::Result<impl Iterator<Item = std::io::Result<std::fs::DirEntry>>> {
    match std::fs::read_dir(path) {
        Ok(entries) => Ok(Some(entries).into_iter().flatten()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None.into_iter().flatten()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn dirs() -> (tempfile::TempDir, WorkspaceDirs) {
        let folder = tempfile::tempdir().unwrap();
        let dirs = WorkspaceDirs::open(folder.path().join("workspaces")).unwrap();
        (folder, dirs)
    }

    fn name(id: &str) -> WorkspaceName {
        of(KeyName::first(), id)
    }

    fn of(owner: KeyName, id: &str) -> WorkspaceName {
        WorkspaceName { owner, id: WorkspaceId::new(id).unwrap() }
    }

    fn user(id: &str) -> User {
        User::Session(SessionId::new(id).unwrap())
    }

    #[tokio::test]
    async fn a_workspace_in_use_is_not_deleted_and_one_being_deleted_is_not_held() {
        let (_folder, dirs) = dirs();
        let id = name("w");
        let first = dirs.hold(&id, user("a")).unwrap();
        let second = dirs.hold(&id, user("b")).unwrap();
        first.prepare_directory().await.unwrap();
        assert_eq!(dirs.begin_delete(&id).unwrap_err(), [user("a"), user("b")]);
        drop(first);
        assert_eq!(dirs.begin_delete(&id).unwrap_err(), [user("b")]);
        drop(second);
        let deletion = dirs.begin_delete(&id).unwrap();
        assert!(dirs.begin_delete(&id).is_err(), "two delete at once");
        assert_eq!(dirs.hold(&id, user("c")).unwrap_err(), WorkspaceError::BeingDeleted(id.id.clone()));
        dirs.discard(deletion).await.unwrap();
        assert!(!dirs.exists(&id).await.unwrap());
        dirs.hold(&id, user("c")).unwrap().prepare_directory().await.unwrap();
        assert!(dirs.exists(&id).await.unwrap());
    }

    #[tokio::test]
    async fn a_sandbox_of_the_daemons_own_makes_no_workspace() {
        let (_folder, dirs) = dirs();
        let id = name("w");
        let own = User::WorkspaceSandbox(SessionId::new("a").unwrap());
        let prepared = dirs.hold(&id, own).unwrap().prepare_directory().await;
        assert_eq!(prepared, Err(WorkspaceError::NotFound(id.id.clone())));
        assert!(!dirs.exists(&id).await.unwrap());
    }

    #[tokio::test]
    async fn many_who_make_one_workspace_at_once_all_find_it_made() {
        let (_folder, dirs) = dirs();
        let id = name("w");
        let makes = (0..50).map(|n| {
            let hold = dirs.hold(&id, user(&format!("s{n}"))).unwrap();
            async move { hold.prepare_directory().await }
        });
        assert!(futures_util::future::join_all(makes).await.into_iter().all(|made| made == Ok(())));
        assert!(dirs.begin_delete(&id).is_ok(), "nobody holds it any more");
    }

    #[tokio::test]
    async fn a_workspace_is_not_deleted_under_work_that_nobody_waits_for_any_more() {
        let (_folder, dirs) = dirs();
        let id = name("w");
        let (release, stuck) = std::sync::mpsc::channel::<()>();
        let hold = dirs.hold(&id, user("a")).unwrap();
        let mut work = Box::pin(hold.work(move |_| {
            let _ = stuck.recv();
            Ok(())
        }));
        assert!(futures_util::poll!(work.as_mut()).is_pending());
        drop(work);
        drop(hold);
        assert_eq!(dirs.begin_delete(&id).unwrap_err(), [user("a")]);
        release.send(()).unwrap();
        // The work whose caller stopped waiting ends, and its hold with it.
        let freed = async {
            while dirs.begin_delete(&id).is_err() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), freed).await.expect("the workspace can be deleted");
    }

    #[tokio::test]
    async fn only_we_can_enter_and_the_trash_is_no_workspace() {
        let (_folder, dirs) = dirs();
        let mode = std::fs::metadata(&dirs.0.root).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        dirs.hold(&name("w"), user("a")).unwrap().prepare_directory().await.unwrap();
        std::fs::write(dirs.0.root.join("file"), "").unwrap();
        std::os::unix::fs::symlink("/", dirs.0.root.join("link")).unwrap();
        let names: Vec<String> =
            dirs.list(None).await.unwrap().into_iter().map(|found| found.name.id.to_string()).collect();
        assert_eq!(names, ["w"]);
    }

    #[tokio::test]
    async fn owners_have_names_of_their_own_and_the_first_one_has_what_was_there_before() {
        let (folder, dirs) = dirs();
        // This is how a daemon without owners left it.
        std::fs::create_dir(folder.path().join("workspaces/old")).unwrap();
        let alice = || KeyName::new("alice").unwrap();
        assert!(dirs.exists(&name("old")).await.unwrap() && !dirs.exists(&of(alice(), "old")).await.unwrap());
        for name in [name("w"), of(alice(), "w"), of(alice(), "old")] {
            dirs.hold(&name, user("a")).unwrap().prepare_directory().await.unwrap();
        }
        let listed = async |owner: Option<KeyName>| {
            let found = dirs.list(owner.as_ref()).await.unwrap().into_iter();
            found.map(|found| format!("{}:{}", found.name.owner, found.name.id)).collect::<Vec<_>>()
        };
        assert_eq!(listed(Some(alice())).await, ["alice:old", "alice:w"]);
        assert_eq!(listed(Some(KeyName::first())).await, ["default:old", "default:w"]);
        assert_eq!(listed(None).await, ["alice:old", "alice:w", "default:old", "default:w"]);
        assert_eq!(listed(Some(KeyName::new("bob").unwrap())).await, [""; 0]);
        let held = dirs.hold(&of(alice(), "w"), user("b")).unwrap();
        dirs.discard(dirs.begin_delete(&name("w")).expect("only alice's is held")).await.unwrap();
        drop(held);
        assert!(dirs.exists(&of(alice(), "w")).await.unwrap() && !dirs.exists(&name("w")).await.unwrap());
    }
}
