//! Named directories that outlive sessions.

use serde::{Deserialize, Serialize};

use crate::{SessionId, WorkspaceId};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct WorkspaceView {
    pub id: WorkspaceId,
    pub created_at: String,
    /// Live sessions that have it mounted.
    pub sessions: Vec<SessionId>,
    /// On the disk; left out where there are too many files to count them at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct WorkspaceList {
    pub workspaces: Vec<WorkspaceView>,
}
