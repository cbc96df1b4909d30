//! Workspaces on the disks of sandboxes: each is a subvolume with a limit of its own.
//!
//! ```text
//! (root of disks.img, or DATA/disks)
//! ├── workspaces/OWNER/NAME   one workspace
//! └── unnamed/NUMBER          one that is not complete yet, or that was deleted
//! ```
//!
//! **Invariant:** what has a name is complete and is kept. A workspace gets and loses its name by a rename, which either happens or does
//! not. Whatever has no name is removed by the next start, and nothing else ever is.

use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::time::SystemTime;

use nix::fcntl::renameat;
use nix::sys::stat::{Mode, fchmod, mkdirat};
use nix::unistd::{Gid, Uid, fchown};
use shared_protocol::SANDBOX_USER;

use super::subvolumes::{PRIVATE, Place, Subvolumes, WORKSPACES, names_in, open_in};
use super::{Disks, DisksError};
use crate::owner::WorkspaceName;
use crate::runtime::WorkspaceMount;
use crate::sys::btrfs;

/// The directory of a data directory with a record for each workspace on a disk. While there is one, the disks are needed.
pub const RECORDS: &str = "workspaces/.disks";

/// The workspaces on the disks of a runtime. Every call may touch the disk and blocks.
#[derive(Clone)]
pub struct WorkspaceDisks(pub(super) Disks);

impl std::fmt::Debug for WorkspaceDisks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("WorkspaceDisks").finish()
    }
}

impl WorkspaceDisks {
    /// Whether a workspace is a directory that every program of the host's root finds. Otherwise only the local runtime can mount it.
    pub fn have_paths(&self) -> bool {
        self.0.subvolumes().is_some_and(|subvolumes| subvolumes.image().is_none())
    }

    /// Refuses a new workspace where a new session would be refused.
    pub fn check_room(&self) -> Result<(), DisksError> {
        self.0.check_room()
    }

    /// Makes an empty workspace. When this returns, it survives a power cut.
    pub fn make(&self, name: &WorkspaceName) -> io::Result<()> {
        self.open()?.make_workspace(name)
    }

    /// Limits a workspace, and tells how to mount it.
    pub fn prepare(&self, name: &WorkspaceName, bytes: Option<u64>) -> io::Result<WorkspaceMount> {
        self.open()?.prepare_workspace(name, bytes)
    }

