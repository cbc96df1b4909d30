//! What a runner says of itself.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct HealthView {
    /// `ok`, or `draining` once the runner was told to end.
    pub status: String,
    pub version: String,
    pub pid: u32,
    pub uptime_ms: u64,
    pub separation: Separation,
    pub shells: usize,
    pub execs: usize,
    /// Whether it has become somebody's, by `/v1/claim`.
    #[serde(default)]
    pub claimed: bool,
}

/// What stands between the runner and the commands it runs, as it is and not as it was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct Separation {
    pub runner_uid: u32,
    pub command_uid: u32,
    pub command_gid: u32,
    /// Commands run as another user than the runner.
    pub separate_user: bool,
    pub no_new_privs: bool,
}
