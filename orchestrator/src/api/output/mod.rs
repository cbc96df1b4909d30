//! What commands print, on its way to a client: kept within bounds (`collector`), cut between characters (`splitter`), and
//! readable where it was meant for a terminal (`ansi`). All of it is pure.

mod ansi;
mod collector;
mod splitter;

pub use collector::{Collector, Rendered, Rendering};
pub use splitter::{Piece, Splitter};
