//! Commands in a shell: asked for, answered at once, streamed, or detached.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::runner::{ExecState, OutcomeKind, Stream, StreamMode};
use crate::{ExecId, ShellName};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ApiExecRequest {
    /// Bash source, of any number of lines.
    pub cmd: String,
    /// From the moment the command begins. 0 or left out: the daemon's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// Terminal output as it came. Otherwise escape sequences are taken out and line ends are `\n` in the `output` of a
    /// `tty` command; the other modes are never changed.
    #[serde(default)]
    pub raw_output: bool,
    #[serde(default)]
    pub streams: StreamMode,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin_base64: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shell: Option<ShellName>,
    /// Chosen by the client so that it can reattach after a lost connection; a repeat is refused with CONFLICT.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exec_id: Option<ExecId>,
    /// How much of the output the reply carries: a head and a tail of half of it each. Streams are not cut.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output_bytes: Option<u64>,
    /// Answer 202 with the id at once; the command goes on, and is read at `execs/{exec_id}`.
    #[serde(default)]
    pub detach: bool,
}

/// How a command ended: the `done` event of a stream, and all but the output of a plain reply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct ExecDone {
    pub exec_id: ExecId,
    /// Exited, killed, timed out, never ran, lost.
    pub kind: OutcomeKind,
    pub exit_code: i32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    pub cwd: String,
    /// All that the command wrote, whether or not the reply carries it.
    pub output_bytes: u64,
    pub truncated: bool,
    pub timed_out: bool,
    pub shell_restarted: bool,
    pub oom_killed: bool,
    pub awaiting_input: bool,
    pub duration_ms: u64,
    /// For `never_ran` and `lost`: why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct ExecReply {
    #[serde(flatten)]
    pub done: ExecDone,
    /// Everything in order; where it is `truncated`, a head and a tail with a line between them that says how many bytes
    /// were left out. Bytes that are not UTF-8 appear as U+FFFD, and `output_base64` has them exactly.
    pub output: String,
    /// Only where `output` is not exact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_base64: Option<String>,
    /// With `streams: split`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdout: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr: Option<String>,
    /// How many bytes the head and tail leave out between them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub omitted_bytes: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's skip_serializing_if passes a reference")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// The reply to a detached command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct DetachedView {
    pub exec_id: ExecId,
}

/// `event: chunk` of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct ChunkEvent {
    /// Text; bytes that are no UTF-8 appear as U+FFFD, and `chunk_base64` has them exactly.
    pub chunk: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunk_base64: Option<String>,
    pub stream: Stream,
    /// Of the chunk's first byte. `offset` plus its length in bytes is where to reattach; it is also the event's `id`.
    pub offset: u64,
    /// Unix time in milliseconds, when the daemon had it.
    pub timestamp: u64,
}

/// `event: error` of a stream: it could not go on. The command may have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct StreamErrorEvent {
    pub error: String,
    pub error_code: crate::ErrorCode,
}

/// One line of an NDJSON stream: the events of the SSE form, with their name in `event`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum AttachedFrame {
    /// The command has its id and its place in the queue.
    Started {
        exec_id: ExecId,
    },
    Chunk(ChunkEvent),
    /// Bytes that are no longer kept: the reader was too slow, or came too late.
    Gap {
        offset: u64,
        bytes: u64,
    },
    AwaitingInput,
    Done(ExecDone),
    Error(StreamErrorEvent),
}

/// One of the recent execs and runs of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct ApiExecView {
    pub exec_id: ExecId,
    /// Absent for a run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shell: Option<ShellName>,
    pub state: ExecState,
    pub output_bytes: u64,
    /// The first byte that can still be replayed.
    pub first_offset: u64,
    /// Once it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub done: Option<ExecDone>,
}
