//! Asking for a command, talking to it while it runs, and listing what ran.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use super::ExecOutcome;
use crate::{ErrorBody, ErrorCode, ExecId, ShellName};

/// How a command's output reaches the client, and what it has for standard input.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum StreamMode {
    /// Standard output and error in one pipe, in the order they were written; standard input is empty or `stdin`.
    #[default]
    Merged,
    /// Standard output and error in two pipes, kept apart.
    Split,
    /// The shell's terminal: the program sees one, and reads what `input` sends.
    Tty,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ExecRequest {
    /// Bash source, of any number of lines. No NUL byte.
    pub cmd: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shell: Option<ShellName>,
    /// Made by the runner where it is left out. A repeat of a known id is refused with CONFLICT: reattach instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exec_id: Option<ExecId>,
    #[serde(default)]
    pub streams: StreamMode,
    /// What the command reads on standard input; in `tty`, what is typed once it has begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin_base64: Option<String>,
    /// Variables for this command alone.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// The directory this command starts in. The shell goes back afterwards, unless the command itself went elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// From the moment the command begins, not from when it was queued. Left out: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// Of more output than so many bytes only the first half of them is sent, and at the end a gap and the last half: for a
    /// client that would throw the rest away. `MAX_ENDS_BYTES` at most. Left out: everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends_bytes: Option<u64>,
}

/// The most that `ends_bytes` can be: the runner has to keep half of it until the end.
pub const MAX_ENDS_BYTES: u64 = 4 << 20;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RunRequest {
    /// The program and its arguments; the program is looked up in `PATH`.
    pub argv: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exec_id: Option<ExecId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin_base64: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

/// Bytes typed at a shell's terminal.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct InputRequest {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shell: Option<ShellName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_base64: Option<String>,
}

/// A signal to the foreground program of a shell, or to one exec or run. Neither named: the shell `main`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SignalRequest {
    /// `INT`, `SIGINT` or a number.
    pub signal: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shell: Option<ShellName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exec_id: Option<ExecId>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ResizeRequest {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shell: Option<ShellName>,
    pub cols: u16,
    pub rows: u16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ExecState {
    Queued,
    Running,
    Ended,
}

/// One exec or run as a listing shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct ExecView {
    pub exec_id: ExecId,
    /// Absent for a run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shell: Option<ShellName>,
    pub state: ExecState,
    /// All bytes so far, late output included.
    pub output_bytes: u64,
    /// The first byte that can still be replayed.
    pub first_offset: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<ExecOutcome>,
}

/// The bytes of a field that may come as text or, under a second name, as base64. Both at once is a mistake.
pub fn decode_payload(name: &str, text: Option<String>, base64: Option<String>) -> Result<Option<Vec<u8>>, ErrorBody> {
    match (text, base64) {
        (None, None) => Ok(None),
        (Some(text), None) => Ok(Some(text.into_bytes())),
        (None, Some(encoded)) => STANDARD
            .decode(encoded)
            .map(Some)
            .map_err(|e| ErrorBody::new(ErrorCode::InvalidRequest, format!("{name}_base64 is not valid base64: {e}"))),
        (Some(_), Some(_)) => {
            Err(ErrorBody::new(ErrorCode::InvalidRequest, format!("give {name} or {name}_base64, not both")))
        }
    }
}
