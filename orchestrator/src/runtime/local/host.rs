//! What this host lets the daemon do. The daemon finds out once, when it starts.

use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use super::ids;
use super::proc_files::ProcFiles;
use super::shown::ShownFiles;

/// The first version of Linux whose overlays take layers with an id mapping.
const MAPPED_LAYERS: (u32, u32) = (5, 19);
const PROGRAMS: &str = "/usr";

#[derive(Debug, Clone)]
pub struct Host {
    pub users: Users,
    /// Whether the data directory's file system supports idmapped mounts.
    pub idmap: bool,
    /// Whether a layer that a sandbox can write to can be laid over the host's own programs.
    pub writable: bool,
    /// What sandboxes see of their own limits.
    pub proc_files: ProcFiles,
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
        let writable =
            idmap && is_at_least(&kernel_release(), MAPPED_LAYERS) && super::idmap::is_supported(Path::new(PROGRAMS));
        let shown = ShownFiles::look(data_dir, idmap);
        Ok(Self { users, idmap, writable, proc_files: ProcFiles::look(), shown })
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

/// Whether a kernel's release, such as `6.1.0-13-amd64`, is at least this version.
pub fn is_at_least(release: &str, version: (u32, u32)) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse::<u32>().ok());
    match (numbers.next(), numbers.next()) {
        (Some(major), Some(minor)) => (major, minor) >= version,
        _ => false,
    }
}

/// The release of the running kernel.
pub fn kernel_release() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_versions_compare_by_number() {
        assert!(is_at_least("6.1.0-13-amd64", (5, 12)));
        assert!(is_at_least("5.12.0", (5, 12)));
        assert!(!is_at_least("5.4.0-150-generic", (5, 12)));
        assert!(!is_at_least("nonsense", (5, 12)));
    }
}
