//! The harness of the end-to-end stories: it starts the real runner binary, as a process or as PID 1 of its own pid
//! namespace, or the real daemon ([`daemon`]), and talks to it as a client would.
//!
//! **Invariants:** nothing here knows the runner's internals. A test waits for a condition with a deadline; the only sleep
//! is the poll interval of [`wait_until`]. Dropping a `Runner` ends everything that it started, and every wait has a bound.

mod binary;
mod browser;
mod cgroup;
mod client;
mod launch;
mod on_terminal;
mod program;
mod request;
mod runner;
mod stream;
mod wait;

pub mod daemon;
pub mod http;
pub mod procfs;

pub use binary::runner_binary;
pub use browser::Browser;
pub use cgroup::MemoryCgroup;
pub use client::{Attached, Client, Refused};
pub use on_terminal::OnTerminal;
pub use program::{Ended, Program};
pub use request::{Ask, ask, run};
pub use runner::{Builder, Runner, SANDBOX_USER};
pub use stream::{Finished, FrameStream};
pub use wait::{DEADLINE, LONG_DEADLINE, wait_until};

/// Whether the tests run as root, and so can switch users and make namespaces and cgroups.
pub fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// Prints that something was not tested, and why: a skip must not look like a pass. It does not use `println!`, which the
/// test runner hides while a test passes.
pub fn skipped(name: &str, why: &str) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stdout(), "skipped: {name}: {why}");
}

/// Whether the long versions of stories were requested (`scripts/test --soak`).
pub fn is_soak() -> bool {
    std::env::var_os("COVE_SOAK").is_some_and(|v| v == "1")
}
