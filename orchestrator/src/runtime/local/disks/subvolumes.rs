//! The disks of sandboxes as subvolumes of a btrfs, each with a quota group that limits it.
//!
//! ```text
//! (root of disks.img, or DATA/disks)
//! ├── sessions/ID     the disk of one sandbox: tmp, var-tmp, home, workspace
//! ├── snapshots/ID    a copy of such a disk that nobody can write to
//! └── workspaces, unnamed    see `workspaces`
//! ```
//!
//! User ids on a disk are those inside the sandbox, 0 to 65,535, whatever block of ids the sandbox has on the host.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::dir::Dir;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{Mode, mkdirat};
use nix::sys::statvfs::{FsFlags, fstatvfs};

use super::image::Image;
use crate::runtime::local::plan::DiskSource;
use crate::sys::btrfs::{self, SnapshotMode};

const SESSIONS: &str = "sessions";
const SNAPSHOTS: &str = "snapshots";
pub(super) const WORKSPACES: &str = "workspaces";
const UNNAMED: &str = "unnamed";
/// What the kernel's file `mode` says of quota groups that count an extent once, for the subvolume that wrote it.
const SIMPLE_QUOTAS: &str = "squota";
const OPEN_DIRECTORY: OFlag =
    OFlag::O_RDONLY.union(OFlag::O_DIRECTORY).union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);
pub(super) const PRIVATE: Mode = Mode::from_bits_truncate(0o700);

/// The most quota groups of removed disks that one call tries to remove.
const GROUPS_AT_ONCE: usize = 8;
/// The most such groups that are remembered. The next start finds those that were forgotten.
const MAX_REMEMBERED_GROUPS: usize = 65_536;

pub struct Subvolumes {
    pub(super) place: Place,
    sessions: File,
    snapshots: File,
    pub(super) workspaces: File,
    /// Workspaces that are not complete yet, or that were deleted.
    pub(super) unnamed: File,
    /// The directory in which the kernel shows the quota groups.
    groups: PathBuf,
    /// The quota groups of disks that were removed. The kernel refuses to remove a group until it has freed the files.
    dropped: Mutex<VecDeque<u64>>,
}

pub(super) enum Place {
    Image(Image),
    /// A directory of the host, with its path.
    Directory(File, PathBuf),
}

impl Subvolumes {
    pub fn in_image(image: Image) -> io::Result<Self> {
        Self::open(Place::Image(image))
    }

    pub fn in_directory(path: &Path) -> io::Result<Self> {
        crate::runtime::files::private_directory(path)?;
        Self::open(Place::Directory(File::open(path)?, path.to_owned()))
    }

    fn open(place: Place) -> io::Result<Self> {
        let root = place.root();
        let folder = |name: &str| -> io::Result<File> {
            match mkdirat(root, name, PRIVATE) {
                Ok(()) | Err(nix::Error::EEXIST) => {}
                Err(error) => return Err(error.into()),
            }
            Ok(File::from(openat(root, name, OPEN_DIRECTORY, Mode::empty())?))
        };
        let (sessions, snapshots) = (folder(SESSIONS)?, folder(SNAPSHOTS)?);
        let (workspaces, unnamed) = (folder(WORKSPACES)?, folder(UNNAMED)?);
        let groups = PathBuf::from("/sys/fs/btrfs").join(btrfs::filesystem_id(root.as_fd())?).join("qgroups");
        if !groups.is_dir() {
            return Err(io::Error::other("the file system has no quotas"));
        }
        Ok(Self { place, sessions, snapshots, workspaces, unnamed, groups, dropped: Mutex::default() })
    }

    /// Makes an empty disk that holds at most `bytes`.
    pub fn make(&self, name: &str, bytes: u64) -> io::Result<DiskSource> {
        btrfs::create_subvolume(self.sessions.as_fd(), name)?;
        self.limited(name, bytes)
    }

    /// Makes a disk with what a snapshot has. It may hold `bytes` more than that.
    pub fn make_from(&self, snapshot: &str, name: &str, bytes: u64) -> io::Result<DiskSource> {
        let origin = open_in(&self.snapshots, snapshot)?;
        btrfs::snapshot(origin.as_fd(), self.sessions.as_fd(), name, SnapshotMode::Writable)?;
        self.limited(name, bytes)
    }

    /// Limits a disk that exists.
    pub fn limited(&self, name: &str, bytes: u64) -> io::Result<DiskSource> {
        let subvolume = btrfs::subvolume_of(self.disk(name)?.as_fd())?;
        btrfs::limit_subvolume(self.sessions.as_fd(), subvolume, Some(bytes))?;
        Ok(match &self.place {
            Place::Image(image) => DiskSource::Device { device: image.device.clone(), subvolume },
            Place::Directory(_, path) => DiskSource::Directory(path.join(SESSIONS).join(name)),
        })
    }

    /// Makes a snapshot of a disk.
    pub fn snapshot(&self, name: &str, snapshot: &str) -> io::Result<()> {
        btrfs::snapshot(self.disk(name)?.as_fd(), self.snapshots.as_fd(), snapshot, SnapshotMode::ReadOnly)
    }

    pub fn open_snapshot(&self, name: &str) -> io::Result<File> {
        open_in(&self.snapshots, name)
    }

