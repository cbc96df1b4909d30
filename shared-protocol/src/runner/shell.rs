//! The shells of a session.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{ExecId, ShellName};

/// The kind of a shell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ShellKind {
    /// Runs commands, one at a time.
    #[default]
    Exec,
    /// An interactive bash with a prompt and line editing, for a person who attaches. It runs no commands of the API.
    Terminal,
}

/// A shell to open.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct OpenShellRequest {
    /// The shell's name. If it is absent, the runner makes one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<ShellName>,
    /// The kind of shell.
    #[serde(default)]
    pub kind: ShellKind,
    /// A shell whose state the new one copies: directory, variables, functions, aliases, options.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<ShellName>,
    /// The directory in which the shell starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Environment variables for this shell.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// The width of its terminal in characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cols: Option<u16>,
    /// The height of its terminal in lines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<u16>,
}

/// The stage of a shell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ShellState {
    /// Bash is starting.
    Starting,
    /// Bash waits for a command.
    Idle,
    /// Bash runs a command.
    Busy,
    /// Bash could not be started. The next command tries again.
    Down,
}

/// How the bash of a terminal ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct ShellEndView {
    /// The exit status: 128+n if signal n killed bash.
    pub exit_code: i32,
}

/// A shell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct ShellView {
    /// The shell's name.
    pub name: ShellName,
    /// The kind of shell.
    pub kind: ShellKind,
    /// Its stage.
    pub state: ShellState,
    /// The process id of its bash in the sandbox; absent while no bash runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<i32>,
    /// Its directory after the last command that ended.
    pub cwd: String,
    /// The command that runs now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exec_id: Option<ExecId>,
    /// How many commands wait.
    pub queued: usize,
    /// How often its bash died or was replaced.
    pub restarts: u64,
    /// The width of its terminal in characters.
    pub cols: u16,
    /// The height of its terminal in lines.
    pub rows: u16,
}
