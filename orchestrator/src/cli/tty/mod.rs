//! The caller's terminal as a window into a session.
//!
//! ```text
//!  keyboard ──► escapes ──► WebSocket ──► the shell's terminal
//!  screen   ◄────────────── WebSocket ◄──
//! ```
//!
//! `raw` owns the terminal's modes and puts them back however this ends; `window` knows its size; `escape` decides what of the
//! typed bytes is meant for us; `bridge` does the carrying.

mod bridge;
mod escape;
mod keyboard;
mod raw;
mod screen;
mod window;

pub use bridge::{Ended, Typing, attach, drive_program};
pub use screen::Screen;
pub use window::size;

use std::io::{self, IsTerminal};

use super::exit::Failure;

/// A terminal on both ends, or no sense in trying.
pub fn require() -> Result<(), Failure> {
    if is_terminal() {
        return Ok(());
    }
    Err(Failure::usage(
        "this needs a terminal on standard input and output; for scripts there are `cove exec` and `cove run`",
    ))
}

pub fn is_terminal() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}
