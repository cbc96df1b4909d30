//! The errors of workspace directories, by what a caller can do about them.

use shared_protocol::WorkspaceId;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WorkspaceError {
    #[error("no workspace {0}: it is made by the first session that names it")]
    NotFound(WorkspaceId),
    #[error("workspace {0} is being deleted")]
    BeingDeleted(WorkspaceId),
    /// The host failed.
    #[error("{0}")]
    Failed(String),
}
