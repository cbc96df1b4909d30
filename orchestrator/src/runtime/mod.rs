//! What makes sandboxes. Everything above this trait is the same for every runtime.
//!
//! A runtime knows nothing of sessions, keys or expiry: it makes one sandbox from a spec, says when it ends, and removes
//! it without a trace. Errors are of five kinds, since that is what a caller can act upon.

pub mod docker;
mod files;
pub mod local;
mod policy;
mod syscalls;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use shared_protocol::api::{ImageView, NetworkMode, ResourcesView, StatsView};
use shared_protocol::{RuntimeName, SessionId, WorkspaceId};

/// A sandbox as asked for: complete and checked, nothing left to default.
#[derive(Debug, Clone)]
pub struct SandboxSpec {
    pub id: SessionId,
    pub image: String,
    pub resources: ResourcesView,
    pub network: NetworkMode,
    pub writable_root: bool,
    /// Mounted at `/workspace`; without one, `/workspace` goes with the sandbox.
    pub workspace: Option<WorkspaceMount>,
    /// Variables of every shell and run.
    pub env: BTreeMap<String, String>,
}

#[derive(Debug, Clone)]
pub struct WorkspaceMount {
    pub id: WorkspaceId,
    pub path: PathBuf,
}

/// How to reach a sandbox's runner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunnerAddress {
    Unix(PathBuf),
}

/// A sandbox that runs. Dropping it does not end the sandbox.
#[derive(Debug)]
pub struct Sandbox {
    pub address: RunnerAddress,
    /// Resolves once, when the sandbox has ended without being asked to, with what is known of why.
    pub ended: tokio::sync::oneshot::Receiver<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// The request names something that this runtime has not. The client can mend it.
    #[error("{0}")]
    InvalidImage(String),
    /// The request asks for what this runtime or host cannot give. The client can mend it.
    #[error("{0}")]
    Unsupported(String),
    /// The host has no room for one more. The client can try again when others have ended.
    #[error("{0}")]
    Full(String),
    /// There is no such sandbox any more.
    #[error("sandbox {0} is gone")]
    Gone(SessionId),
    /// The host failed us; `step` says at what.
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

    /// What a session can be created from, `images` of the configuration applied.
    fn images(&self) -> Vec<ImageView>;

    /// Refuses, without any effect, what `create` would refuse.
    fn check(&self, spec: &SandboxSpec) -> Result<(), RuntimeError>;

    /// Makes the sandbox and returns once its runner's socket accepts connections. On an error nothing is left behind.
    async fn create(&self, spec: &SandboxSpec) -> Result<Sandbox, RuntimeError>;

    /// A sandbox of an earlier daemon, as it runs.
    async fn adopt(&self, id: &SessionId) -> Result<Sandbox, RuntimeError>;

    /// Whether `give_workspace` works here; where it does not, a sandbox has its workspace from the beginning or never.
    fn can_give_workspace(&self) -> bool {
        false
    }

    /// Mounts a workspace over `/workspace` of a sandbox that runs, in which nothing of anybody's has run yet. What fails leaves a
    /// sandbox that is not to be used.
    async fn give_workspace(&self, _id: &SessionId, _workspace: &WorkspaceMount) -> Result<(), RuntimeError> {
        Err(RuntimeError::Unsupported("this runtime gives a sandbox its workspace at its start only".into()))
    }

    async fn stats(&self, id: &SessionId) -> Result<StatsView, RuntimeError>;

    async fn pause(&self, id: &SessionId) -> Result<(), RuntimeError>;

    async fn resume(&self, id: &SessionId) -> Result<(), RuntimeError>;

    /// Ends every process of the sandbox and removes all that was made for it. What is not there is no error.
    async fn destroy(&self, id: &SessionId) -> Result<(), RuntimeError>;

    /// Sandboxes of this daemon's data directory that exist now, half-made ones included.
    async fn list(&self) -> Result<Vec<SessionId>, RuntimeError>;

    /// Removes what the runtime itself keeps on the host, once its last sandbox is gone and the daemon is about to end: a
    /// task that still holds the runtime then must not leave it there.
    fn close(&self) {}
}

/// What a daemon marks as its own: by its data directory, so that two daemons of one host stay apart, and the same for every build
/// of cove, so that one finds what another has made.
fn instance_name(data_dir: &Path) -> String {
    let path = std::fs::canonicalize(data_dir).unwrap_or_else(|_| data_dir.to_owned());
    format!("cove-{:016x}", crate::hash::stable_hash(path.as_os_str().as_encoded_bytes()))
}
