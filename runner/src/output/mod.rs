//! What a command printed: kept in a bounded log with absolute offsets, filled by pumps, read by followers.

mod ends;
mod log;
mod pump;

pub use ends::{Ends, Step};
pub use log::{Budget, Chunk, Follower, OutputLog};
pub use pump::Pump;
