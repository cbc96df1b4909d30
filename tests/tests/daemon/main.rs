//! Stories of the daemon: real `cove serve`, real sandboxes of the runtime that `COVE_E2E_RUNTIME` names, asked over HTTP as its users do.
//! One program, since each links the whole harness.

mod archives;
mod commands;
mod contained;
mod engine;
mod errors;
mod files;
mod hostile_workspaces;
mod images;
mod ordinary_user;
mod outage;
mod own_images;
mod pausing;
mod pools;
mod probe;
mod pull;
mod recovery;
mod sandkasten;
mod sessions;
mod streaming;
mod terminal;
mod workspaces;
