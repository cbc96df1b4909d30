//! PID 1 of a Cove sandbox.
//!
//! ```text
//! http → shell | run | files → sys
//! ```
//!
//! One thread, one event loop. State has one owner each: the reaper owns every wait, a driver task owns each shell, an
//! `ExecTable` owns what ran. Handlers ask them by handles; nobody else writes.
//!
//! **Invariants:** `unsafe` only under `sys`; no `wait` outside `reaper` and the plain `init`; no path is opened on behalf of
//! a client in this process (`files` forks); every queue, buffer and wait has a named bound.

pub mod app;
pub mod boot;
pub mod config;
pub mod environment;
pub mod exec;
pub mod files;
pub mod http;
pub mod init;
pub mod log;
pub mod oom;
pub mod output;
pub mod process_limit;
pub mod reaper;
pub mod run;
pub mod shell;
pub mod shutdown;
pub mod signals;
pub mod sys;
