//! The harness of the end-to-end stories: starts the real runner binary, as a process or as PID 1 of its own pid
//! namespace, or the real daemon ([`daemon`]), and talks to it as a client would.
//!
//! **Invariants:** nothing here knows the runner's insides. A test waits for a condition with a deadline; the one sleep is
//! the poll interval of [`wait_until`]. What a `Runner` started is gone when it is dropped, and every wait has a bound.

mod binary;
mod cgroup;
mod client;
mod launch;
mod program;
mod request;
mod runner;
mod stream;
mod wait;

pub mod daemon;
pub mod procfs;

pub use binary::runner_binary;
pub use cgroup::MemoryCgroup;
pub use client::{Attached, Client, Refused, Reply};
pub use program::{Ended, Program};
pub use request::{Ask, ask, run};
pub use runner::{Builder, Runner, SANDBOX_USER};
pub use stream::{Finished, FrameStream};
pub use wait::{DEADLINE, LONG_DEADLINE, wait_until};

/// Whether the tests may do what only root can: switch users, make namespaces and cgroups.
pub fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// Says that something was not tested, and why: a skip must not look like a pass. Not by `println!`, which the test runner keeps to
/// itself while a test passes.
pub fn skipped(name: &str, why: &str) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stdout(), "skipped: {name}: {why}");
}

/// Whether the long versions were asked for (`scripts/test --soak`).
pub fn is_soak() -> bool {
    std::env::var_os("COVE_SOAK").is_some_and(|v| v == "1")
}
