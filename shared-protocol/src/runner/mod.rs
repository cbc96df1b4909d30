//! What the orchestrator and the runner say to each other: HTTP/1.1 on a Unix socket, one JSON document a request, and
//! a streaming answer as one JSON object a line (NDJSON).

mod claim;
mod exec;
mod files;
mod frame;
mod health;
mod shell;

pub use claim::{ClaimRequest, MAX_ENV_BYTES, MAX_ENV_VALUE_BYTES};
pub use exec::{
    ExecRequest, ExecState, ExecView, InputRequest, MAX_ENDS_BYTES, ResizeRequest, RunRequest, SignalRequest,
    StreamMode, decode_payload,
};
pub use files::{FileKind, FileView, ListView, WroteView};
pub use frame::{
    ExecOutcome, Frame, FrameError, MAX_FRAME_BYTES, OutcomeKind, Payload, Stream, encode_output, parse_frame,
};
pub use health::{HealthView, Separation};
pub use shell::{OpenShellRequest, ShellEndView, ShellKind, ShellState, ShellView};

#[cfg(test)]
mod schema_test;
