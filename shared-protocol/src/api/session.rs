//! Sessions: what is asked for, and what there is.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{RuntimeName, SessionId, WorkspaceId};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CreateSessionRequest {
    /// A logical name; left out, the daemon's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime: Option<RuntimeName>,
    /// Seconds without activity after which the session expires; each request renews it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_seconds: Option<u64>,
    /// As `ttl_seconds`, and the shorter of the two counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_seconds: Option<u64>,
    /// Seconds without activity after which the session is paused, until a request needs its sandbox; 0: never. Left out, the
    /// daemon's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_pause_seconds: Option<u64>,
    /// A named directory that outlives the session, mounted at `/workspace`; made where it does not exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_id: Option<WorkspaceId>,
    /// Variables of every shell and run of the session.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourcesRequest>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkMode>,
    /// Whether the root file system can be written to; what is written goes with the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writable_root: Option<bool>,
}

/// Limits of one session. What is left out is the daemon's default.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ResourcesRequest {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_mb: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pids: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_mb: Option<u64>,
}

/// The limits a session has.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct ResourcesView {
    pub cpus: f64,
    pub memory_mb: u64,
    pub pids: u64,
    pub disk_mb: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum NetworkMode {
    /// Loopback only.
    #[default]
    None,
    /// The host's network, where the runtime offers it.
    Full,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum SessionStatus {
    Creating,
    Running,
    Paused,
    /// Started ahead, not yet anyone's.
    PoolIdle,
    Destroying,
    Destroyed,
    Expired,
    /// Its sandbox ended without being asked to.
    Crashed,
}

impl SessionStatus {
    pub const ALL: [Self; 8] = [
        Self::Creating,
        Self::Running,
        Self::Paused,
        Self::PoolIdle,
        Self::Destroying,
        Self::Destroyed,
        Self::Expired,
        Self::Crashed,
    ];

    /// As on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Creating => "creating",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::PoolIdle => "pool_idle",
            Self::Destroying => "destroying",
            Self::Destroyed => "destroyed",
            Self::Expired => "expired",
            Self::Crashed => "crashed",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum AcquireSource {
    Pool,
    Cold,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct SessionView {
    pub id: SessionId,
    pub image: String,
    pub runtime: RuntimeName,
    pub status: SessionStatus,
    /// Of the shell `main`, after its last command that ended.
    pub cwd: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_id: Option<WorkspaceId>,
    pub labels: BTreeMap<String, String>,
    pub resources: ResourcesView,
    pub network: NetworkMode,
    pub writable_root: bool,
    pub acquire_source: AcquireSource,
    /// Times are RFC 3339 in UTC, to the millisecond.
    pub created_at: String,
    pub expires_at: String,
    pub last_activity: String,
    /// For `crashed`: what is known of the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct StatsView {
    pub memory_bytes: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_limit: Option<u64>,
    pub cpu_usage_usec: u64,
    pub pids: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_bytes: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct OkView {
    pub ok: bool,
}

impl OkView {
    pub fn new() -> Self {
        Self { ok: true }
    }
}

impl Default for OkView {
    fn default() -> Self {
        Self::new()
    }
}
