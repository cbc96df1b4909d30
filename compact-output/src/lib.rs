//! Turns the terminal output of a command into text made for a language model's context. Pure: bytes in, text out.
//!
//! ```text
//! bytes ─▶ terminal ─▶ view ─▶ failures ──────────────┐
//!          what the    of the   summary ───────────────┼─▶ budget ─▶ Compact
//!          screen      program  the rest ─▶ frames, fold ┘
//!          shows
//! ```
//!
//! A view knows the output of a program: it moves failures to the front and turns successes into counts. A line that a view does not
//! understand goes unchanged to the generic filters. Each filter's file says what it promises and what it refuses.
//!
//! **Invariant:** nothing in this crate does I/O or reads the clock. A compactor holds less than `MAX_HELD_BYTES`, whatever it is given,
//! and the result does not depend on how the bytes were split.

mod budget;
mod command;
mod compactor;
mod fold;
mod frames;
mod out;
mod place;
mod row;
mod section;
mod stamp;
mod terminal;
mod tokens;
mod view;
mod words;

pub use command::CommandHint;
pub use compactor::{Compact, Compactor, MAX_HELD_BYTES, Options};
pub use tokens::estimate_tokens;
