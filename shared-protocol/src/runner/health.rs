//! The health of a runner.

use serde::{Deserialize, Serialize};

/// The state of a runner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct HealthView {
    /// `ok`, or `draining` after the runner was told to stop.
    pub status: String,
    /// The runner's version.
    pub version: String,
    /// The runner's process id in its own pid namespace: 1 in a sandbox.
    pub pid: u32,
    /// How long it has been running, in milliseconds.
    pub uptime_ms: u64,
    /// What separates the runner from the commands that it runs.
    pub separation: Separation,
    /// How many shells exist.
    pub shells: usize,
    /// How many commands and runs are known, ended ones included.
    pub execs: usize,
    /// Whether a session has claimed the sandbox through `/v1/claim`.
    #[serde(default)]
    pub claimed: bool,
    /// Whether the runner takes connections of programs for the daemon to carry (`/v1/network/accept`).
    #[serde(default)]
    pub network_proxy: bool,
    /// Whether the runner can hold its processes and copy its disk (`/v1/hold`, `/v1/disk`).
    #[serde(default)]
    pub copies_disk: bool,
}

/// What separates the runner from the commands that it runs, as measured and not as requested.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct Separation {
    /// The user id of the runner.
    pub runner_uid: u32,
    /// The user id of commands, as the runner sees it. Commands that are root have a user namespace of their own and see 0.
    pub command_uid: u32,
    /// The group id of commands.
    pub command_gid: u32,
    /// Whether commands run as a different user than the runner.
    pub separate_user: bool,
    /// Whether commands are denied new privileges, as by setuid programs.
    pub no_new_privs: bool,
}
