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
pub mod syscalls;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use shared_protocol::api::{ImageView, NetworkSpec, StatsView};
use shared_protocol::{RuntimeName, SessionId};

pub use netns::SandboxSockets;
pub use process::{ProcessSample, ProcessState};

use crate::runner_address::RunnerAddress;
use crate::spec::{LateWorkspaces, SessionSpec, Variables};

/// A sandbox to make: the spec of its session, and the facts that only this host knows.
#[derive(Debug, Clone)]
pub struct SandboxSpec {
    pub id: SessionId,
    pub session: Arc<SessionSpec>,
    /// The workspace to mount at `/workspace`. Without one, `/workspace` is removed with the sandbox.
    pub workspace: Option<WorkspaceMount>,
    /// Whether a workspace may be mounted later.
    pub awaits_workspace: bool,
    /// The variables of every shell and run.
    pub env: Variables,
    pub purpose: Purpose,
}

/// What a sandbox is for, and so what it sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// A session, or a pool: the sandbox sees its image.
    Session,
    /// The file calls of a workspace: they reach the workspace and nothing else, whatever links lie in it.
    WorkspaceFiles,
}

/// A workspace's directory on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkspaceMount {
    pub path: PathBuf,
}

/// A running sandbox. Dropping this value does not end the sandbox.
#[derive(Debug)]
pub struct Sandbox {
    pub address: RunnerAddress,
    /// Resolves when the sandbox ends without being asked to, with the cause as far as it is known.
    pub ended: tokio::sync::oneshot::Receiver<String>,
    /// The sockets through which programs inside reach the daemon instead of a network. `None` if this host cannot open them.
    pub network: Option<SandboxSockets>,
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

    /// The images that a session can be created from, including the configured names.
    async fn images(&self) -> Vec<ImageView>;

    /// Refuses, without any effect, every spec that `create` would refuse.
    async fn check(&self, spec: &SessionSpec) -> Result<(), RuntimeError>;

    /// Makes the sandbox and returns when its runner's socket accepts connections. If it fails, nothing is left behind.
    async fn create(&self, spec: &SandboxSpec) -> Result<Sandbox, RuntimeError>;

    /// Takes over a running sandbox of an earlier daemon.
    async fn adopt(&self, id: &SessionId) -> Result<Sandbox, RuntimeError>;

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
