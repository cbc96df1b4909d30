//! Commands in a shell: the request, the plain reply, the events of a stream, and the listing.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::TimeLimit;
use crate::runner::{ExecState, OutcomeKind, Stream, StreamMode};
use crate::{ExecId, ShellName};

/// The fewest tokens that a compact view can be limited to: less has no room for what failed.
pub const MIN_COMPACT_TOKENS: u64 = 128;

/// What a reply shows of the output.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum OutputView {
    /// The output as it is.
    #[default]
    Full,
    /// Text made for the context of a language model: what failed comes first, progress bars are resolved, and lines that are alike
    /// are folded.
    Compact,
}

impl OutputView {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's skip_serializing_if passes a reference")]
    fn is_full(&self) -> bool {
        *self == Self::Full
    }
}

/// A command to run in a persistent shell.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ApiExecRequest {
    /// Bash source code of one or more lines.
    pub cmd: String,
    /// Time limit in milliseconds, counted from the moment the command begins. If it is 0 or absent, the daemon's default applies;
    /// a detached command has no limit then. `null` asks for no limit. The daemon's maximum, if it has one, takes the place of
    /// "no limit", and a larger number is refused.
    #[serde(default, skip_serializing_if = "TimeLimit::is_unset")]
    #[cfg_attr(any(test, feature = "schema"), schemars(with = "Option<u64>"))]
    pub timeout_ms: TimeLimit,
    /// How long the command may wait in the shell's queue behind another one, in milliseconds; 0 means not at all. After that it is
    /// taken out of the queue and never runs, and the answer is SHELL_BUSY with `running_exec_id` in `details`. If it is absent,
    /// the command waits as long as it takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_timeout_ms: Option<u64>,
    /// Keep the terminal output of a `tty` command unchanged. By default, `output` has escape sequences removed and line ends
    /// turned into `\n`. Output of the other stream modes is never changed.
    #[serde(default)]
    pub raw_output: bool,
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
    /// The shell that runs the command. The default is `main`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shell: Option<ShellName>,
    /// An id that the client chooses, to be able to reattach after a lost connection. A repeated id is refused with CONFLICT.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exec_id: Option<ExecId>,
    /// How many bytes of output the reply holds. From longer output, the reply has the first half and the last half of that many
    /// bytes. Streams are not shortened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output_bytes: Option<u64>,
    /// Reply at once with 202 and the id. The command keeps running, and its output is at `execs/{exec_id}`.
    #[serde(default)]
    pub detach: bool,
    /// What the reply shows of the output. `compact` is for replies: not with a stream, `detach`, `raw_output` or `streams: split`.
    #[serde(default, skip_serializing_if = "OutputView::is_full")]
    pub view: OutputView,
    /// The most tokens of a compact view, by estimate; at least 128.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
}

/// What a compact view left out, and where the whole output is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct CompactFacts {
    /// How many bytes the command printed.
    pub original_bytes: u64,
    /// How many tokens that is, by estimate.
    pub original_tokens: u64,
    /// How many tokens `output` has, by estimate.
    pub tokens: u64,
    /// Whether `max_tokens` or `max_output_bytes` left out lines that the view would have kept.
    pub is_cut: bool,
    /// The path of the whole output. The last 4 MiB of it are kept, for the last 1,000 commands.
    pub whole_output: String,
}

