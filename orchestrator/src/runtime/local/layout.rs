//! What a sandbox sees of a file system: decided here, as data, and carried out by the launcher.
//!
//! Of the host only what is named below is shown, and read-only: programs, libraries, `/etc`. Not `/root`, `/home`, `/run`,
//! `/var`, `/srv`, `/mnt`, and not the daemon's own directories wherever they are, since nothing that is not named exists.

use std::path::{Path, PathBuf};

use shared_protocol::api::ResourcesView;

use super::ids::IdRange;
use super::plan::{Limits, Owner, Step};
use crate::runtime::policy::{
    MASKED, OPEN_FILES, READ_ONLY, SCRATCH, SCRATCH_BYTES, SCRATCH_INODES, SMALL_BYTES, SMALL_INODES, WORKSPACE,
    disk_inodes,
};

/// Directories of the host that are shown, where they exist. On most systems all but three are links into `/usr`.
const HOST_TOPS: [&str; 10] = ["usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "etc", "opt", "nix"];

/// Shown as well: what package tools ask to say what is installed.
const HOST_EXTRAS: [&str; 1] = ["var/lib/dpkg"];

/// Hidden again: where an operator keeps this daemon's own configuration.
const HOST_HIDDEN: [&str; 1] = ["/etc/cove"];

const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

const DEVICE_LINKS: [(&str, &str); 5] = [
    ("/dev/fd", "/proc/self/fd"),
    ("/dev/stdin", "/proc/self/fd/0"),
    ("/dev/stdout", "/proc/self/fd/1"),
    ("/dev/stderr", "/proc/self/fd/2"),
    ("/dev/ptmx", "pts/ptmx"),
];

/// The group `tty`, as every distribution has it.
const TTY_GROUP: u32 = 5;

/// One of `HOST_TOPS` as it is on this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Top {
    Directory(String),
    Link(String, String),
}

/// Looks once, at the daemon's start.
pub fn host_tops() -> Vec<Top> {
    HOST_TOPS
        .into_iter()
        .filter_map(|name| {
            let path = Path::new("/").join(name);
            let kind = std::fs::symlink_metadata(&path).ok()?.file_type();
            if kind.is_symlink() {
                let target = std::fs::read_link(&path).ok()?.into_os_string().into_string().ok()?;
                Some(Top::Link(name.to_owned(), target))
            } else {
                kind.is_dir().then(|| Top::Directory(name.to_owned()))
            }
        })
        .collect()
}

/// Who is who while the root is made.
#[derive(Debug, Clone, Copy)]
pub struct Owners {
    pub host: Owner,
    pub runner: Owner,
    pub user: Owner,
    /// The id that stands for the group `tty`.
    pub tty_group: u32,
}

impl Owners {
    /// As numbers outside, for a daemon that is root.
    pub fn outside(base: u32, user: u32) -> Self {
        let owner = |id: u32| Owner { uid: base + id, gid: base + id };
        Self {
            host: Owner { uid: 0, gid: 0 },
            runner: owner(0),
            user: Owner { uid: user, gid: user },
            tty_group: base + TTY_GROUP,
        }
    }

    /// As numbers inside, for an ordinary user. Without subordinate ids there is only one of each.
    pub fn inside(user: u32, has_others: bool) -> Self {
        let only = Owner { uid: user, gid: user };
        let root = if has_others { Owner { uid: 0, gid: 0 } } else { only };
        Self { host: root, runner: root, user: only, tty_group: if has_others { TTY_GROUP } else { user } }
    }
}

/// The workspace that is mounted, with its mapping.
pub struct WorkspaceSource {
    pub path: PathBuf,
    pub idmap: Option<Vec<IdRange>>,
}

pub struct Layout<'a> {
    pub owners: Owners,
    /// Files that replace the host's: `passwd`, `group`, `hosts`.
    pub files: &'a Path,
    pub workspace: Option<WorkspaceSource>,
    /// What is shown below `/sys/fs/cgroup`.
    pub cgroups: &'a [(PathBuf, String)],
}

