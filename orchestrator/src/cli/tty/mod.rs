//! Connects the caller's terminal to a session.
//!
//! ```text
//!  keyboard ──► escapes ──► WebSocket ──► the shell's terminal
//!  screen   ◄────────────── WebSocket ◄──
//! ```
//!
//! `raw` sets the terminal's modes and restores them, however this ends. `window` knows its size. `escape` finds the keys that are
//! meant for `cove` itself. `screen` restores the screen after a full-screen program. `bridge` moves the bytes.

mod bridge;
mod escape;
mod keyboard;
mod raw;
mod screen;
mod window;

pub use bridge::{AttachEnd, TypingEnd, attach, drive_program};
pub use screen::Screen;
pub use window::size;

use std::io::{self, IsTerminal};

use super::exit::Failure;

/// Refuses to go on without a terminal.
pub fn require() -> Result<(), Failure> {
    if is_terminal() {
        return Ok(());
    }
    Err(Failure::usage(
        "this needs a terminal on standard input and output; in scripts, use `cove exec` or `cove run` without -t",
    ))
}

/// Whether a program can have the terminal without being asked: all that it reads and prints goes there, and this process is in
/// the foreground. A background job that takes the terminal would be stopped.
pub fn is_at_hand() -> bool {
    let is_in_foreground = || nix::unistd::tcgetpgrp(io::stdin()).is_ok_and(|group| group == nix::unistd::getpgrp());
    is_terminal() && io::stderr().is_terminal() && is_in_foreground()
}

pub fn is_terminal() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}
