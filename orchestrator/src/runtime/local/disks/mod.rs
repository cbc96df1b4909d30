//! The disks of sandboxes: where their files are, how large they may become, and what the host keeps for itself.
//!
//! `choice` decides from what the host has, once, when the daemon starts. A disk is a subvolume of a btrfs (`subvolumes`), which
//! is the data directory's own or one in a file (`image`, which `format` makes). Where neither works, a sandbox keeps its files in
//! memory, in a tmpfs that counts as its own memory.
//!
//! Every call may touch the disk and blocks.

mod choice;
mod format;
mod image;
mod kept;
mod subvolumes;
mod workspaces;

use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use nix::sys::statfs::{BTRFS_SUPER_MAGIC, TMPFS_MAGIC, statfs};
use nix::sys::statvfs::statvfs;

use self::choice::{Backend, DataDirKind, HostDisks, choose};
use self::image::Image;
pub use self::image::OldContent;
use self::subvolumes::Subvolumes;
pub use self::workspaces::{RECORDS as WORKSPACE_RECORDS, WorkspaceDisks};
use super::host::{is_at_least, kernel_release};
use super::plan::DiskSource;
use crate::config::{Config, DiskSetting};
use crate::runtime::RuntimeError;
use crate::sys::btrfs;

/// The first version of Linux with idmapped mounts of btrfs.
const BTRFS_IDMAPS: (u32, u32) = (5, 15);

/// The directory of subvolumes in a data directory that is on btrfs.
const DIRECTORY: &str = "disks";

/// The part of the file system that is kept for the host by default, and the most that this is.
const RESERVE_SHARE: u64 = 10;
const MAX_RESERVE: u64 = 10 << 30;
/// A sandbox is made only if at least this much is free for the disks of all sandboxes.
const MIN_FREE: u64 = 64 << 20;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DisksConfig {
    pub setting: DiskSetting,
    /// The size of all disks together. By default what the file system has free, less the reserve.
    pub total_mb: Option<u64>,
    /// What all disks together leave free on the data directory's file system.
    pub reserve_mb: Option<u64>,
}

