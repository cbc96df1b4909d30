//! Programs that talk to the daemon: the commands of `cove`, the holders of several keys, clients of the Model Context Protocol, and the
//! client of another project.

mod commands;
mod completion;
mod docker_words;
mod embedded;
mod keys;
mod mcp;
mod sandkasten;
mod tls;
