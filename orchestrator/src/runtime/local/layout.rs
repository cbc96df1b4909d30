//! Decides which files a sandbox sees, as a list of steps. The launcher carries the steps out.
//!
//! A sandbox starts from an empty root, so it sees nothing that is not named here. Of the host it sees programs and libraries, and
//! of `/etc` the names in [`etc`], read-only. It does not see `/root`, `/home`, `/run`, `/var`, `/srv`, `/mnt`, nor the daemon's own
//! directories.

use std::path::{Path, PathBuf};

use shared_protocol::api::ResourcesView;

use super::etc;
use super::ids::IdRange;
use super::plan::{DeviceNodes, Limits, Owner, Step};
use super::shown::{ETC, ShownDirectory, ShownFiles};
use crate::runtime::files;
use crate::runtime::policy::{
    FILES_ROOT, FILES_WORKSPACE, MASKED, MAX_OPEN_FILES, MAX_TERMINALS, READ_ONLY, SCRATCH, SCRATCH_INODES,
    SMALL_BYTES, SMALL_INODES, STATE, STATE_INODES, WORKSPACE, disk,
};

/// Directories that are hidden although the operator may have named their parent: the daemon's own configuration.
const HOST_HIDDEN: [&str; 1] = ["/etc/cove"];

const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

const DEVICE_LINKS: [(&str, &str); 5] = [
    ("/dev/fd", "/proc/self/fd"),
    ("/dev/stdin", "/proc/self/fd/0"),
    ("/dev/stdout", "/proc/self/fd/1"),
    ("/dev/stderr", "/proc/self/fd/2"),
    ("/dev/ptmx", "pts/ptmx"),
];

/// The id of the group `tty`, the same in every distribution.
const TTY_GROUP: u32 = 5;

/// The owners of the files in a new root, as the launcher sees them.
#[derive(Debug, Clone, Copy)]
pub struct Owners {
    pub host: Owner,
    pub runner: Owner,
    pub user: Owner,
    /// The id that stands for the group `tty`.
    pub tty_group: u32,
}

impl Owners {
    /// The host's ids, for a daemon that is root.
    pub fn outside(base: u32, user: u32) -> Self {
        let owner = |id: u32| Owner { uid: base + id, gid: base + id };
        Self {
            host: Owner { uid: 0, gid: 0 },
            runner: owner(0),
            user: Owner { uid: user, gid: user },
            tty_group: base + TTY_GROUP,
        }
    }

    /// The ids inside, for the daemon of an ordinary user. Without subordinate ids, everything belongs to the single user.
    pub fn inside(user: u32, has_others: bool) -> Self {
        let only = Owner { uid: user, gid: user };
        let root = if has_others { Owner { uid: 0, gid: 0 } } else { only };
        Self { host: root, runner: root, user: only, tty_group: if has_others { TTY_GROUP } else { user } }
    }
}

/// The workspace to mount, with its id mapping.
pub struct WorkspaceSource {
    pub path: PathBuf,
    pub idmap: Option<Vec<IdRange>>,
}

impl WorkspaceSource {
    fn mounted_at(&self, path: &str) -> Step {
        let (source, idmap) = (self.path.clone(), self.idmap.clone());
        Step::Bind { source, path: path.into(), writable: true, idmap }
    }
}

pub struct Layout<'a> {
    pub owners: Owners,
    /// The name of the sandbox, for the host image's `/etc/hostname`.
    pub hostname: &'a str,
    pub device_nodes: DeviceNodes,
    pub workspace: Option<WorkspaceSource>,
    /// The cgroups that the sandbox sees below `/sys/fs/cgroup`: host path and name.
    pub cgroups: &'a [(PathBuf, String)],
    /// The size of the runner's own directory.
    pub scratch_bytes: u64,
    /// The size of the directory for the states of shells.
    pub state_bytes: u64,
}

