//! The plan for one sandbox. The daemon decides all of it; the launcher carries it out and decides nothing.
//!
//! The paths of steps are resolved inside the new root, so a symbolic link in a hostile image cannot lead out of it. Owners
//! are ids as the launcher sees them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::cgroup::Entrances;
use super::ids::IdRange;
use crate::config::Protection;
use crate::runtime::syscalls::Debugging;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LaunchPlan {
    pub hostname: String,
    /// An empty directory on the host. The new root is mounted over it, in the sandbox's own mount namespace.
    pub mount_point: PathBuf,
    pub root: RootPlan,
    /// The sandbox's disk. Without one, its files are in memory.
    pub disk: Option<DiskPlan>,
    /// The owner of the root and its own directories.
    pub host_owner: Owner,
    pub steps: Vec<Step>,
    pub users: UserPlan,
    /// The ways into the sandbox's cgroup. There are none if it has no cgroup of its own.
    pub cgroups: Entrances,
    pub limits: Limits,
    /// The directories inside in which files can be changed, for Landlock. `None` if a directory may be mounted later, to which no rule
    /// can apply, or if the whole root is writable.
    pub writable_places: Option<Vec<String>>,
    /// Which processes of the sandbox its programs may debug.
    pub debugging: Debugging,
    /// The runner's binary on the host.
    pub runner: PathBuf,
    pub arguments: Vec<String>,
    pub environment: BTreeMap<String, String>,
    /// The path of the runner's socket on the host.
    pub socket: PathBuf,
    /// The path of the runner's log on the host.
    pub log: PathBuf,
    /// The protections that are on. All are, except in tests that show what a protection is for.
    pub protections: Protections,
    /// How much likelier than others the kernel kills the runner when the host's memory runs out. Commands get more.
    pub oom_score_adj: i32,
}

/// The disk of a sandbox, whose files belong to ids inside.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DiskPlan {
    pub source: DiskSource,
    pub idmap: Vec<IdRange>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum DiskSource {
    /// A subvolume of the btrfs on a device.
    Device { device: PathBuf, subvolume: u64 },
    /// A directory of the host.
    Directory(PathBuf),
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum RootPlan {
    /// An empty root, which the steps fill with directories of the host.
    Empty,
    /// A directory on the sandbox's disk, which the steps fill. The sandbox may change it.
    Disk { owner: Owner },
    /// An image, read-only.
    Image { tree: ImageTree, idmap: Option<Vec<IdRange>>, view: View },
    /// An image, with a writable layer over it.
    Overlay { tree: ImageTree, idmap: Option<Vec<IdRange>> },
}

/// Where the files of an image are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ImageTree {
    /// In one directory.
    Directory(PathBuf),
    /// In several directories below `dir`, the topmost first. An overlay puts them together.
    Layers { dir: PathBuf, names: Vec<String> },
}

impl ImageTree {
    /// The directory that is mounted for it.
    pub fn path(&self) -> &Path {
        match self {
            Self::Directory(path) => path,
            Self::Layers { dir, .. } => dir,
        }
    }
}

