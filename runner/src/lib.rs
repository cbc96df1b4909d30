//! The runner: PID 1 of a Cove sandbox.
//!
//! ```text
//! boot → http → shell | run | files | ports | network | proc_files | hold → exec | output | reaper | environment → config | log | sys
//! ```
//!
//! The runner has one thread and one event loop. Each state has one owner: the reaper owns every wait, a driver task owns
//! each shell, and an `ExecTable` owns the execs. Handlers ask the owners through handles; no other code changes the state.
//!
//! **Invariants:** a module uses only modules below it (`tests/tests/layers` checks it); `unsafe` only under `sys`; no `wait`
//! outside `reaper` and `init`; this process opens no path on behalf of a client (`files` forks); every queue, buffer and
//! wait has a named bound.

pub mod boot;
pub mod config;
pub mod environment;
pub mod exec;
pub mod file_kind;
pub mod files;
pub mod hold;
pub mod http;
pub mod init;
pub mod log;
pub mod network;
pub mod oom;
pub mod open_stdin;
pub mod output;
pub mod ports;
pub mod proc_files;
pub mod process_limit;
pub mod reaper;
pub mod run;
pub mod shell;
pub mod shutdown;
pub mod signals;
pub mod sys;
mod text;
