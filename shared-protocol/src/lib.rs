//! The wire types of both lines: client to orchestrator (`api`), orchestrator to runner (`runner`), and what the two share
//! (`id`, `error`).
//!
//! **Invariant:** nothing here does I/O, spawns, or knows the time. A change that alters the wire alters
//! `schema/runner.json`, and the test beside it says so before a user does.

pub mod api;
pub mod error;
pub mod id;
pub mod runner;

pub use error::{ErrorBody, ErrorCode};
pub use id::{ExecId, InvalidId, RuntimeName, SessionId, ShellName, WorkspaceId};