/// How a command ended: the data of a stream's `done` event, and a plain reply without its output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct ExecDone {
    /// The id of the command.
    pub exec_id: ExecId,
    /// The way in which the command ended.
    pub kind: OutcomeKind,
    /// The exit status as bash shows it in `$?`: 128+n after signal n, 124 after a timeout, 126 or 127 if nothing could be run.
    pub exit_code: i32,
    /// The signal that killed the shell, if `kind` is `signaled`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// The shell's directory after the command.
    pub cwd: String,
    /// How many bytes the command wrote, including those that the reply leaves out.
    pub output_bytes: u64,
    /// Whether the client got less than the whole output.
    pub truncated: bool,
    /// Whether the command reached its time limit.
    pub timed_out: bool,
    /// Whether the shell died or was replaced during or before this command. Its state was restored.
    pub shell_restarted: bool,
    /// Whether the kernel killed a process of the sandbox because memory ran out: while this ran, also if it went on itself, or
    /// since the command before it.
    pub oom_killed: bool,
    /// Whether a foreground program was waiting for input at the terminal when the command ended.
    pub awaiting_input: bool,
    /// How long the command ran, in milliseconds.
    pub duration_ms: u64,
    /// What programs of the session tried to reach while the command ran and were not allowed to, as rules that would allow it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub network_denied: Vec<String>,
    /// The reason, if `kind` is `never_ran` or `lost`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The reply to a command that has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct ExecReply {
    #[serde(flatten)]
    pub done: ExecDone,
    /// The output of all streams in order. If `truncated` is true, it is the first and the last part, with a line between them
    /// that says how many bytes are left out. Bytes that are not UTF-8 appear as U+FFFD, and `output_base64` has the exact bytes.
    pub output: String,
    /// The exact bytes of `output`, present only if `output` differs from them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_base64: Option<String>,
    /// Standard output alone, with `streams: split`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdout: Option<String>,
    /// Standard error alone, with `streams: split`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr: Option<String>,
    /// How many bytes `output` leaves out.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub omitted_bytes: u64,
    /// What the view left out, with `view: compact`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compact: Option<CompactFacts>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's skip_serializing_if passes a reference")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// The reply to a detached command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct DetachedView {
    /// The id at which to find the command: `execs/{exec_id}`.
    pub exec_id: ExecId,
}

/// A piece of output: the data of a stream's `chunk` event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct ChunkEvent {
    /// The output as text. Bytes that are not UTF-8 appear as U+FFFD, and `chunk_base64` has the exact bytes.
    pub chunk: String,
    /// The exact bytes, present only if `chunk` differs from them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunk_base64: Option<String>,
    /// The stream that the bytes came from.
    pub stream: Stream,
    /// The offset of the first byte. To reattach after this chunk, use `offset` plus the length in bytes, which is also the event's
    /// `id`.
    pub offset: u64,
    /// When the command printed the bytes: Unix time in milliseconds, of the moment in which they were read from it. Output that is
    /// read again later has the same time.
    pub timestamp: u64,
}

/// The data of a stream's `error` event: the stream cannot continue. The command may still be running.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct StreamErrorEvent {
    /// What went wrong.
    pub error: String,
    /// The kind of error.
    pub error_code: crate::ErrorCode,
    /// Facts for programs, as in the body of an error. The fields depend on `error_code`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<serde_json::Value>,
}

/// One line of an NDJSON stream. It holds the same events as the SSE form, with the event's name in `event`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum AttachedFrame {
    /// The command is accepted and has its place in the shell's queue.
    Started {
        /// The id of the command.
        exec_id: ExecId,
        /// The process id of a run's program inside the sandbox.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pid: Option<u32>,
    },
    /// The command waits in the shell's queue, because another one runs.
    Queued {
        /// The id of the command.
        exec_id: ExecId,
        /// The id of the command that runs, or is about to.
        running_exec_id: ExecId,
    },
    /// A command that waited in the queue has begun.
    Running {
        /// The id of the command.
        exec_id: ExecId,
    },
    /// A piece of output.
    Chunk(ChunkEvent),
    /// Output that is no longer kept, because the reader was too slow or came too late.
    Gap {
        /// The offset of the first missing byte.
        offset: u64,
        /// How many bytes are missing.
        bytes: u64,
    },
    /// A foreground program is waiting for input at the terminal.
    AwaitingInput,
    /// The command has ended. This is the last event.
    Done(ExecDone),
    /// The stream cannot continue. This is the last event.
    Error(StreamErrorEvent),
}

/// One of the recent execs and runs of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct ApiExecView {
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
    /// How many bytes it has written so far.
    pub output_bytes: u64,
    /// The offset of the first byte that is still kept for replay.
    pub first_offset: u64,
    /// How it ended; absent before that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub done: Option<ExecDone>,
}
