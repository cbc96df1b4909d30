//! Runs: programs beside the shells. A run has an argv and no shell state, and any number of them can run at once.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::TimeLimit;
use crate::ExecId;
use crate::runner::OutcomeKind;

/// A program to run beside the shells.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ApiRunRequest {
    /// The program, looked up in `PATH`, and its arguments.
    pub argv: Vec<String>,
    /// Environment variables for this program only.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// The directory in which the program starts. The default is `/workspace`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// What the program reads on standard input, as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin: Option<String>,
    /// The same as `stdin`, in base64. Give one of the two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin_base64: Option<String>,
    /// Keep standard input open: the program reads what `runs/{exec_id}/stdin` sends, until that closes it. Excludes `stdin`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stdin_open: bool,
    /// Time limit in milliseconds, counted from the start of the program. If it is 0 or absent, the daemon's default applies;
    /// a detached program has no limit then. `null` asks for no limit. The daemon's maximum, if it has one, takes the place of
    /// "no limit", and a larger number is refused.
    #[serde(default, skip_serializing_if = "TimeLimit::is_unset")]
    #[cfg_attr(any(test, feature = "schema"), schemars(with = "Option<u64>"))]
    pub timeout_ms: TimeLimit,
    /// An id that the client chooses, to be able to reattach after a lost connection. A repeated id is refused with CONFLICT.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exec_id: Option<ExecId>,
    /// How many bytes of each stream the reply holds. From longer output, the reply has the first half and the last half of that
    /// many bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output_bytes: Option<u64>,
    /// Reply at once with 202 and the id. The program keeps running, and its output is at `execs/{exec_id}`.
    #[serde(default)]
    pub detach: bool,
}

/// How a program ended: the data of a stream's `done` event, and a plain reply without its output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct RunDone {
    /// The id of the run.
    pub exec_id: ExecId,
    /// The way in which the program ended.
    pub kind: OutcomeKind,
    /// The exit status: 128+n after signal n, 124 after a timeout, 126 or 127 if the program could not be run.
    pub exit_code: i32,
    /// The signal that killed the program, if `kind` is `signaled`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// How many bytes the program wrote, including those that the reply leaves out.
    pub output_bytes: u64,
    /// Whether the client got less than the whole output.
    pub truncated: bool,
    /// Whether the program reached its time limit.
    pub timed_out: bool,
    /// Whether the kernel killed a process of the sandbox because memory ran out: while this ran, also if it went on itself, or
    /// since the command before it.
    pub oom_killed: bool,
    /// How long the program ran, in milliseconds.
    pub duration_ms: u64,
    /// What programs of the session tried to reach while this ran and were not allowed to, as rules that would allow it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub network_denied: Vec<String>,
    /// The reason, if `kind` is `never_ran` or `lost`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The reply to a run that has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct RunReply {
    #[serde(flatten)]
    pub done: RunDone,
    /// Standard output. Bytes that are not UTF-8 appear as U+FFFD, and `stdout_base64` has the exact bytes.
    pub stdout: String,
    /// Standard error. Bytes that are not UTF-8 appear as U+FFFD, and `stderr_base64` has the exact bytes.
    pub stderr: String,
    /// The exact bytes of `stdout`, present only if `stdout` differs from them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdout_base64: Option<String>,
    /// The exact bytes of `stderr`, present only if `stderr` differs from them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr_base64: Option<String>,
}
