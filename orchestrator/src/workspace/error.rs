//! The errors of workspaces, by what a caller can do about them.

use shared_protocol::WorkspaceId;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WorkspaceError {
    #[error("no workspace {0}: it is made by the first session that names it")]
    NotFound(WorkspaceId),
    #[error("workspace {0} is being deleted")]
    BeingDeleted(WorkspaceId),
    /// The runtime of the session cannot mount this workspace. The client can choose another of either.
    #[error(
        "workspace {0} is on a disk of the runtime local, which no other runtime can mount: use the runtime local, or another workspace"
    )]
    Unmountable(WorkspaceId),
    /// The workspace is on disks that are not there. An operator has to act.
    #[error("{0}")]
    Unreachable(String),
    /// There is no room for another workspace.
    #[error("{0}")]
    Full(String),
    /// The host failed.
    #[error("{0}")]
    Failed(String),
}

impl WorkspaceError {
    pub fn too_many(limit: usize) -> Self {
        Self::Full(format!("there are {limit} workspaces of this key already: delete one (workspaces.max_per_owner)"))
    }
}
