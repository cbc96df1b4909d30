//! The output of commands: a bounded log with absolute offsets, filled by pumps and read by followers.

mod head_tail;
mod log;
mod pump;
mod ring;

pub use head_tail::{HeadTail, NextPart};
pub use log::{Chunk, Follower, OutputLog};
pub use pump::Pump;
pub use ring::Budget;
