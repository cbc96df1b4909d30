//! Commands and runs: the requests that start them, the requests to them while they run, and the listing.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use super::ExecOutcome;
use crate::{ErrorBody, ErrorCode, ExecId, ShellName};

/// How a command's output reaches the client, and where its standard input comes from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum StreamMode {
    /// Standard output and standard error share one pipe, so their order is kept. Standard input is `stdin`, or empty.
    #[default]
    Merged,
    /// Standard output and standard error have a pipe each. Standard input is `stdin`, or empty.
    Split,
    /// All three are the shell's terminal. The program reads what `input` sends.
    Tty,
}

/// A command to run in a shell.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ExecRequest {
    /// Bash source code of one or more lines, without NUL bytes.
    pub cmd: String,
    /// The shell that runs the command. The default is `main`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shell: Option<ShellName>,
    /// The id of the command. If it is absent, the runner makes one. A repeated id is refused with CONFLICT: reattach instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exec_id: Option<ExecId>,
    /// How standard output and standard error reach the client.
    #[serde(default)]
    pub streams: StreamMode,
    /// What the command reads on standard input, as text. With `streams: tty`, what is typed once the command has begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin: Option<String>,
    /// The same as `stdin`, in base64. Give one of the two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin_base64: Option<String>,
    /// Environment variables for this command only.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// The directory in which this command starts. The shell returns to its own directory afterwards, unless the command changes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Time limit in milliseconds, counted from the moment the command begins, not from when it was queued. Absent means no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// How long the command may wait in the queue behind another one, in milliseconds. After that it never runs, and its stream ends
    /// with the error SHELL_BUSY, whose details name the other command. Absent means as long as it takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_timeout_ms: Option<u64>,
    /// Limits the output that is sent, for a client that would discard the middle: from more output than this many bytes, the
    /// runner sends the first half of them and, at the end, a gap and the last half. At most `MAX_ENDS_BYTES`. Absent means
    /// everything is sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends_bytes: Option<u64>,
}

/// The largest `ends_bytes`: the runner keeps half of that many bytes in memory until the command ends.
pub const MAX_ENDS_BYTES: u64 = 4 << 20;

/// A program to run beside the shells.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RunRequest {
    /// The program, looked up in `PATH`, and its arguments.
    pub argv: Vec<String>,
    /// The id of the run. If it is absent, the runner makes one. A repeated id is refused with CONFLICT.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exec_id: Option<ExecId>,
    /// What the program reads on standard input, as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin: Option<String>,
    /// The same as `stdin`, in base64. Give one of the two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin_base64: Option<String>,
    /// Keep standard input open: the program reads what `execs/{exec_id}/stdin` sends, until that closes it. Excludes `stdin`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stdin_open: bool,
    /// Environment variables for this program only.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// The directory in which the program starts. The default is the directory in which shells start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Time limit in milliseconds. Absent means no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

/// Bytes to type at a shell's terminal.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct InputRequest {
    /// The shell. The default is `main`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shell: Option<ShellName>,
    /// The input as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
    /// The input in base64. Give one of the two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_base64: Option<String>,
}

/// A signal to the foreground program of a shell, or to one command or run. Without `shell` and `exec_id`, the shell is `main`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SignalRequest {
    /// The signal's name or number, such as `INT`, `SIGINT` or `2`.
    pub signal: String,
    /// The shell whose foreground program gets the signal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shell: Option<ShellName>,
    /// The command or run that gets the signal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exec_id: Option<ExecId>,
}

/// A new size for a shell's terminal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ResizeRequest {
    /// The shell. The default is `main`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shell: Option<ShellName>,
    /// The width in characters.
    pub cols: u16,
    /// The height in lines.
    pub rows: u16,
}

/// The stage of a command or run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ExecState {
    /// It waits for its turn in the shell.
    Queued,
    /// It runs.
    Running,
    /// It has ended.
    Ended,
}

/// A command or run in a listing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct ExecView {
    /// The id of the command or run.
    pub exec_id: ExecId,
    /// The shell that runs the command; absent for a run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shell: Option<ShellName>,
    /// Whether it waits, runs or has ended.
    pub state: ExecState,
    /// The process id of a run's program inside the sandbox; absent for a command, and for a program that could not be started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// How many bytes it has written so far, including output after its end.
    pub output_bytes: u64,
    /// The offset of the first byte that is still kept for replay.
    pub first_offset: u64,
    /// How it ended; absent before that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<ExecOutcome>,
}

/// The most execs in one page of the list.
pub const MAX_PAGE_EXECS: usize = 1000;

/// The header of a page of the list that is not the last one.
pub const MORE_HEADER: &str = "x-cove-more";

/// What a request to a run's open standard input did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct StdinView {
    /// How many bytes of this request were written to the program's standard input.
    pub bytes: u64,
    /// Whether standard input is closed now.
    pub closed: bool,
}

/// Decodes a field that can be given as text or, under a second name, as base64. Giving both is an error.
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