impl Layout<'_> {
    /// The steps that fill an empty root with the host's own system. `etc_names` are the names in `/etc` to show.
    pub fn host(&self, shown: &ShownFiles, etc_names: &[String]) -> Vec<Step> {
        let owner = self.owners.host;
        let directory = |path: &str, mode| Step::Directory { path: path.into(), mode, owner };
        let mut steps = vec![
            directory("/root", 0o700),
            directory("/home", 0o755),
            directory("/var", 0o755),
            directory("/var/lib", 0o755),
            directory("/sys", 0o755),
            directory(ETC, 0o755),
        ];
        if shown.directories.iter().any(|directory| directory.path.starts_with("/nix")) {
            steps.push(directory("/nix", 0o755));
        }
        let link =
            |(name, target): &(String, String)| Step::Symlink { path: format!("/{name}"), target: target.clone() };
        steps.extend(shown.links.iter().map(link));
        steps.extend(shown.directories.iter().map(show));
        steps.extend(self.own_files());
        steps.push(Step::ShowNames {
            source: ETC.into(),
            path: ETC.into(),
            names: etc_names.to_vec(),
            view: shown.etc.view(),
        });
        let is_visible = |path: &Path| {
            let name = path.strip_prefix(ETC).ok().and_then(|rest| rest.components().next());
            name.is_none_or(|name| etc::is_one_of(etc_names, &name.as_os_str().to_string_lossy()))
        };
        steps.extend(shown.submounts.iter().filter(|submount| is_visible(&submount.path)).map(show));
        for path in shown.mounted_files.iter().filter(|path| is_visible(path)) {
            let (source, path) = (path.clone(), path.to_string_lossy().into_owned());
            steps.push(Step::Bind { source, path, writable: false, idmap: None });
        }
        steps.extend(HOST_HIDDEN.map(|path| Step::Mask { path: path.to_owned() }));
        for (path, target) in [("/var/run", "/run"), ("/var/lock", "/run/lock")] {
            steps.push(Step::Symlink { path: path.into(), target: target.into() });
        }
        steps.extend(self.common());
        steps
    }

    /// The files of `/etc` that Cove writes instead of showing the host's.
    fn own_files(&self) -> impl Iterator<Item = Step> {
        let hostname = ("hostname", format!("{}\n", self.hostname));
        let file = |(name, content): (&str, String)| Step::File { path: format!("{ETC}/{name}"), content, mode: 0o444 };
        files::system_files().into_iter().chain([hostname]).map(file)
    }

    /// The steps for an image's own root. The import has added the mount points that the image lacked.
    pub fn image(&self) -> Vec<Step> {
        self.common()
    }

    /// The steps for a sandbox that serves the files of a workspace: the workspace, and what the runner itself needs. There
    /// is no program in it, no device but `/dev/null`, and no file of the host.
    pub fn workspace_files(&self) -> Vec<Step> {
        let owners = self.owners;
        let mut steps: Vec<Step> = ["/run", FILES_ROOT]
            .map(|path| Step::Directory { path: path.into(), mode: 0o755, owner: owners.host })
            .into();
        steps.extend([self.scratch(), self.state(), self.device_nodes_of(&["null"])]);
        steps.extend(self.workspace.as_ref().map(|workspace| workspace.mounted_at(FILES_WORKSPACE)));
        steps.extend(proc());
        steps
    }

    fn scratch(&self) -> Step {
        Step::Tmpfs {
            path: SCRATCH.into(),
            bytes: self.scratch_bytes,
            inodes: SCRATCH_INODES,
            mode: 0o711,
            owner: self.owners.runner,
        }
    }

    fn state(&self) -> Step {
        Step::Tmpfs {
            path: STATE.into(),
            bytes: self.state_bytes,
            inodes: STATE_INODES,
            mode: 0o711,
            owner: self.owners.runner,
        }
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
            self.scratch(),
            self.state(),
            self.disk("tmp", "/tmp", 0o1777, owners.host),
            self.disk("var-tmp", "/var/tmp", 0o1777, owners.host),
            self.disk("home", "/home/sandbox", 0o755, owners.user),
        ];
        steps.push(match &self.workspace {
            None => self.disk("workspace", WORKSPACE, 0o755, owners.user),
            Some(workspace) => workspace.mounted_at(WORKSPACE),
        });
        steps.extend(self.devices());
        steps.extend(proc());
        steps.extend(self.cgroup_view());
        steps
    }

    /// The directory `/dev` with these devices.
    fn device_nodes_of(&self, names: &[&str]) -> Step {
        Step::Devices {
            path: "/dev".into(),
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            bytes: SMALL_BYTES,
            inodes: SMALL_INODES,
            owner: self.owners.host,
            nodes: self.device_nodes,
        }
    }

    fn devices(&self) -> Vec<Step> {
        let owners = self.owners;
        let mut steps = vec![self.device_nodes_of(&DEVICES)];
        steps.extend(DEVICE_LINKS.map(|(path, target)| Step::Symlink { path: path.into(), target: target.into() }));
        steps.push(Step::Devpts { path: "/dev/pts".into(), tty_group: owners.tty_group, max: MAX_TERMINALS });
        steps.push(self.disk("shm", "/dev/shm", 0o1777, owners.host));
        steps
    }

    /// A tmpfs over `/sys` that shows the sandbox's cgroup and nothing else.
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
            steps.push(Step::Bind { source, path, writable: false, idmap: None });
        }
        steps.push(Step::ReadOnly { path: "/sys".into() });
        steps
    }

    fn disk(&self, name: &str, path: &str, mode: u32, owner: Owner) -> Step {
        Step::Disk { name: name.into(), path: path.into(), mode, owner }
    }
}