    pub fn exists(&self, name: &WorkspaceName) -> io::Result<bool> {
        match self.open()?.workspace(name) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// When a workspace was made. Code inside a sandbox cannot forge it.
    pub fn made(&self, name: &WorkspaceName) -> io::Result<SystemTime> {
        let status = self.open()?.workspace(name)?.metadata()?;
        status.created().or_else(|_| status.modified())
    }

    /// What a workspace holds.
    pub fn used_bytes(&self, name: &WorkspaceName) -> Option<u64> {
        let subvolumes = self.0.subvolumes()?;
        subvolumes.held_by(&subvolumes.workspace(name).ok()?)
    }

    /// All workspaces, as their owners' and their own names.
    pub fn names(&self) -> io::Result<Vec<(String, String)>> {
        self.open()?.workspace_names()
    }

    /// Takes the name of a workspace away. When this returns, no start brings it back.
    pub fn discard(&self, name: &WorkspaceName) -> io::Result<()> {
        self.open()?.discard_workspace(name)
    }

    /// Removes what has no name. The kernel frees the space in the background.
    pub fn remove_unnamed(&self) -> io::Result<()> {
        self.open()?.remove_unnamed()
    }

    fn open(&self) -> io::Result<std::sync::Arc<Subvolumes>> {
        self.0.subvolumes().ok_or_else(|| io::Error::other("the disks of this daemon are closed"))
    }
}

impl Disks {
    /// The workspaces on these disks. `None` if files are in memory.
    pub fn workspaces(&self) -> Option<WorkspaceDisks> {
        self.subvolumes().map(|_| WorkspaceDisks(self.clone()))
    }
}

impl Subvolumes {
    fn make_workspace(&self, name: &WorkspaceName) -> io::Result<()> {
        match mkdirat(&self.workspaces, name.owner.as_str(), PRIVATE) {
            Ok(()) | Err(nix::Error::EEXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let of_owner = open_in(&self.workspaces, name.owner.as_str())?;
        let number = unnamed_number()?;
        btrfs::create_subvolume(self.unnamed.as_fd(), &number)?;
        let made = open_in(&self.unnamed, &number)?;
        fchown(&made, Some(Uid::from_raw(SANDBOX_USER)), Some(Gid::from_raw(SANDBOX_USER)))?;
        fchmod(&made, Mode::S_IRWXU)?;
        renameat(&self.unnamed, number.as_str(), &of_owner, name.id.as_str())?;
        btrfs::commit(self.workspaces.as_fd())
    }

    fn prepare_workspace(&self, name: &WorkspaceName, bytes: Option<u64>) -> io::Result<WorkspaceMount> {
        let subvolume = btrfs::subvolume_of(self.workspace(name)?.as_fd())?;
        btrfs::limit_subvolume(self.workspaces.as_fd(), subvolume, bytes)?;
        Ok(match &self.place {
            Place::Image(image) => WorkspaceMount::Subvolume { device: image.device.clone(), subvolume },
            Place::Directory(_, path) => {
                let place: PathBuf = [WORKSPACES, name.owner.as_str(), name.id.as_str()].iter().collect();
                WorkspaceMount::Directory(path.join(place))
            }
        })
    }

    fn workspace(&self, name: &WorkspaceName) -> io::Result<File> {
        open_in(&open_in(&self.workspaces, name.owner.as_str())?, name.id.as_str())
    }

    /// All workspaces, as their owners' and their own names.
    pub fn workspace_names(&self) -> io::Result<Vec<(String, String)>> {
        let mut all = Vec::new();
        for owner in names_in(&self.workspaces)? {
            let names = names_in(&open_in(&self.workspaces, &owner)?)?;
            all.extend(names.into_iter().map(|name| (owner.clone(), name)));
        }
        Ok(all)
    }

    fn discard_workspace(&self, name: &WorkspaceName) -> io::Result<()> {
        let of_owner = open_in(&self.workspaces, name.owner.as_str())?;
        renameat(&of_owner, name.id.as_str(), &self.unnamed, unnamed_number()?.as_str())?;
        btrfs::commit(self.workspaces.as_fd())
    }

    fn remove_unnamed(&self) -> io::Result<()> {
        names_in(&self.unnamed)?.iter().try_for_each(|number| self.remove_from(&self.unnamed, number))
    }

    /// The subvolumes of all workspaces, with those that have no name.
    pub(super) fn subvolumes_of_workspaces(&self) -> io::Result<Vec<u64>> {
        let mut all = Vec::new();
        for owner in names_in(&self.workspaces)? {
            let of_owner = open_in(&self.workspaces, &owner)?;
            for name in names_in(&of_owner)? {
                all.push(btrfs::subvolume_of(open_in(&of_owner, &name)?.as_fd())?);
            }
        }
        for number in names_in(&self.unnamed)? {
            all.push(btrfs::subvolume_of(open_in(&self.unnamed, &number)?.as_fd())?);
        }
        Ok(all)
    }
}

/// Whether a file system, by its root, has workspaces.
pub(super) fn has_workspaces(root: &File) -> io::Result<bool> {
    let workspaces = match open_in(root, WORKSPACES) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        workspaces => workspaces?,
    };
    for owner in names_in(&workspaces)? {
        if !names_in(&open_in(&workspaces, &owner)?)?.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

fn unnamed_number() -> io::Result<String> {
    Ok(format!("{:016x}", getrandom::u64().map_err(io::Error::other)?))
}
