//! Programs that talk to the daemon: the commands of `cove`, the holders of several keys, and the client of another project.

mod commands;
mod completion;
mod docker_words;
mod embedded;
mod keys;
mod sandkasten;
mod tls;
