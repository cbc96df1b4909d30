//! What the launcher is told: a complete plan, decided by the daemon and only carried out by the launcher.
//!
//! Paths of steps are inside the new root and are resolved there, so that a symbolic link of a hostile image leads nowhere
//! else. Owners are numbers as the launcher sees them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::ids::IdRange;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LaunchPlan {
    pub hostname: String,
    /// An empty directory of the host; the new root is mounted over it, in a mount namespace of its own.
    pub mount_point: PathBuf,
    pub root: RootPlan,
    /// Of what stands for the host's: the root's own directories.
    pub host_owner: Owner,
    pub steps: Vec<Step>,
    pub users: UserPlan,
    /// The files to write the sandbox's first process to, so that it is in its cgroups.
    pub cgroup_procs: Vec<PathBuf>,
    pub limits: Limits,
    /// The runner's binary, on the host.
    pub runner: PathBuf,
    pub arguments: Vec<String>,
    pub environment: BTreeMap<String, String>,
    /// Where on the host the runner is to listen.
    pub socket: PathBuf,
    /// Where on the host the runner's log goes.
    pub log: PathBuf,
    /// Off only in tests that show what the protection is for.
    pub protections: Protections,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum RootPlan {
    /// An empty one, which the steps fill with pieces of the host.
    Empty,
    /// An imported one, as it is.
    Image { path: PathBuf, idmap: Option<Vec<IdRange>> },
    /// An imported one, below what the sandbox writes.
    Overlay { path: PathBuf, idmap: Option<Vec<IdRange>> },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    /// Made if it is missing; in the new root, or in the sandbox's disk for `Disk` steps below.
    Directory {
        path: String,
        mode: u32,
        owner: Owner,
    },
    Symlink {
        path: String,
        target: String,
    },
    /// A piece of the host.
    Bind {
        source: PathBuf,
        path: String,
        writable: bool,
        devices: bool,
        idmap: Option<Vec<IdRange>>,
    },
    /// A directory of the sandbox's own disk, made with this mode and owner.
    Disk {
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
    },
    /// What is there already, from now on read-only.
    ReadOnly {
        path: String,
    },
    /// An empty thing of the same kind over it. What is not there needs no mask.
    Mask {
        path: String,
    },
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
    /// Whom the runner becomes inside.
    pub runner: Owner,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum UserNamespace {
    /// Made last, by root: everything else then belongs to the host, and no capability inside reaches it.
    Last,
    /// Made first, by an ordinary user, who maps only himself.
    FirstSelf,
    /// Made first, by an ordinary user with subordinate ids, mapped by `newuidmap` and `newgidmap`.
    FirstSubordinate,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Limits {
    /// Of the sandbox's own disk, a tmpfs.
    pub disk_bytes: u64,
    pub disk_inodes: u64,
    pub open_files: u64,
    /// A second line where cgroups cannot be used.
    pub processes: Option<u64>,
}

/// Each of them on, but for the control of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Protections {
    pub seccomp: bool,
    pub network: bool,
    pub masks: bool,
    pub read_only_root: bool,
    pub private_pids: bool,
    pub capabilities: bool,
}

impl Protections {
    pub const ALL: Self = Self {
        seccomp: true,
        network: true,
        masks: true,
        read_only_root: true,
        private_pids: true,
        capabilities: true,
    };
}

impl Protections {
    /// The same without one, by name, for the control of a test.
    pub fn disable(self, name: &str) -> Result<Self, String> {
        let mut rest = self;
        let field = match name {
            "seccomp" => &mut rest.seccomp,
            "network" => &mut rest.network,
            "masks" => &mut rest.masks,
            "read_only_root" => &mut rest.read_only_root,
            "private_pids" => &mut rest.private_pids,
            "capabilities" => &mut rest.capabilities,
            _ => return Err(format!("there is no protection named {name:?}")),
        };
        *field = false;
        Ok(rest)
    }
}

/// What the launcher prints, once, as one line.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LaunchReport {
    Started { pid: i32 },
    Failed { step: String, error: String },
}
