//! Stories of the daemon: real `cove serve`, real sandboxes of the `local` runtime, asked over HTTP as its users do.
//! One program, since each links the whole harness.

mod archives;
mod commands;
mod errors;
mod files;
mod images;
mod ordinary_user;
mod probe;
mod sandkasten;
mod sessions;
mod streaming;
mod terminal;
mod workspaces;
