//! Runtimes make sandboxes. All code above this trait is the same for every runtime.
//!
//! A runtime knows only what a sandbox is made of (image, resources, network, workspace), and nothing else of a session. It
//! makes one sandbox from a spec, reports when it ends, and removes it completely. There are five kinds of errors, because a
//! caller reacts in five ways.

pub mod docker;
mod files;
pub mod local;
pub mod netns;
pub mod policy;
mod process;
mod root_changes;
pub mod syscalls;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use shared_protocol::api::{ImageView, NetworkSpec, StatsView};
use shared_protocol::runner::SandboxState;
use shared_protocol::{RuntimeName, SessionId, SnapshotId};

pub use netns::SandboxSockets;
pub use process::{ProcessSample, ProcessState};
pub use root_changes::{LayerSource, OwnerMap, RootChanges, TreeSource};

use crate::runner_address::RunnerAddress;
use crate::spec::{DiskPlace, LateWorkspaces, SessionSpec, Variables};

/// A sandbox to make: the spec of its session, and the facts that only this host knows.
#[derive(Debug, Clone)]
pub struct SandboxSpec {
    pub id: SessionId,
    pub session: Arc<SessionSpec>,
    /// The workspace to mount at `/workspace`, which the driver adds when it is prepared. Without one, `/workspace` is removed with the sandbox.
    pub workspace: Option<WorkspaceMount>,
    /// Whether a workspace may be mounted later.
    pub awaits_workspace: bool,
    /// The variables of every shell and run.
    pub env: Variables,
    /// The certificate authority of the session's own, as PEM, which the programs inside trust. The driver adds it.
    pub authority: Option<String>,
    pub purpose: Purpose,
    pub origin: Origin,
}

/// What a sandbox has on its disk when it starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Nothing.
    Empty,
    /// What a snapshot has.
    Snapshot(SnapshotId),
    /// What it had when it was stopped.
    Stopped,
}

/// What a sandbox is for, and so what it sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// A session, or a pool: the sandbox sees its image.
    Session,
    /// The file calls of a workspace: they reach the workspace and nothing else, whatever links lie in it.
    WorkspaceFiles,
}

/// Where a workspace is on the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum WorkspaceMount {
    /// A directory.
    Directory(PathBuf),
    /// A subvolume of the btrfs on a device. No path of the host leads to it.
    Subvolume { device: PathBuf, subvolume: u64 },
}

impl WorkspaceMount {
    /// The directory, for a runtime that needs a path.
    pub fn directory(&self) -> Result<&Path, RuntimeError> {
        match self {
            Self::Directory(path) => Ok(path),
            Self::Subvolume { .. } => Err(RuntimeError::Unsupported(
                "the workspace is on a disk of the runtime local, which no other runtime can mount".into(),
            )),
        }
    }
}

/// A running sandbox. Dropping this value does not end the sandbox.
#[derive(Debug)]
pub struct Sandbox {
    pub address: RunnerAddress,
    /// Resolves when the sandbox ends without being asked to, with the cause as far as it is known.
    pub ended: tokio::sync::oneshot::Receiver<String>,
    /// The way on which programs inside reach the daemon instead of a network. `None` if there is none.
    pub network: Option<WayOut>,
    /// The directory in which its shells begin, if the image names one. Otherwise they begin in the workspace.
    pub start_dir: Option<String>,
    /// What its shells start with, if its disk is not empty. Its runner then waits for it.
    pub state: Option<Box<SandboxState>>,
    /// Variables of the runtime that take the place of those in the state.
    pub newer_variables: BTreeMap<String, String>,
}

/// How programs in a sandbox reach the daemon instead of a network.
#[derive(Debug)]
pub enum WayOut {
    /// By sockets in the sandbox that the daemon holds: whatever a program dials arrives there.
    Sockets(SandboxSockets),
    /// By a proxy on a port of the loopback. The runner hands its connections over.
    Proxy { port: u16 },
}

