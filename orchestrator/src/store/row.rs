//! A session as it is written down.
//!
//! Not its variables: they may be secrets, and the sandbox has them already. Nothing here is needed to run a command, only to find a
//! session again, to count it, to expire it, and to tell its clients what it is or was.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use shared_protocol::api::{AcquireSource, NetworkMode, ResourcesView, SessionStatus};
use shared_protocol::{RuntimeName, SessionId, WorkspaceId};

#[derive(Debug, Clone, PartialEq)]
pub struct SessionRow {
    pub id: SessionId,
    /// `creating`, `running`, `paused`, `pool_idle`, `destroying`, or how it ended.
    pub status: SessionStatus,
    /// From `destroying` on.
    pub end: Option<StoredEnd>,
    pub facts: StoredFacts,
    pub key: Option<StoredKey>,
    pub created_at: SystemTime,
    pub last_activity: SystemTime,
    pub ended_at: Option<SystemTime>,
    pub cwd: String,
}

/// What never changes. Kept as one JSON document: a field that a later version adds needs a default, and no migration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoredFacts {
    pub image: String,
    pub runtime: RuntimeName,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<WorkspaceId>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    pub resources: ResourcesView,
    pub network: NetworkMode,
    pub writable_root: bool,
    pub lifetime_seconds: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_pause_seconds: Option<u64>,
    pub source: AcquireSource,
}

/// Why a session ends or has ended: one of the three last statuses, with what is known of a crash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredEnd {
    pub status: SessionStatus,
    pub reason: Option<String>,
}

/// The idempotency key that it was made with, and the request's fingerprint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredKey {
    pub key: String,
    pub fingerprint: u64,
}

/// The last use of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Touch {
    pub id: SessionId,
    pub last_activity: SystemTime,
    pub cwd: String,
}

/// Milliseconds since 1970, as they are in the file. What is outside of what can be told is its nearest end.
pub fn to_millis(at: SystemTime) -> i64 {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

pub fn from_millis(millis: i64) -> SystemTime {
    let since = Duration::from_millis(u64::try_from(millis).unwrap_or(0));
    SystemTime::UNIX_EPOCH.checked_add(since).unwrap_or(SystemTime::UNIX_EPOCH)
}
