//! Images and workspaces: what sandboxes are made from, and what outlives them.

mod hostile_workspaces;
pub mod images;
mod workspaces;