#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// The request names an image that this runtime does not have. The client can correct it.
    #[error("{0}")]
    InvalidImage(String),
    /// The request asks for something that this runtime or host cannot provide. The client can correct it.
    #[error("{0}")]
    Unsupported(String),
    /// The host has no room for another sandbox. The client can try again when others have ended.
    #[error("{0}")]
    Full(String),
    /// The sandbox no longer exists.
    #[error("sandbox {0} is gone")]
    Gone(SessionId),
    /// The host failed. `step` says at which step.
    #[error("{step}")]
    Failed {
        step: String,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl RuntimeError {
    pub fn failed(step: impl Into<String>, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Failed { step: step.into(), source: source.into() }
    }
}

#[async_trait]
pub trait Runtime: Send + Sync + 'static {
    fn name(&self) -> RuntimeName;

    /// Which limits of sandboxes this host does not enforce, and why; `None` if it enforces all.
    fn unenforced_limits(&self) -> Option<String> {
        None
    }

    /// Refuses a network that sandboxes of this runtime cannot have. It is not asked about `none`.
    fn opens_network(&self, _network: &NetworkSpec) -> Result<(), RuntimeError> {
        Err(RuntimeError::Unsupported(format!("sandboxes of the {} runtime have no network here", self.name())))
    }

    /// Whether a sandbox with this network gets it from something else than the daemon, when it is made. Then neither a claim
    /// nor a later change can give or take it.
    fn is_fixed_network(&self, _network: &NetworkSpec) -> bool {
        false
    }

    /// Refuses a session with injected headers if this runtime cannot make a sandbox trust the session's certificate authority.
    fn trusts_authorities(&self, _network: &NetworkSpec) -> Result<(), RuntimeError> {
        Err(RuntimeError::Unsupported(format!("sandboxes of the {} runtime cannot have `inject`", self.name())))
    }

    /// Where the files of sandboxes are.
    fn disks(&self) -> DiskPlace {
        DiskPlace::Memory
    }

    /// The size of the disks of all sandboxes together. `None` if their files are in memory.
    fn disk_total_mb(&self) -> Option<u64> {
        None
    }

    /// The images that a session can be created from, including the configured names.
    async fn images(&self) -> Vec<ImageView>;

    /// Refuses, without any effect, every spec that `create` would refuse.
    async fn check(&self, spec: &SessionSpec, origin: &Origin) -> Result<(), RuntimeError>;

    /// Makes the sandbox and returns when its runner's socket accepts connections. If it fails, nothing is left behind.
    async fn create(&self, spec: &SandboxSpec) -> Result<Sandbox, RuntimeError>;

    /// Takes over a running sandbox of an earlier daemon.
    async fn adopt(&self, id: &SessionId) -> Result<Sandbox, RuntimeError>;

    /// The workspaces on the disks of this runtime. `None` if it has no disks that outlive sandboxes.
    fn workspace_disks(&self) -> Option<local::WorkspaceDisks> {
        None
    }

    /// Whether `mount_workspace` works here. If it does not, a sandbox can get its workspace only when it is created.
    fn late_workspaces(&self) -> LateWorkspaces {
        LateWorkspaces::AtStartOnly
    }

    /// Mounts a workspace over `/workspace` of a running sandbox that no client has used yet. After a failure the sandbox
    /// must not be used.
    async fn mount_workspace(&self, _id: &SessionId, _workspace: &WorkspaceMount) -> Result<(), RuntimeError> {
        Err(RuntimeError::Unsupported("this runtime mounts a workspace when a sandbox starts, and not later".into()))
    }

    async fn stats(&self, id: &SessionId) -> Result<StatsView, RuntimeError>;

    /// The sandbox's first process as the kernel shows it now. `None` if this host does not see it.
    async fn runner_process(&self, _id: &SessionId) -> Option<ProcessSample> {
        None
    }

    /// Continues the sandbox's first process after a signal has stopped it.
    async fn continue_runner(&self, _id: &SessionId) -> Result<(), RuntimeError> {
        Err(RuntimeError::Unsupported("this runtime cannot continue a process".into()))
    }

    async fn pause(&self, id: &SessionId) -> Result<(), RuntimeError>;

    async fn resume(&self, id: &SessionId) -> Result<(), RuntimeError>;

    /// Holds everything in a sandbox still for a snapshot. `snapshot` follows, then `thaw`.
    async fn freeze(&self, id: &SessionId) -> Result<(), RuntimeError> {
        self.pause(id).await
    }

    /// Lets a sandbox go on after `freeze` or `save_state`.
    async fn thaw(&self, id: &SessionId) -> Result<(), RuntimeError> {
        self.resume(id).await
    }

    /// Refuses if the disks of this runtime cannot be snapshotted and do not outlive their sandbox, and says why.
    fn keeps_disks(&self) -> Result<(), RuntimeError> {
        Err(RuntimeError::Unsupported(format!(
            "sessions of the {} runtime cannot be snapshotted, forked or stopped: use the runtime local",
            self.name()
        )))
    }

    /// Makes a snapshot of a frozen sandbox: its disk, and the state of its shells. Returns how many bytes the snapshot holds.
    /// After a failure parts of it may exist, which `remove_snapshot` removes.
    async fn snapshot(
        &self,
        _id: &SessionId,
        _snapshot: &SnapshotId,
        _state: Arc<SandboxState>,
    ) -> Result<u64, RuntimeError> {
        self.keeps_disks().and(Ok(0))
    }

    /// Writes what a sandbox has not written to its disk yet. It makes the snapshot after it quick, and is no promise.
    async fn flush(&self, _id: &SessionId) {}

    /// Waits until a snapshot survives a power cut.
    async fn keep_snapshot(&self, _snapshot: &SnapshotId) -> Result<(), RuntimeError> {
        self.keeps_disks()
    }

    /// Removes a snapshot, or parts of one. A missing snapshot is no error.
    async fn remove_snapshot(&self, _snapshot: &SnapshotId) -> Result<(), RuntimeError> {
        self.keeps_disks()
    }

    /// Lists the snapshots that exist, including half-made ones.
    async fn list_snapshots(&self) -> Result<Vec<SnapshotId>, RuntimeError> {
        Ok(Vec::new())
    }

    /// Refuses a session from whose root no image can be made, and says why.
    fn commits(&self, _spec: &SessionSpec) -> Result<(), RuntimeError> {
        Err(RuntimeError::Unsupported(format!(
            "no image can be made from a session of the {} runtime: use the runtime local",
            self.name()
        )))
    }

    /// Where the changes of a session's root are in a snapshot of it. They can be read as long as the snapshot is there.
    async fn root_changes(&self, _snapshot: &SnapshotId, spec: &SessionSpec) -> Result<RootChanges, RuntimeError> {
        self.commits(spec)?;
        Err(RuntimeError::Unsupported("this runtime knows no changes of a root".into()))
    }

    /// Keeps the state of the shells of a sandbox that is about to be stopped, and its disk if `stop` would lose it. It survives a power
    /// cut. If the stop does not follow, `thaw` does.
    async fn save_state(&self, _id: &SessionId, _state: Arc<SandboxState>) -> Result<(), RuntimeError> {
        self.keeps_disks()
    }

    /// Ends every process of a sandbox and keeps its disk, also over a restart of the host. A sandbox that is stopped already
    /// stays as it is; one without a disk is `Gone`.
    async fn stop(&self, _id: &SessionId) -> Result<(), RuntimeError> {
        self.keeps_disks()
    }

    /// Forgets what was kept of a sandbox that was stopped and runs again. It is called when that is stored.
    async fn started_again(&self, _id: &SessionId) {}

    /// Ends every process of the sandbox and removes everything that was made for it. A missing sandbox is no error.
    async fn destroy(&self, id: &SessionId) -> Result<(), RuntimeError>;

    /// Lists the existing sandboxes of this daemon's data directory, including half-made ones.
    async fn list(&self) -> Result<Vec<SessionId>, RuntimeError>;

    /// Removes what the runtime itself keeps on the host, when its last sandbox is gone and the daemon is about to end. It
    /// is a call and not a `Drop`, because a task may still hold the runtime at that time.
    fn close(&self) {}
}

/// The name that marks a daemon's sandboxes. It depends on the data directory, so that two daemons on one host stay apart,
/// and is the same in every build of cove, so that a new version finds the sandboxes of an old one.
fn instance_name(data_dir: &Path) -> String {
    let path = std::fs::canonicalize(data_dir).unwrap_or_else(|_| data_dir.to_owned());
    format!("cove-{:016x}", crate::hash::stable_hash(path.as_os_str().as_encoded_bytes()))
}
