//! Prepares the output of commands for clients: limits it (`collector`), cuts it between characters (`splitter`), and makes
//! terminal output readable (`ansi`). All of it is pure.

mod ansi;
mod collector;
mod splitter;

pub use collector::{Collector, Rendered, Rendering};
pub use splitter::{Piece, Splitter};
