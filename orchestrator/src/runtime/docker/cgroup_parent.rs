//! The cgroup that all containers of a daemon are in. Without one of their own they would be beside the daemon, and each would weigh as
//! much as it: hundreds of busy containers would leave it no processor time.
//!
//! The engine makes the containers' cgroups, and says by its driver how the parent is named: `cgroupfs` takes a path, `systemd` a slice.
//! The weight and the limits of the parent are the daemon's to set. Where it may not, the parent still weighs only as much as one other
//! cgroup.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use bollard::models::SystemInfoCgroupDriverEnum as Driver;

use crate::runtime::local::{Cgroups, TotalLimits};

/// The value of the request, and what belongs to it on this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CgroupParent {
    /// A directory at the top of each hierarchy.
    Directory(String),
    /// A slice of systemd.
    Slice(String),
    /// The engine's own choice: it has no cgroups, or ones of a kind that is not known.
    Engines,
}

impl CgroupParent {
    pub fn of(driver: Option<Driver>, instance: &str) -> Self {
        match driver {
            Some(Driver::CGROUPFS) => Self::Directory(format!("{instance}-containers")),
            Some(Driver::SYSTEMD) => Self::Slice(format!("{instance}.slice")),
            _ => Self::Engines,
        }
    }

    /// The field `CgroupParent` of a request.
    pub fn field(&self) -> String {
        match self {
            Self::Directory(name) => format!("/{name}"),
            Self::Slice(name) => name.clone(),
            Self::Engines => String::new(),
        }
    }

    /// Sets weight and limits. It blocks.
    pub fn limit(&self, limits: &TotalLimits) {
        match self {
            Self::Directory(name) => match Cgroups::open(name) {
                Cgroups::None { why } => tracing::warn!(%why, "the containers together have no limit"),
                cgroups => cgroups.limit_all(limits),
            },
            Self::Slice(name) => {
                let set = Command::new("systemctl").args(slice_arguments(name, limits)).stdin(Stdio::null()).output();
                let refused = match set {
                    Ok(output) if output.status.success() => return,
                    Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
                    Err(error) => error.to_string(),
                };
                tracing::warn!(slice = name, %refused, "the containers together have no limit");
            }
            Self::Engines => {}
        }
    }

    /// Removes the directories, if the last container is gone. systemd removes an empty slice itself.
    pub fn close(&self) {
        let Self::Directory(name) = self else { return };
        // The engine has made one in every hierarchy, not only in those that the daemon uses.
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        for mount in hierarchies(&mounts) {
            let _ = std::fs::remove_dir(mount.join(name));
        }
    }
}

/// The arguments of `systemctl` that limit a slice until the next boot.
fn slice_arguments(slice: &str, limits: &TotalLimits) -> Vec<String> {
    let TotalLimits { memory_bytes, pids, cpu_weight_percent } = limits;
    let mut arguments = ["set-property", "--runtime", slice].map(str::to_owned).to_vec();
    // 100 is the default weight.
    arguments.push(format!("CPUWeight={cpu_weight_percent}"));
    arguments.push(format!("MemoryMax={memory_bytes}"));
    arguments.push(format!("TasksMax={pids}"));
    arguments
}

/// Where cgroups are mounted.
fn hierarchies(mountinfo: &str) -> Vec<PathBuf> {
    let place = |line: &str| {
        let (before, after) = line.split_once(" - ")?;
        let is_cgroup = after.starts_with("cgroup ") || after.starts_with("cgroup2 ");
        is_cgroup.then(|| before.split(' ').nth(4).map(PathBuf::from)).flatten()
    };
    mountinfo.lines().filter_map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parent_is_named_as_the_engines_driver_names_cgroups() {
        let field = |driver| CgroupParent::of(driver, "cove-12ab").field();
        assert_eq!(field(Some(Driver::CGROUPFS)), "/cove-12ab-containers");
        // systemd makes this slice below cove.slice.
        assert_eq!(field(Some(Driver::SYSTEMD)), "cove-12ab.slice");
        assert_eq!(field(Some(Driver::NONE)), "");
        assert_eq!(field(None), "");
    }

    #[test]
    fn a_slice_gets_the_weight_and_the_limits() {
        let limits = TotalLimits { memory_bytes: 7 << 20, pids: 99, cpu_weight_percent: 25 };
        assert_eq!(
            slice_arguments("cove-12ab.slice", &limits).join(" "),
            "set-property --runtime cove-12ab.slice CPUWeight=25 MemoryMax=7340032 TasksMax=99"
        );
    }

    #[test]
    fn every_hierarchy_is_found() {
        let mountinfo = "31 30 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                         32 30 0:28 / /proc rw - proc proc rw\n\
                         33 30 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        assert_eq!(hierarchies(mountinfo), ["/sys/fs/cgroup/memory", "/sys/fs/cgroup/unified"].map(PathBuf::from));
    }
}
