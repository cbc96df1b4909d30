//! What a command printed: kept in a bounded log with absolute offsets, filled by pumps, read by followers.

mod log;
mod pump;

pub use log::{Budget, Chunk, Follower, OutputLog};
pub use pump::Pump;