impl Layout<'_> {
    /// Into an empty root, with the host's own system.
    pub fn host(&self, tops: &[Top]) -> Vec<Step> {
        let mut steps = Vec::new();
        for top in tops {
            steps.push(match top {
                Top::Directory(name) => show(&format!("/{name}"), &format!("/{name}")),
                Top::Link(name, target) => Step::Symlink { path: format!("/{name}"), target: target.clone() },
            });
        }
        for name in ["passwd", "group", "hosts"] {
            let path = format!("/etc/{name}");
            // Over a link the mount would land wherever that leads.
            if std::fs::symlink_metadata(&path).is_ok_and(|found| found.is_file()) {
                steps.push(Step::Bind {
                    source: self.files.join(name),
                    path,
                    writable: false,
                    devices: false,
                    idmap: None,
                });
            }
        }
        steps.extend(HOST_HIDDEN.map(|path| Step::Mask { path: path.to_owned() }));
        for (path, mode) in [("/root", 0o700), ("/home", 0o755), ("/var", 0o755), ("/var/lib", 0o755), ("/sys", 0o755)]
        {
            steps.push(Step::Directory { path: path.into(), mode, owner: self.owners.host });
        }
        for extra in HOST_EXTRAS.into_iter().filter(|extra| Path::new("/").join(extra).is_dir()) {
            steps.push(show(&format!("/{extra}"), &format!("/{extra}")));
        }
        for (path, target) in [("/var/run", "/run"), ("/var/lock", "/run/lock")] {
            steps.push(Step::Symlink { path: path.into(), target: target.into() });
        }
        steps.extend(self.common());
        steps
    }

    /// Over an image's own root. What it lacks was made when it was imported.
    pub fn image(&self) -> Vec<Step> {
        self.common()
    }

    fn common(&self) -> Vec<Step> {
        let owners = self.owners;
        let mut steps = vec![
            Step::Tmpfs {
                path: "/run".into(),
                bytes: SMALL_BYTES,
                inodes: SMALL_INODES,
                mode: 0o755,
                owner: owners.host,
            },
            Step::Directory { path: "/run/lock".into(), mode: 0o1777, owner: owners.host },
            Step::Tmpfs {
                path: SCRATCH.into(),
                bytes: SCRATCH_BYTES,
                inodes: SCRATCH_INODES,
                mode: 0o711,
                owner: owners.runner,
            },
            self.disk("tmp", "/tmp", 0o1777, owners.host),
            self.disk("var-tmp", "/var/tmp", 0o1777, owners.host),
            self.disk("home", "/home/sandbox", 0o755, owners.user),
        ];
        steps.push(match &self.workspace {
            None => self.disk("workspace", WORKSPACE, 0o755, owners.user),
            Some(workspace) => Step::Bind {
                source: workspace.path.clone(),
                path: WORKSPACE.into(),
                writable: true,
                devices: false,
                idmap: workspace.idmap.clone(),
            },
        });
        steps.extend(self.devices());
        steps.push(Step::Proc { path: "/proc".into() });
        steps.extend(MASKED.map(|path| Step::Mask { path: path.into() }));
        steps.extend(READ_ONLY.map(|path| Step::ReadOnly { path: path.into() }));
        steps.extend(self.cgroup_view());
        steps
    }

    fn devices(&self) -> Vec<Step> {
        let owners = self.owners;
        let mut steps = vec![Step::Tmpfs {
            path: "/dev".into(),
            bytes: SMALL_BYTES,
            inodes: SMALL_INODES,
            mode: 0o755,
            owner: owners.host,
        }];
        steps.extend(DEVICES.map(|name| Step::Bind {
            source: Path::new("/dev").join(name),
            path: format!("/dev/{name}"),
            writable: true,
            devices: true,
            idmap: None,
        }));
        steps.extend(DEVICE_LINKS.map(|(path, target)| Step::Symlink { path: path.into(), target: target.into() }));
        steps.push(Step::Devpts { path: "/dev/pts".into(), tty_group: owners.tty_group });
        steps.push(self.disk("shm", "/dev/shm", 0o1777, owners.host));
        steps
    }

    /// A tmpfs over `/sys`, so that an image's own is not needed, with the sandbox's cgroup in it.
    fn cgroup_view(&self) -> Vec<Step> {
        let owner = self.owners.host;
        let mut steps =
            vec![Step::Tmpfs { path: "/sys".into(), bytes: SMALL_BYTES, inodes: SMALL_INODES, mode: 0o755, owner }];
        for path in ["/sys/fs", "/sys/fs/cgroup"] {
            steps.push(Step::Directory { path: path.into(), mode: 0o755, owner });
        }
        for (source, name) in self.cgroups {
            let path = format!("/sys/fs/cgroup/{name}");
            let source = source.clone();
            steps.push(Step::Bind { source, path, writable: false, devices: false, idmap: None });
        }
        steps.push(Step::ReadOnly { path: "/sys".into() });
        steps
    }

    fn disk(&self, name: &str, path: &str, mode: u32, owner: Owner) -> Step {
        Step::Disk { name: name.into(), path: path.into(), mode, owner }
    }
}

fn show(source: &str, path: &str) -> Step {
    Step::Bind { source: source.into(), path: path.into(), writable: false, devices: false, idmap: None }
}

pub fn limits(resources: &ResourcesView, has_cgroups: bool) -> Limits {
    Limits {
        disk_bytes: resources.disk_mb << 20,
        disk_inodes: disk_inodes(resources.disk_mb),
        open_files: OPEN_FILES,
        processes: (!has_cgroups).then_some(resources.pids),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(workspace: Option<WorkspaceSource>) -> Vec<Step> {
        let files = Path::new("/data/etc");
        let cgroups = [(PathBuf::from("/sys/fs/cgroup/cove/x"), String::new())];
        let layout = Layout { owners: Owners::outside(0x7000_0000, 0x7000_03e8), files, workspace, cgroups: &cgroups };
        layout.host(&[
            Top::Directory("usr".into()),
            Top::Directory("etc".into()),
            Top::Link("bin".into(), "usr/bin".into()),
        ])
    }

    #[test]
    fn of_the_host_only_devices_and_a_workspace_can_be_written_to() {
        let workspace = WorkspaceSource { path: "/data/workspaces/w".into(), idmap: None };
        for step in layout(Some(workspace)) {
            if let Step::Bind { source, writable: true, devices, .. } = step {
                let is_device = devices && source.starts_with("/dev");
                assert!(is_device || source == Path::new("/data/workspaces/w"), "{source:?} can be written to");
            }
        }
    }

    #[test]
    fn nothing_private_of_the_host_is_a_source() {
        let sources: Vec<PathBuf> = layout(None)
            .into_iter()
            .filter_map(|step| match step {
                Step::Bind { source, .. } => Some(source),
                _ => None,
            })
            .collect();
        for private in ["/root", "/home", "/run", "/var/run", "/tmp", "/srv", "/proc", "/sys/kernel"] {
            assert!(sources.iter().all(|source| !source.starts_with(private)), "{private} is shown");
        }
        assert!(!sources.contains(&PathBuf::from("/")));
    }

    #[test]
    fn masks_come_after_proc_is_mounted() {
        let steps = layout(None);
        let proc = steps.iter().position(|step| matches!(step, Step::Proc { .. })).unwrap();
        let first_mask =
            steps.iter().position(|step| matches!(step, Step::Mask { path } if path.starts_with("/proc"))).unwrap();
        assert!(proc < first_mask);
    }
}
