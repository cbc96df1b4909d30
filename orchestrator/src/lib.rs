//! The orchestrator, program `cove`: api → session → runtime | store, and the command line that speaks to it.

pub mod cli;
pub mod client;
pub mod runtime;

/// The runner that every sandbox gets which has none of its own.
pub static EMBEDDED_RUNNER: &[u8] = include_bytes!(env!("COVE_EMBEDDED_RUNNER"));
/// The libc it is linked with, `musl` or `gnu`.
pub const EMBEDDED_RUNNER_LIBC: &str = env!("COVE_EMBEDDED_RUNNER_LIBC");