/// How a directory of the host, or an image, is shown read-only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum View {
    /// Through an overlay, which gives the sandbox inodes of its own. A socket or a FIFO that is shown leads nowhere, and locks and
    /// watches on files are not shared with the host or with other sandboxes. The data in the page cache is shared.
    Overlay,
    /// The same, as a part of one overlay over the host's root. The kernel waits for all processors when an overlay ends, so a sandbox
    /// with one ends sooner than a sandbox with five.
    PartOfRoot,
    /// As a mount of the same inodes, if the host has no such overlay.
    Bind,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    /// Makes a directory in the new root, if it is missing.
    Directory {
        path: String,
        mode: u32,
        owner: Owner,
    },
    Symlink {
        path: String,
        target: String,
    },
    /// Makes a small file in the new root.
    File {
        path: String,
        content: String,
        mode: u32,
        owner: Owner,
    },
    /// Writes the certificate authority and the image's own bundle of authorities, the first of `stores` that exists, to a file. If the
    /// image has none, the host's is taken.
    TrustBundle {
        path: String,
        authority: String,
        stores: Vec<String>,
        /// Whether the file is shown in place of all those stores.
        covers_stores: bool,
    },
    /// Shows a directory of the host, read-only. If the host no longer has it, nothing is shown.
    Show {
        source: PathBuf,
        path: String,
        view: View,
    },
    /// Shows a directory of the host with a writable layer on the sandbox's disk over it, under a name of its own. If the host no
    /// longer has it, nothing is shown.
    Overlay {
        source: PathBuf,
        path: String,
        name: String,
        idmap: Option<Vec<IdRange>>,
    },
    /// Copies what has one of these names in a directory of the host, as far as everybody may read it.
    CopyNames {
        source: PathBuf,
        path: String,
        names: Vec<String>,
        owner: Owner,
    },
    /// Shows what has one of these names in a directory of the host, read-only. A name that ends in `*` means every name that
    /// begins with the rest. Links are copied.
    ShowNames {
        source: PathBuf,
        path: String,
        names: Vec<String>,
        view: View,
    },
    /// Mounts a tmpfs with these devices of the host's `/dev`.
    Devices {
        path: String,
        names: Vec<String>,
        bytes: u64,
        inodes: u64,
        owner: Owner,
        nodes: DeviceNodes,
    },
    /// Mounts a file or directory of the host.
    Bind {
        source: PathBuf,
        path: String,
        writable: bool,
        idmap: Option<Vec<IdRange>>,
    },
    /// Mounts a subvolume of the btrfs on a device, which the sandbox may change.
    Subvolume {
        device: PathBuf,
        subvolume: u64,
        path: String,
        idmap: Vec<IdRange>,
    },
    /// Makes a directory on the sandbox's own disk and mounts it.
    Disk {
        name: String,
        path: String,
        mode: u32,
        owner: Owner,
    },
    /// Makes a directory in the sandbox's memory and mounts it.
    Memory {
        name: String,
        path: String,
        mode: u32,
        owner: Owner,
    },
    Tmpfs {
        path: String,
        bytes: u64,
        inodes: u64,
        mode: u32,
        owner: Owner,
    },
    Proc {
        path: String,
    },
    Devpts {
        path: String,
        tty_group: u32,
        /// The most terminals at once.
        max: u32,
    },
    /// Shows a file with this content in place of one that exists.
    Cover {
        path: String,
        content: String,
    },
    /// Mounts the files of `/proc` that the runner serves.
    Serve,
    /// Makes something that already exists read-only.
    ReadOnly {
        path: String,
    },
    /// Hides an existing file or directory behind an empty one.
    Mask {
        path: String,
    },
}

/// Where the device nodes of a sandbox come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum DeviceNodes {
    /// They are made for the sandbox, which only root can do.
    Own,
    /// They are the host's.
    Host,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    pub uid: u32,
    pub gid: u32,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct UserPlan {
    pub how: UserNamespace,
    pub uids: Vec<IdRange>,
    pub gids: Vec<IdRange>,
    /// The user inside that the runner runs as.
    pub runner: Owner,
    /// The ids of a user namespace below this one in which commands are root, if they are. The runner's user is not in it.
    pub commands: Option<Vec<IdRange>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum UserNamespace {
    /// A root daemon makes it last. Every other namespace then belongs to the host, and no capability inside has power over
    /// it.
    Last,
    /// An ordinary user makes it first, and maps only their own id.
    FirstSelf,
    /// An ordinary user with subordinate ids makes it first; `newuidmap` and `newgidmap` write its maps.
    FirstSubordinate,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Limits {
    /// The size of the tmpfs for files in memory: of `/dev/shm`, and of a disk that is in memory.
    pub memory_bytes: u64,
    pub memory_inodes: u64,
    pub open_files: u64,
    /// The limit of processes by RLIMIT_NPROC, if cgroups cannot be used.
    pub processes: Option<u64>,
}

/// The protections of a sandbox. All are on, except in tests that show what a protection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Protections {
    pub seccomp: bool,
    pub network: bool,
    pub masks: bool,
    pub read_only_root: bool,
    pub private_pids: bool,
    pub capabilities: bool,
    pub own_inodes: bool,
    pub landlock: bool,
}

impl Protections {
    pub const ALL: Self = Self {
        seccomp: true,
        network: true,
        masks: true,
        read_only_root: true,
        private_pids: true,
        capabilities: true,
        own_inodes: true,
        landlock: true,
    };
}

impl Protections {
    /// A copy of the protections without this one.
    pub fn without(mut self, protection: Protection) -> Self {
        let field = match protection {
            Protection::Seccomp => &mut self.seccomp,
            Protection::Network => &mut self.network,
            Protection::Masks => &mut self.masks,
            Protection::ReadOnlyRoot => &mut self.read_only_root,
            Protection::PrivatePids => &mut self.private_pids,
            Protection::Capabilities => &mut self.capabilities,
            Protection::OwnInodes => &mut self.own_inodes,
            Protection::Landlock => &mut self.landlock,
        };
        *field = false;
        self
    }
}

/// What the launcher prints, each as one line of JSON: first `Started`, then `Running`. `Failed` is the last line instead of either.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LaunchReport {
    /// The sandbox has a first process, which waits for the daemon before it becomes the runner.
    Started {
        pid: i32,
    },
    /// The first process is the runner.
    Running,
    Failed {
        step: String,
        error: String,
    },
}
