//! The wire types of both protocols: client to orchestrator (`api`), orchestrator to runner (`runner`), and what both use
//! (`id`, `error`, `query`).
//!
//! **Invariant:** nothing in this crate does I/O, starts a process or reads the clock. A change to the runner's protocol changes
//! `schema/runner.json`, and the test beside that file fails until the change is confirmed.

pub mod api;
pub mod error;
#[cfg(any(test, fuzzing))]
#[path = "fuzz_test.rs"]
pub mod fuzz;
pub mod id;
pub mod query;
pub mod runner;

pub use error::{ErrorBody, ErrorCode};
pub use id::{
    ExecId, InvalidId, KeyName, RuntimeName, SecretName, SessionId, SessionName, ShellName, SnapshotId, WorkspaceId,
};

/// The user id, and the group id, that commands run as inside every sandbox. The user's name is `sandbox`.
pub const SANDBOX_USER: u32 = 1000;