/// The process file system, without what shows the host.
fn proc() -> Vec<Step> {
    let mut steps = vec![Step::Proc { path: "/proc".into() }];
    steps.extend(MASKED.map(|path| Step::Mask { path: path.into() }));
    steps.extend(READ_ONLY.map(|path| Step::ReadOnly { path: path.into() }));
    steps
}

fn show(directory: &ShownDirectory) -> Step {
    let path = directory.path.to_string_lossy().into_owned();
    Step::Show { source: directory.path.clone(), path, view: directory.overlay.view() }
}

/// The directories inside in which files can be changed after these steps.
pub fn writable_places(steps: &[Step]) -> Vec<String> {
    let place = |step: &Step| match step {
        Step::Disk { path, .. }
        | Step::Tmpfs { path, .. }
        | Step::Devices { path, .. }
        | Step::Proc { path }
        | Step::Bind { path, writable: true, .. } => Some(path.clone()),
        _ => None,
    };
    let is_read_only =
        |place: &String| steps.iter().any(|step| matches!(step, Step::ReadOnly { path } if path == place));
    steps.iter().filter_map(place).filter(|place| !is_read_only(place)).collect()
}

pub fn limits(resources: &ResourcesView, has_cgroups: bool) -> Limits {
    let disk = disk(resources);
    Limits {
        disk_bytes: disk.bytes,
        disk_inodes: disk.inodes,
        open_files: MAX_OPEN_FILES,
        processes: (!has_cgroups).then_some(resources.pids),
    }
}

#[cfg(test)]
mod tests {
    use super::super::shown::OverlaySupport;
    use super::*;

