//! The shells of a session.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{ExecId, ShellName};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ShellKind {
    /// Runs execs, one at a time.
    #[default]
    Exec,
    /// A plain interactive bash with prompt and line editing, for a person who attaches; takes no execs.
    Terminal,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct OpenShellRequest {
    /// Made by the runner where it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<ShellName>,
    #[serde(default)]
    pub kind: ShellKind,
    /// Begin with a copy of this shell's state: directory, variables, functions, aliases, options.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<ShellName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cols: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<u16>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ShellState {
    Starting,
    Idle,
    Busy,
    /// It could not be started; the next exec tries again.
    Down,
}

/// How a terminal ended by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct ShellEndView {
    /// 128+n where bash was killed by signal n.
    pub exit_code: i32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct ShellView {
    pub name: ShellName,
    pub kind: ShellKind,
    pub state: ShellState,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<i32>,
    pub cwd: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exec_id: Option<ExecId>,
    pub queued: usize,
    /// How often it died or was replaced.
    pub restarts: u64,
    pub cols: u16,
    pub rows: u16,
}