    /// Waits until everything that was written so far is on the disk.
    pub fn sync(&self) -> io::Result<()> {
        Ok(nix::unistd::syncfs(&self.sessions)?)
    }

    /// Whether a disk that was made from a snapshot does not count what it shares with the snapshot.
    pub fn counts_extents_once(&self) -> bool {
        std::fs::read_to_string(self.groups.join("mode")).is_ok_and(|mode| mode.trim() == SIMPLE_QUOTAS)
    }

    /// Removes a disk. Its space is freed in the background. A missing disk is no error.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        self.remove_from(&self.sessions, name)
    }

    /// Removes a snapshot. Disks that were made from it keep what they have of it.
    pub fn remove_snapshot(&self, name: &str) -> io::Result<()> {
        self.remove_from(&self.snapshots, name)
    }

    pub(super) fn remove_from(&self, folder: &File, name: &str) -> io::Result<()> {
        let subvolume = match open_in(folder, name) {
            Ok(disk) => btrfs::subvolume_of(disk.as_fd())?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        btrfs::destroy_subvolume(folder.as_fd(), name)?;
        let mut dropped = self.dropped();
        if dropped.len() < MAX_REMEMBERED_GROUPS {
            dropped.push_back(subvolume);
        }
        let count = dropped.len().min(GROUPS_AT_ONCE);
        let some: Vec<u64> = dropped.drain(..count).collect();
        drop(dropped);
        // A group that others still share extents with stays. It goes to the end, so that it does not keep the next ones waiting.
        let left = some.into_iter().filter(|group| !self.remove_group(*group));
        self.dropped().extend(left);
        Ok(())
    }

    /// Whether a quota group is gone.
    fn remove_group(&self, group: u64) -> bool {
        btrfs::remove_group(self.sessions.as_fd(), group).is_ok() || !self.group(group).exists()
    }

    /// Removes the quota groups that belong to no disk any more, as far as the kernel lets it.
    pub fn remove_old_groups(&self) -> io::Result<()> {
        // In the operator's own file system, others have groups as well.
        if self.image().is_none() {
            return Ok(());
        }
        let mut known = self.subvolumes_of_workspaces()?;
        for folder in [&self.sessions, &self.snapshots] {
            for name in names_in(folder)? {
                known.push(btrfs::subvolume_of(open_in(folder, &name)?.as_fd())?);
            }
        }
        /// The numbers of subvolumes begin here.
        const FIRST: u64 = 256;
        let numbers = crate::runtime::files::names(&self.groups)?;
        let numbers = numbers.iter().filter_map(|name| name.strip_prefix("0_")?.parse::<u64>().ok());
        for group in numbers.filter(|number| *number >= FIRST && !known.contains(number)) {
            let _ = self.remove_group(group);
        }
        Ok(())
    }

    /// What a disk holds, with what is not written yet. `None` if there is no such disk.
    pub fn used_bytes(&self, name: &str) -> Option<u64> {
        self.held_by(&self.disk(name).ok()?)
    }

    /// What the subvolume of a directory holds, with what is not written yet.
    pub(super) fn held_by(&self, directory: &File) -> Option<u64> {
        let group = self.group(btrfs::subvolume_of(directory.as_fd()).ok()?);
        let read = |counter: &str| std::fs::read_to_string(group.join(counter)).ok()?.trim().parse::<u64>().ok();
        Some(read("referenced")?.saturating_add(read("rsv_data").unwrap_or(0)))
    }

    fn group(&self, subvolume: u64) -> PathBuf {
        self.groups.join(format!("0_{subvolume}"))
    }

    /// The names of all disks.
    pub fn names(&self) -> io::Result<Vec<String>> {
        names_in(&self.sessions)
    }

    pub fn snapshot_names(&self) -> io::Result<Vec<String>> {
        names_in(&self.snapshots)
    }

    /// The size of the file system, and what is free on it.
    pub fn space(&self) -> io::Result<(u64, u64)> {
        let status = fstatvfs(&self.sessions)?;
        Ok((status.blocks() * status.fragment_size(), status.blocks_available() * status.fragment_size()))
    }

    /// Whether the kernel has stopped to write after an error.
    pub fn is_read_only(&self) -> bool {
        fstatvfs(&self.sessions).is_ok_and(|status| status.flags().contains(FsFlags::ST_RDONLY))
    }

    /// The image's path, if the disks are in one.
    pub fn image(&self) -> Option<&Path> {
        match &self.place {
            Place::Image(image) => Some(image.path()),
            Place::Directory(..) => None,
        }
    }

    fn disk(&self, name: &str) -> io::Result<File> {
        open_in(&self.sessions, name)
    }

    fn dropped(&self) -> MutexGuard<'_, VecDeque<u64>> {
        self.dropped.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) fn open_in(folder: &File, name: &str) -> io::Result<File> {
    Ok(File::from(openat(folder, name, OPEN_DIRECTORY, Mode::empty())?))
}

pub(super) fn names_in(folder: &File) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in Dir::openat(folder, ".", OPEN_DIRECTORY, Mode::empty())?.iter() {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name != "." && name != ".." {
            names.push(name);
        }
    }
    Ok(names)
}

impl Place {
    fn root(&self) -> &File {
        match self {
            Self::Image(image) => &image.root,
            Self::Directory(root, _) => root,
        }
    }
}
