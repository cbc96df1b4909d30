//! Calls to a session: commands with their output, files, terminals, and what happens to a bad request.

pub mod archives;
mod compact;
mod errors;
mod files;
mod ports;
mod queueing;
mod stdin;
mod streaming;
mod terminal;
mod tools;
mod watching;
