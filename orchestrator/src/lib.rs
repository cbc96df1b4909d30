//! The orchestrator, program `cove`: api → session → runtime | store, and the command line that speaks to it.

pub mod api;
pub mod app;
pub mod cli;
pub mod client;
pub mod config;
pub mod doctor;
pub mod failpoint;
pub mod hash;
pub mod image;
pub mod metrics;
pub mod pool;
pub mod runner_client;
pub mod runtime;
pub mod server;
pub mod session;
pub mod store;
pub mod sys;
pub mod workspace;

/// The runner that every sandbox gets which has none of its own.
pub static EMBEDDED_RUNNER: &[u8] = include_bytes!(env!("COVE_EMBEDDED_RUNNER"));
/// The libc it is linked with, `musl` or `gnu`.
pub const EMBEDDED_RUNNER_LIBC: &str = env!("COVE_EMBEDDED_RUNNER_LIBC");

/// The whole program, where this process is one that the daemon or a command started to do one thing apart from itself;
/// otherwise `None`. Before any thread is made.
pub fn helper_main() -> Option<std::process::ExitCode> {
    runtime::local::launcher_main().or_else(image::unpack_main)
}