    fn layout(workspace: Option<WorkspaceSource>) -> Vec<Step> {
        let cgroups = [(PathBuf::from("/sys/fs/cgroup/cove/x"), String::new())];
        let layout = Layout {
            owners: Owners::outside(0x7000_0000, 0x7000_03e8),
            hostname: "x",
            device_nodes: DeviceNodes::Own,
            workspace,
            cgroups: &cgroups,
            scratch_bytes: 1 << 20,
            state_bytes: 1 << 20,
        };
        let directory = |path: &str| ShownDirectory { path: path.into(), overlay: OverlaySupport::Possible };
        let shown = ShownFiles {
            links: vec![("bin".into(), "usr/bin".into())],
            directories: vec![directory("/usr"), directory("/nix/store")],
            submounts: vec![directory("/usr/local"), directory("/etc/ssl/certs"), directory("/etc/secret")],
            mounted_files: vec!["/etc/resolv.conf".into(), "/usr/lib/libcuda.so".into()],
            etc: OverlaySupport::Possible,
            images: OverlaySupport::Possible,
        };
        layout.host(&shown, &etc::names(&[]))
    }

    #[test]
    fn of_the_host_only_a_workspace_can_be_written_to() {
        let workspace = WorkspaceSource { path: "/data/workspaces/w".into(), idmap: None };
        for step in layout(Some(workspace)) {
            if let Step::Bind { source, writable: true, .. } = step {
                assert_eq!(source, Path::new("/data/workspaces/w"));
            }
        }
    }

    #[test]
    fn files_can_be_changed_where_something_of_the_sandboxs_own_is_mounted() {
        let workspace = WorkspaceSource { path: "/data/workspaces/w".into(), idmap: None };
        let mut places = writable_places(&layout(Some(workspace)));
        places.sort();
        let own = [
            "/dev",
            "/dev/shm",
            "/home/sandbox",
            "/proc",
            "/run",
            "/run/cove",
            "/run/cove/state",
            "/tmp",
            "/var/tmp",
            "/workspace",
        ];
        assert_eq!(places, own);
    }

    #[test]
    fn nothing_private_of_the_host_is_a_source() {
        let sources: Vec<PathBuf> = layout(None)
            .into_iter()
            .filter_map(|step| match step {
                Step::Bind { source, .. } | Step::Show { source, .. } | Step::ShowNames { source, .. } => Some(source),
                _ => None,
            })
            .collect();
        for private in ["/root", "/home", "/run", "/var/run", "/tmp", "/srv", "/proc", "/sys/kernel"] {
            assert!(sources.iter().all(|source| !source.starts_with(private)), "{private} is shown");
        }
        assert!(!sources.contains(&PathBuf::from("/")));
    }

    #[test]
    fn a_sandbox_for_the_files_of_a_workspace_has_the_workspace_and_nothing_of_the_host() {
        let workspace = WorkspaceSource { path: "/data/workspaces/w".into(), idmap: None };
        let owners = Owners::outside(0x7000_0000, 0x7000_03e8);
        let cgroups = [(PathBuf::from("/sys/fs/cgroup/cove/x"), String::new())];
        let layout = Layout {
            owners,
            hostname: "box",
            device_nodes: DeviceNodes::Own,
            workspace: Some(workspace),
            cgroups: &cgroups,
            scratch_bytes: 1 << 20,
            state_bytes: 1 << 20,
        };
        let binds: Vec<(PathBuf, String)> = layout
            .workspace_files()
            .into_iter()
            .filter_map(|step| match step {
                Step::Bind { source, path, .. } => Some((source, path)),
                _ => None,
            })
            .collect();
        assert_eq!(binds, [(PathBuf::from("/data/workspaces/w"), FILES_WORKSPACE.to_owned())]);
    }

    #[test]
    fn what_the_host_has_mounted_in_etc_is_shown_only_below_a_name_that_is_shown() {
        let steps = layout(None);
        let is_shown = |wanted: &str| {
            steps.iter().any(|step| matches!(step, Step::Show { path, .. } | Step::Bind { path, .. } if path == wanted))
        };
        assert!(is_shown("/usr/local") && is_shown("/etc/ssl/certs") && is_shown("/usr/lib/libcuda.so"));
        assert!(!is_shown("/etc/secret") && !is_shown("/etc/resolv.conf"));
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
