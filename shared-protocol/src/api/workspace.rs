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
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct WorkspaceList {
    pub workspaces: Vec<WorkspaceView>,
}
