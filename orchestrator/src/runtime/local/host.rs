//! What this host lets the daemon do. The daemon finds out once, when it starts.

use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use super::ids;
use super::shown::ShownFiles;

#[derive(Debug, Clone)]
pub struct Host {
    pub users: Users,
    /// Whether the data directory's file system supports idmapped mounts.
    pub idmap: bool,
    /// What the host image shows.
    pub shown: ShownFiles,
}

/// Which user ids a sandbox gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Users {
    /// The daemon is root: each sandbox gets a block of ids of its own.
    Root,
    /// The daemon's user is the sandbox's user, and a subordinate range `(first, count)` is everyone else.
    Subordinate { uid: u32, gid: u32, uids: (u32, u32), gids: (u32, u32) },
    /// The daemon's user is the only user in the sandbox, so runner and commands are the same user.
    Own { uid: u32, gid: u32 },
}

impl Host {
    pub fn look(data_dir: &Path) -> io::Result<Self> {
        let users = Users::look();
        let idmap = users == Users::Root && super::idmap::is_supported(data_dir);
        let shown = ShownFiles::look(data_dir, idmap);
        Ok(Self { users, idmap, shown })
    }
}

impl Host {
    /// The directories that cannot be shown through an overlay, and why.
    pub fn impossible_overlays(&self) -> Vec<(String, String)> {
        self.shown.impossible()
    }
}

impl Users {
    pub fn look() -> Self {
        let (uid, gid) = (nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw());
        if uid == 0 {
            return Self::Root;
        }
        let name = nix::unistd::User::from_uid(uid.into()).ok().flatten().map(|user| user.name).unwrap_or_default();
        let range = |path: &str| {
            let text = std::fs::read_to_string(path).unwrap_or_default();
            ids::subordinate_range(&text, &name, uid)
        };
        match (range("/etc/subuid"), range("/etc/subgid")) {
            (Some(uids), Some(gids)) if has_program("newuidmap") && has_program("newgidmap") => {
                Self::Subordinate { uid, gid, uids, gids }
            }
            _ => Self::Own { uid, gid },
        }
    }
}

fn has_program(name: &str) -> bool {
    Command::new(name).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}
