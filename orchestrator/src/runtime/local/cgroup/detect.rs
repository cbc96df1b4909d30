//! Finds the cgroups that this process can use, from `/proc/self/mountinfo` and `/proc/self/cgroup`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The controllers that the daemon uses: the freezer for pausing, the others for limits.
const CONTROLLERS: [&str; 5] = ["memory", "pids", "cpu", "cpuacct", "freezer"];

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Available {
    /// Version 2, with the directory for the daemon's own cgroup.
    V2(PathBuf),
    /// Version 1, with the mount of each controller.
    V1(BTreeMap<String, PathBuf>),
}

pub fn detect() -> Result<Available, String> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").map_err(|e| format!("/proc/self/mountinfo: {e}"))?;
    let own = std::fs::read_to_string("/proc/self/cgroup").map_err(|e| format!("/proc/self/cgroup: {e}"))?;
    let is_root = nix::unistd::geteuid().is_root();
    decide(&mounts, &own, is_root, |v2| std::fs::read_to_string(v2.join("cgroup.controllers")).unwrap_or_default())
}

/// Chooses version 2 if it has the controllers, otherwise version 1. A hybrid host mounts both, and each controller is in
/// one of them.
fn decide(
    mounts: &str,
    own: &str,
    is_root: bool,
    controllers_of: impl Fn(&Path) -> String,
) -> Result<Available, String> {
    let mut v2 = None;
    let mut v1 = BTreeMap::new();
    for line in mounts.lines() {
        let Some((place, kind, options)) = parse_mount(line) else { continue };
        match kind {
            "cgroup2" => v2 = v2.or(Some(place)),
            "cgroup" => {
                for option in options.split(',').filter(|option| CONTROLLERS.contains(option)) {
                    v1.entry(option.to_owned()).or_insert_with(|| place.clone());
                }
            }
            _ => {}
        }
    }
    if let Some(root) = v2 {
        // An ordinary user has at most what was delegated to their cgroup.
        let base = if is_root { root } else { root.join(own_v2_path(own).trim_start_matches('/')) };
        let controllers = controllers_of(&base);
        if ["memory", "pids"].iter().all(|wanted| controllers.split_whitespace().any(|have| have == *wanted)) {
            return Ok(Available::V2(base));
        }
    }
    if v1.contains_key("memory") && v1.contains_key("pids") {
        return if is_root { Ok(Available::V1(v1)) } else { Err("cgroup v1 can only be used by root".into()) };
    }
    Err("no cgroup file system with the controllers memory and pids is mounted".into())
}

/// The mount point, the file system type and the super options in a line of mountinfo.
fn parse_mount(line: &str) -> Option<(PathBuf, &str, &str)> {
    let (before, after) = line.split_once(" - ")?;
    let place = before.split(' ').nth(4)?;
    let mut fields = after.split(' ');
    let kind = fields.next()?;
    let options = fields.nth(1)?;
    Some((PathBuf::from(place), kind, options))
}

fn own_v2_path(own: &str) -> &str {
    own.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    const V2: &str = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
    const V1: &str = "31 30 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                      32 30 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
                      33 30 0:29 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n";

    #[test]
    fn version_two_is_taken_where_it_has_the_controllers() {
        let found = decide(V2, "0::/\n", true, |_| "cpuset cpu io memory pids\n".into());
        assert_eq!(found, Ok(Available::V2("/sys/fs/cgroup".into())));
    }

    #[test]
    fn on_a_hybrid_host_version_one_has_them() {
        let hybrid = format!("{}{V1}", V2.replace("/sys/fs/cgroup ", "/sys/fs/cgroup/unified "));
        let Ok(Available::V1(found)) = decide(&hybrid, "0::/\n", true, |_| String::new()) else { panic!() };
        assert_eq!(found["memory"], Path::new("/sys/fs/cgroup/memory"));
        assert_eq!(found["cpuacct"], Path::new("/sys/fs/cgroup/cpu,cpuacct"));
    }

    #[test]
    fn an_ordinary_user_has_what_was_delegated_to_him() {
        let own = "0::/user.slice/user@1000.service/app.slice/x.scope\n";
        let base = "/sys/fs/cgroup/user.slice/user@1000.service/app.slice/x.scope";
        let found = decide(V2, own, false, |path| {
            assert_eq!(path, Path::new(base));
            "memory pids".into()
        });
        assert_eq!(found, Ok(Available::V2(base.into())));
        assert!(decide(V1, own, false, |_| String::new()).unwrap_err().contains("only be used by root"));
    }

    #[test]
    fn a_host_without_any_is_said_to_have_none() {
        assert!(decide("", "", true, |_| String::new()).unwrap_err().contains("no cgroup file system"));
    }
}