impl DisksConfig {
    pub fn of(config: &Config) -> Self {
        Self {
            setting: config.local.disk,
            total_mb: config.local.disk_total_mb,
            reserve_mb: config.sessions.host_reserve_disk_mb,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum DisksError {
    /// The setting asks for what this host does not have.
    #[error("local.disk cannot be used: {0}")]
    Unusable(String),
    /// There is no room for another disk.
    #[error("{0}")]
    Full(String),
    #[error("{step}")]
    Failed {
        step: &'static str,
        #[source]
        source: io::Error,
    },
}

impl From<DisksError> for RuntimeError {
    fn from(error: DisksError) -> Self {
        match error {
            DisksError::Full(why) => Self::Full(why),
            DisksError::Failed { step, source } => Self::failed(step, source),
            unusable @ DisksError::Unusable(_) => Self::failed("opening the disks of sandboxes", unusable),
        }
    }
}

/// Where the disks of sandboxes are.
#[derive(Clone)]
pub struct Disks {
    kind: Arc<Kind>,
    data_dir: PathBuf,
    reserve: u64,
}

enum Kind {
    /// `None` once the daemon is about to end.
    Subvolumes(Mutex<Option<Arc<Subvolumes>>>),
    Memory {
        why: String,
    },
}

/// What `cove doctor` says about disks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DiskReport {
    /// The disks are on the host's disk: which, their size together and what is kept for the host.
    OnDisk {
        place: String,
        total: u64,
        reserve: u64,
    },
    InMemory {
        why: String,
    },
}

impl Disks {
    /// Finds out what the host has, and opens or makes what disks are on.
    pub fn open(config: &DisksConfig, data_dir: &Path, content: OldContent) -> Result<Self, DisksError> {
        let failed = |step| move |source| DisksError::Failed { step, source };
        let (size, free) = space(data_dir).map_err(failed("looking at the data directory's disk"))?;
        let reserve = reserve(size, config.reserve_mb);
        let opened = choose(config.setting, &look(data_dir)).and_then(|backend| match backend {
            Backend::Btrfs => Subvolumes::in_directory(&data_dir.join(DIRECTORY)).map_err(|e| e.to_string()),
            Backend::Loop => {
                // What the image has already is free for it.
                let room = (free + image::allocated(data_dir)).saturating_sub(reserve);
                let wanted = config.total_mb.map_or(room, |mb| (mb << 20).min(room));
                let subvolumes = Image::open(data_dir, wanted, content).and_then(Subvolumes::in_image);
                subvolumes.map_err(|e| format!("a file system in {} could not be used: {e}", image::FILE_NAME))
            }
        });
        let kind = match opened {
            Ok(subvolumes) => {
                if let Err(error) = subvolumes.remove_old_groups() {
                    tracing::warn!(%error, "quota groups of old disks are left");
                }
                Kind::Subvolumes(Mutex::new(Some(Arc::new(subvolumes))))
            }
            Err(why) if matches!(config.setting, DiskSetting::Btrfs | DiskSetting::Loop) => {
                return Err(DisksError::Unusable(why));
            }
            // Without this, the next step would remove what sessions were stopped for, and workspaces would seem to be lost.
            Err(why)
                if content == OldContent::Needed
                    && nix::unistd::geteuid().is_root()
                    && config.setting == DiskSetting::Auto =>
            {
                return Err(DisksError::Unusable(format!(
                    "{why}. There are workspaces, snapshots or stopped sessions on it, so sandboxes do not keep their files in memory \
                     instead; \
                     repair {}, or set local.disk to tmpfs to go on without them",
                    image::FILE_NAME
                )));
            }
            Err(why) => {
                if content == OldContent::Useless && !Image::has_workspaces(data_dir) {
                    // Sandboxes of an earlier daemon may still use it; then it stays.
                    Image::remove_unused(data_dir).map_err(failed("removing an old image of disks"))?;
                }
                tracing::info!(%why, "sandboxes keep their files in memory");
                Kind::Memory { why }
            }
        };
        Ok(Self { kind: Arc::new(kind), data_dir: data_dir.to_owned(), reserve })
    }

    /// Whether the files of sandboxes count as their memory.
    pub fn are_in_memory(&self) -> bool {
        matches!(*self.kind, Kind::Memory { .. })
    }

    /// The size of all disks together. `None` if they are in memory.
    pub fn total_bytes(&self) -> Option<u64> {
        self.subvolumes()?.space().ok().map(|(total, _)| total)
    }

    /// Refuses a new disk while the host has less than its reserve, or the disks have no room.
    pub fn check_room(&self) -> Result<(), DisksError> {
        let Some(subvolumes) = self.subvolumes() else { return Ok(()) };
        let failed = |source| DisksError::Failed { step: "looking at the disk's room", source };
        let (_, free) = space(&self.data_dir).map_err(failed)?;
        if free < self.reserve {
            return Err(DisksError::Full(format!(
                "the host's disk is full: {} MiB are free, and {} MiB are kept for the host",
                free >> 20,
                self.reserve >> 20
            )));
        }
        if subvolumes.is_read_only() {
            let why = "they became read-only when the host's disk was full or failed: free space, end all sessions, and start the daemon again";
            let source = io::Error::new(io::ErrorKind::ReadOnlyFilesystem, why);
            return Err(DisksError::Failed { step: "writing to the disks of sessions", source });
        }
        let (total, free) = subvolumes.space().map_err(failed)?;
        if free < MIN_FREE {
            return Err(DisksError::Full(format!(
                "the disks of sessions are full: {} of {} MiB are free",
                free >> 20,
                total >> 20
            )));
        }
        Ok(())
    }

    /// Makes a disk for a sandbox. `None` if its files are to be in memory.
    pub fn make(&self, name: &str, bytes: u64) -> Result<Option<DiskSource>, DisksError> {
        let Some(subvolumes) = self.subvolumes() else { return Ok(None) };
        let made = subvolumes.make(name, bytes);
        made.map(Some).map_err(|source| match source.kind() {
            io::ErrorKind::StorageFull => DisksError::Full("the disks of sessions are full".into()),
            _ => DisksError::Failed { step: "making the sandbox's disk", source },
        })
    }

    /// Removes a sandbox's disk. A missing disk is no error. The kernel frees the space in the background.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        self.subvolumes().map_or(Ok(()), |subvolumes| subvolumes.remove(name))
    }

    /// The names of all disks, also of those whose sandbox is gone.
    pub fn names(&self) -> io::Result<Vec<String>> {
        self.subvolumes().map_or(Ok(Vec::new()), |subvolumes| subvolumes.names())
    }

    /// Lets go of the disks when the daemon ends. Nothing is kept of an image that no sandbox uses, that has no workspaces, and whose
    /// content is useless otherwise.
    pub fn close(&self, content: OldContent) {
        let Kind::Subvolumes(held) = &*self.kind else { return };
        let Some(subvolumes) = held.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
        // What cannot be read may be a workspace.
        let has_workspaces = subvolumes.workspace_names().map_or(true, |names| !names.is_empty());
        let is_image = subvolumes.image().is_some();
        drop(subvolumes);
        if is_image
            && !has_workspaces
            && content == OldContent::Useless
            && let Err(error) = Image::remove_unused(&self.data_dir)
        {
            tracing::warn!(%error, "the image of disks is left");
        }
    }

    pub fn report(&self) -> DiskReport {
        match &*self.kind {
            Kind::Memory { why } => DiskReport::InMemory { why: why.clone() },
            Kind::Subvolumes(_) => {
                let in_image = self.subvolumes().is_some_and(|subvolumes| subvolumes.image().is_some());
                let place = if in_image {
                    format!("a btrfs in the file {} of the data directory", image::FILE_NAME)
                } else {
                    "the data directory's btrfs".to_owned()
                };
                DiskReport::OnDisk { place, total: self.total_bytes().unwrap_or(0), reserve: self.reserve }
            }
        }
    }

    fn subvolumes(&self) -> Option<Arc<Subvolumes>> {
        match &*self.kind {
            Kind::Subvolumes(held) => held.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            Kind::Memory { .. } => None,
        }
    }
}

/// What may be written to a directory's file system without touching the host's reserve.
pub fn room_on_disk(path: &Path, reserve_mb: Option<u64>) -> io::Result<u64> {
    let (size, free) = space(path)?;
    Ok(free.saturating_sub(reserve(size, reserve_mb)))
}

fn reserve(size: u64, reserve_mb: Option<u64>) -> u64 {
    reserve_mb.map_or((size / RESERVE_SHARE).min(MAX_RESERVE), |mb| mb << 20)
}

/// The size of a directory's file system, and what root can still write to it.
fn space(path: &Path) -> io::Result<(u64, u64)> {
    let status = statvfs(path)?;
    Ok((status.blocks() * status.fragment_size(), status.blocks_available() * status.fragment_size()))
}

fn look(data_dir: &Path) -> HostDisks {
    let filesystems = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
    let is_listed = filesystems.lines().any(|line| line.split_whitespace().last() == Some("btrfs"));
    HostDisks {
        is_root: nix::unistd::geteuid().is_root(),
        is_new_kernel: is_at_least(&kernel_release(), BTRFS_IDMAPS),
        // A module that is not loaded yet is loaded by the first mount.
        has_btrfs: is_listed || has_module("btrfs"),
        has_loop_devices: Path::new("/dev/loop-control").exists(),
        data_dir: data_dir_kind(data_dir),
    }
}

fn has_module(name: &str) -> bool {
    let directory = Path::new("/lib/modules").join(kernel_release());
    let listed = std::fs::read_to_string(directory.join("modules.dep")).unwrap_or_default();
    listed
        .lines()
        .filter_map(|line| line.split(':').next()?.rsplit('/').next())
        .any(|file| file.split('.').next() == Some(name))
}

fn data_dir_kind(data_dir: &Path) -> DataDirKind {
    match statfs(data_dir).map(|status| status.filesystem_type()) {
        Ok(TMPFS_MAGIC) => DataDirKind::Memory,
        Ok(BTRFS_SUPER_MAGIC) => {
            let id = File::open(data_dir).and_then(|open| btrfs::filesystem_id(open.as_fd()));
            let has_quotas = id.is_ok_and(|id| Path::new("/sys/fs/btrfs").join(id).join("qgroups").is_dir());
            if has_quotas { DataDirKind::BtrfsWithQuotas } else { DataDirKind::BtrfsWithoutQuotas }
        }
        _ => DataDirKind::Other,
    }
}
