//! The wire types between the orchestrator and the runner: HTTP/1.1 on a Unix socket, one JSON document per request, and
//! streaming responses with one JSON object per line (NDJSON).

mod claim;
mod exec;
mod files;
mod frame;
mod gather;
mod health;
mod ports;
mod rules;
mod shell;
mod state;
mod watch;

pub use claim::{ClaimRequest, MAX_ENV_BYTES, MAX_ENV_VALUE_BYTES};
pub use exec::{
    ExecRequest, ExecState, ExecView, InputRequest, MAX_ENDS_BYTES, MAX_PAGE_EXECS, MORE_HEADER, ResizeRequest,
    RunRequest, SignalRequest, StdinView, StreamMode, decode_payload,
};
pub use files::{FileKind, FileView, ListView, WroteView};
pub use frame::{
    ExecOutcome, Frame, FrameError, MAX_FRAME_BYTES, OutcomeKind, Payload, Stream, encode_output, parse_frame,
};
pub use gather::{
    GatherItem, GatherLine, MAX_GATHER_BODY_BYTES, MAX_GATHER_DATA_BYTES, MAX_GATHER_ENTRIES, MAX_GATHER_ITEMS,
    MAX_GATHER_LINE_BYTES,
};
pub use health::{HealthView, Separation};
pub use ports::{
    FRAME_HEADER_BYTES, MAX_LISTED_PORTS, MAX_PROGRAM_BYTES, PortList, PortView, RESERVED_PORTS, TCP_PROTOCOL,
};
pub use rules::{
    MAX_ARG_BYTES, MAX_ARGV_BYTES, MAX_PATH_BYTES, MAX_TERMINAL_SIDE, check_page_limit, check_path, check_size,
    check_variables,
};
pub use shell::{OpenShellRequest, ShellEndView, ShellKind, ShellState, ShellView};
pub use state::{
    MAX_SANDBOX_STATE_BYTES, MAX_SAVED_SHELLS, MAX_SHELL_STATE_BYTES, MAX_SHELL_STATES_BYTES, RestoreRequest,
    SandboxState, SavedShell, encode_shell_text,
};
pub use watch::{ChangeKind, FileChange, MAX_WATCH_LINE_BYTES, WatchEnd, WatchFrame};

#[cfg(test)]
mod schema_test;
