//! How sessions start, pause, end, and outlive the daemon.

mod launchers;
mod pausing;
mod pools;
mod recovery;
mod sessions;
