//! Workspaces: named directories that outlive sessions.

use serde::{Deserialize, Serialize};

use crate::{KeyName, SessionId, WorkspaceId};

/// A workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct WorkspaceView {
    /// The name to give as `workspace_id` in a create.
    pub id: WorkspaceId,
    /// The name of the key whose workspace it is. Each key has names of its own: two keys can have a workspace `w` each.
    #[serde(default = "KeyName::first")]
    pub owner: KeyName,
    /// When it was created: RFC 3339 in UTC with milliseconds.
    pub created_at: String,
    /// The sessions that have it mounted now.
    pub sessions: Vec<SessionId>,
    /// What it is on the host. It stays what it was made as.
    #[serde(default)]
    pub kind: WorkspaceKind,
    /// Bytes on the disk; absent if there are too many files to count in one listing, or if the workspace cannot be reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// How many bytes it may hold, from the next session on; absent if nothing limits it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_bytes: Option<u64>,
}

/// What a workspace is on the host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum WorkspaceKind {
    /// A directory of the data directory.
    #[default]
    Directory,
    /// A subvolume of the disks of sessions, with a limit of its own.
    Disk,
}

/// All workspaces.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct WorkspaceList {
    /// The workspaces, ordered by name.
    pub workspaces: Vec<WorkspaceView>,
}
