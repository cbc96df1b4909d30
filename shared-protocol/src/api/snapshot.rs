//! Snapshots: what a session has on its disk and in its shells, kept for sessions that start from it.

use serde::{Deserialize, Serialize};

use super::{SessionUser, SessionView};
use crate::{KeyName, RuntimeName, SessionId, ShellName, SnapshotId, WorkspaceId};

/// The most bytes of a snapshot's name.
pub const MAX_SNAPSHOT_NAME_BYTES: usize = 128;

/// The most copies that one request makes of a session.
pub const MAX_FORKS: u32 = 100;

/// A snapshot to make.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CreateSnapshotRequest {
    /// A name for people, of at most 128 bytes. Two snapshots may have the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// A snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct SnapshotView {
    /// The snapshot's id.
    pub id: SnapshotId,
    /// The name that it was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The name of the key that owns it: the owner of the session.
    pub owner: KeyName,
    /// The session that it was made of, which may be gone.
    pub session_id: SessionId,
    /// The image of that session.
    pub image: String,
    /// The runtime of that session.
    pub runtime: RuntimeName,
    /// Whether the root file system of that session was writable, and so is part of the snapshot.
    pub writable_root: bool,
    /// The user that the commands of that session run as, to whom its files belong.
    #[serde(default)]
    pub user: SessionUser,
    /// Bytes on its disk, as if it shared none with others.
    pub disk_bytes: u64,
    /// The shells whose state it has.
    pub shells: Vec<ShellName>,
    /// When it was made.
    pub created_at: String,
}

/// All snapshots that the caller may see, the oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct SnapshotList {
    /// The snapshots.
    pub snapshots: Vec<SnapshotView>,
}

/// Copies to make of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ForkRequest {
    /// How many copies to make, 1 to 100. The default is 1.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub count: u32,
    /// The workspace that the copies have at `/workspace`. The default is the workspace of the session, if it has one: it is not
    /// copied, so all of them use the same files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_id: Option<WorkspaceId>,
}

impl Default for ForkRequest {
    fn default() -> Self {
        Self { count: one(), workspace_id: None }
    }
}

fn one() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference to the field")]
fn is_one(count: &u32) -> bool {
    *count == one()
}

/// The copies of a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct ForkView {
    /// The new sessions.
    pub sessions: Vec<SessionView>,
}
