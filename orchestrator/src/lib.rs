//! The orchestrator, program `cove`: the daemon (api → service → session → runtime | store) and the command line that talks
//! to it.

pub mod api;
pub mod app;
pub mod cli;
pub mod client;
pub mod config;
pub mod disk;
pub mod doctor;
pub mod failpoint;
pub mod hash;
pub mod image;
mod image_store;
pub mod key;
pub mod mcp;
pub mod metrics;
pub mod network;
pub mod owner;
pub mod relay;
pub mod runner_address;
pub mod runner_client;
pub mod runtime;
pub mod secret;
pub mod server;
pub mod service;
pub mod session;
pub mod spec;
pub mod store;
pub mod sys;
pub mod workspace;

/// The runner binary that goes into every sandbox whose image has no runner of its own.
pub static EMBEDDED_RUNNER: &[u8] = include_bytes!(env!("COVE_EMBEDDED_RUNNER"));
/// The libc that the embedded runner is linked with: `musl` or `gnu`.
pub const EMBEDDED_RUNNER_LIBC: &str = env!("COVE_EMBEDDED_RUNNER_LIBC");

/// Runs the whole program if the daemon or a command started this process as a helper; otherwise returns `None`. Call it
/// before any thread exists.
pub fn helper_main() -> Option<std::process::ExitCode> {
    runtime::local::launcher_main().or_else(runtime::netns::main).or_else(image::unpack_main).or_else(image::pack_main)
}
