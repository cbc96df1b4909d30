//! How sessions start, pause, end, and outlive the daemon.

mod pausing;
mod pools;
mod recovery;
mod sessions;
