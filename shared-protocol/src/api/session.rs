//! Sessions: the request that creates one, its view, its status and what it uses.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{InjectionSpec, NetworkSpec};
use crate::{KeyName, RuntimeName, SessionId, SessionName, SnapshotId, WorkspaceId};

/// A session to create. Every field is optional.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CreateSessionRequest {
    /// A name by which people can find the session. No other session of yours may have it until this one has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<SessionName>,
    /// The name of an image. The default is the daemon's default image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// A snapshot to start from. The session has the files and the shells of the snapshot. Image, runtime and `writable_root` are those
    /// of the snapshot, and so are resources that are not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<SnapshotId>,
    /// The runtime that makes the sandbox. The default is the daemon's default runtime.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime: Option<RuntimeName>,
    /// The session expires after this many seconds without activity. Each request starts the time again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_seconds: Option<u64>,
    /// The same as `ttl_seconds`. If both are given, the shorter one applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_seconds: Option<u64>,
    /// The session is paused after this many seconds without activity, until a request needs its sandbox. 0 means never. The default
    /// is the daemon's setting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_pause_seconds: Option<u64>,
    /// A workspace, a named directory that outlives the session, to mount at `/workspace`. It is created if it does not exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_id: Option<WorkspaceId>,
    /// Environment variables for every shell and run of the session.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Labels of your own, by which sessions can be listed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Limits on processor, memory, processes and disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourcesRequest>,
    /// What the session may reach over the network. The default is the daemon's setting, normally `none`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkSpec>,
    /// Headers that the daemon adds to requests to certain hosts, with values that the sandbox never sees. An empty list prepares the
    /// session for a later `PUT …/network` with some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inject: Option<Vec<InjectionSpec>>,
    /// Make the root file system writable. What is written there is deleted with the session. The default is false, or true if
    /// `user` is `root`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writable_root: Option<bool>,
    /// The user that commands run as. With `root`, the root file system is writable unless `writable_root` is false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<SessionUser>,
    /// What the session's programs may do beyond the usual. The daemon's operator decides which profiles can be asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub profiles: Vec<Profile>,
}

/// The user that the commands of a session run as.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum SessionUser {
    /// An ordinary user of the sandbox.
    #[default]
    Default,
    /// Root of the sandbox, without any right outside of it: `apt-get install` and `useradd` work.
    Root,
}

impl SessionUser {
    pub const ALL: [Self; 2] = [Self::Default, Self::Root];

    pub fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Root => "root",
        }
    }

    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// A set of system calls that a session has to ask for. All of them reach only processes of the session itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Profile {
    /// Trace processes that run already: `strace -p`, `gdb -p`.
    Ptrace,
    /// Everything in `ptrace`, and access to memory and descriptors of processes that run: `py-spy`, `gcore`.
    Debug,
}

impl Profile {
    pub const ALL: [Self; 2] = [Self::Ptrace, Self::Debug];

    pub fn name(self) -> &'static str {
        match self {
            Self::Ptrace => "ptrace",
            Self::Debug => "debug",
        }
    }
}

/// Changes to a session. An absent field stays as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct UpdateSessionRequest {
    /// The session expires after this many seconds without activity. The time starts again with this request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_seconds: Option<u64>,
    /// The same as `ttl_seconds`. If both are given, the shorter one applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_seconds: Option<u64>,
    /// Labels that take the place of all earlier ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
}

/// The limits of one session. An absent field means the daemon's default.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ResourcesRequest {
    /// Processors; fractions are allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<f64>,
    /// Memory in MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_mb: Option<u64>,
    /// Processes and threads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pids: Option<u64>,
    /// Disk in MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_mb: Option<u64>,
}

/// The limits that a session has.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct ResourcesView {
    /// Processors.
    pub cpus: f64,
    /// Memory in MiB.
    pub memory_mb: u64,
    /// Processes and threads.
    pub pids: u64,
    /// Disk in MiB.
    pub disk_mb: u64,
}

/// The stage of a session's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum SessionStatus {
    /// Its sandbox is being made.
    Creating,
    /// It accepts requests.
    Running,
    /// Its processes are frozen until the next request that needs them.
    Paused,
    /// It has no processes. Its disk and the state of its shells are kept until it is started again.
    Stopped,
    /// A sandbox that waits in a pool and belongs to nobody yet.
    PoolIdle,
    /// Its sandbox is being removed.
    Destroying,
    /// A client destroyed it.
    Destroyed,
    /// It ended because its time was over.
    Expired,
    /// Its sandbox ended unexpectedly.
    Crashed,
}

impl SessionStatus {
    pub const ALL: [Self; 9] = [
        Self::Creating,
        Self::Running,
        Self::Paused,
        Self::Stopped,
        Self::PoolIdle,
        Self::Destroying,
        Self::Destroyed,
        Self::Expired,
        Self::Crashed,
    ];

    /// The name that the wire uses.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Creating => "creating",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Stopped => "stopped",
            Self::PoolIdle => "pool_idle",
            Self::Destroying => "destroying",
            Self::Destroyed => "destroyed",
            Self::Expired => "expired",
            Self::Crashed => "crashed",
        }
    }
}

/// Where a session's sandbox came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum AcquireSource {
    /// From a pool, where it was ready.
    Pool,
    /// Made for this session.
    Cold,
}

/// A session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct SessionView {
    /// The session's id.
    pub id: SessionId,
    /// The name that it was created with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<SessionName>,
    /// The image that it was created from.
    pub image: String,
    /// The runtime that made its sandbox.
    pub runtime: RuntimeName,
    /// The stage of its life.
    pub status: SessionStatus,
    /// The directory of the shell `main` after the last command that ended there.
    pub cwd: String,
    /// The name of the key that it was created with.
    #[serde(default = "KeyName::first")]
    pub owner: KeyName,
    /// The workspace that is mounted at `/workspace`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_id: Option<WorkspaceId>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its limits.
    pub resources: ResourcesView,
    /// The network that its sandbox has.
    pub network: NetworkSpec,
    /// Whether its root file system is writable.
    pub writable_root: bool,
    /// The user that its commands run as.
    #[serde(default)]
    pub user: SessionUser,
    /// The profiles that it was created with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub profiles: Vec<Profile>,
    /// Where its sandbox came from.
    pub acquire_source: AcquireSource,
    /// When it was created. All times are RFC 3339 in UTC with milliseconds.
    pub created_at: String,
    /// When it expires, if there is no activity until then. A stopped session does not expire; its time begins when it is started.
    pub expires_at: String,
    /// When it was last used.
    pub last_activity: String,
    /// Why it ended, if `status` is `crashed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What a session uses now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct StatsView {
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// The memory limit in bytes; absent if none is enforced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_limit: Option<u64>,
    /// Processor time since the sandbox started, in microseconds.
    pub cpu_usage_usec: u64,
    /// Processes and threads.
    pub pids: u64,
    /// Bytes on the sandbox's disk; absent if the runtime cannot tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_bytes: Option<u64>,
}

/// The reply to a call that has nothing else to say.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct OkView {
    /// Always true: a failure is an error body.
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
