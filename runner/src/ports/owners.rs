//! Finds the processes that listen: `/proc/PID/fd` names each socket that a process has open.
//!
//! The search is a service, not a promise: it has bounds, and a kernel that shows nothing gives no names.

use std::collections::{BTreeMap, BTreeSet};

use crate::sys::proc;

/// The most processes that are looked at.
const MAX_PROCESSES: usize = 4096;

/// The most descriptors that are looked at, of all processes together.
const MAX_DESCRIPTORS: usize = 16 << 10;

/// The process that has a socket open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    pub pid: i32,
    pub program: String,
}

/// The first process of each socket, by the socket's inode. Other tasks of the runner run between two processes.
pub async fn of(mut wanted: BTreeSet<u64>) -> BTreeMap<u64, Owner> {
    let mut found = BTreeMap::new();
    let mut left = MAX_DESCRIPTORS;
    let pids = proc::pids().unwrap_or_default();
    for pid in pids.into_iter().take(MAX_PROCESSES) {
        if wanted.is_empty() || left == 0 {
            break;
        }
        let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        for descriptor in descriptors.take(left) {
            left -= 1;
            let target = std::fs::read_link(descriptor.path()).ok();
            let inode = target.as_deref().and_then(|target| inode_of(target.to_str()?));
            if let Some(inode) = inode.filter(|inode| wanted.remove(inode)) {
                let name = proc::name(pid).unwrap_or_default();
                let program = String::from_utf8_lossy(name.trim_ascii_end()).into_owned();
                found.insert(inode, Owner { pid, program });
            }
        }
        tokio::task::yield_now().await;
    }
    found
}

/// The number in `socket:[4711]`.
fn inode_of(target: &str) -> Option<u64> {
    target.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sockets_have_an_inode() {
        assert_eq!(inode_of("socket:[4711]"), Some(4711));
        for other in ["pipe:[4711]", "/tmp/socket:[1]", "socket:[]", "socket:[1", "anon_inode:[eventpoll]"] {
            assert_eq!(inode_of(other), None, "{other}");
        }
    }
}
