//! What this host lets the daemon do, looked at once when it starts.

use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use super::ids;
use super::layout::{self, Top};

#[derive(Debug, Clone)]
pub struct Host {
    pub users: Users,
    /// Whether mounts of the data directory can show owners through a mapping.
    pub idmap: bool,
    pub tops: Vec<Top>,
}

/// Whose ids a sandbox gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Users {
    /// A block of its own.
    Root,
    /// The daemon's user, and a subordinate range for everyone else. First id and count.
    Subordinate { uid: u32, gid: u32, uids: (u32, u32), gids: (u32, u32) },
    /// The daemon's user and nobody else: runner and commands are the same user.
    Own { uid: u32, gid: u32 },
}

impl Host {
    pub fn look(data_dir: &Path) -> io::Result<Self> {
        let users = Users::look();
        let idmap = users == Users::Root && super::idmap::is_supported(data_dir);
        Ok(Self { users, idmap, tops: layout::host_tops() })
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
