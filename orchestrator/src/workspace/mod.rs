//! Workspaces: named file trees that outlive sessions.
//!
//! Their content is hostile: links, devices, names of any bytes. So the daemon never opens anything in them, except
//! directories to delete or to count them. `service::workspaces` has what clients do with a workspace while no session uses
//! it.

mod dirs;
mod error;
mod list;
mod on_disks;
pub mod quota;
mod records;
mod remove;
mod usage;

pub use dirs::{Deletion, Reach, User, WorkspaceDirs, WorkspaceHold};
pub use error::WorkspaceError;
pub use list::FoundWorkspace;
