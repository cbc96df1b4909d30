//! Programs that talk to the daemon: the commands of `cove`, the holders of several keys, and the client of another project.

mod commands;
mod keys;
mod sandkasten;
