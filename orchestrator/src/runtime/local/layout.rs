//! Decides which files a sandbox sees, as a list of steps. The launcher carries the steps out.
//!
//! A sandbox starts from an empty root, so it sees nothing that is not named here. Of the host it sees programs and libraries, and
//! of `/etc` the names in [`etc`], read-only. It does not see `/root`, `/home`, `/run`, `/var`, `/srv`, `/mnt`, nor the daemon's own
//! directories.

use std::path::{Path, PathBuf};

use shared_protocol::SANDBOX_USER;
use shared_protocol::api::ResourcesView;

use super::accounts::Accounts;
use super::etc;
use super::ids::IdRange;
use super::plan::{DeviceNodes, Limits, Owner, Step};
use super::shown::{ETC, ShownDirectory, ShownFiles};
use crate::runtime::files;
use crate::runtime::policy::{
    FILES_ROOT, FILES_WORKSPACE, MASKED, MAX_OPEN_FILES, MAX_TERMINALS, READ_ONLY, SCRATCH, SCRATCH_INODES,
    SMALL_BYTES, SMALL_INODES, STATE, STATE_INODES, TRUST, TRUST_AUTHORITY, TRUST_BUNDLE, TRUST_BYTES, TRUST_STORES,
    WORKSPACE, disk, shm,
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

const ROOT_HOME: &str = "/root";

/// Directories of the host image for root: where programs log, and where mail goes.
const ROOT_DIRECTORIES: [&str; 4] = ["/var/log", "/var/cache", "/var/spool", "/var/mail"];

/// Where apt keeps its settings, lists and downloads. On a host with its database.
const DPKG: &str = "/var/lib/dpkg";
const APT_DIRECTORIES: [&str; 10] = [
    "/etc/apt",
    "/etc/apt/apt.conf.d",
    "/var/cache/apt",
    "/var/cache/apt/archives",
    "/var/cache/apt/archives/partial",
    "/var/cache/debconf",
    "/var/lib/apt",
    "/var/lib/apt/lists",
    "/var/lib/apt/lists/partial",
    "/var/lib/systemd",
];

/// Login programs such as `su` want this file. The limits of a sandbox are not set by it.
const LOGIN_LIMITS: [&str; 2] = ["/etc/security", "/etc/security/limits.conf"];

/// The id of the group `tty`, the same in every distribution.
const TTY_GROUP: u32 = 5;

/// The owners of the files in a new root, as the launcher sees them.
#[derive(Debug, Clone, Copy)]
pub struct Owners {
    pub host: Owner,
    pub runner: Owner,
    /// The user of commands.
    pub user: Owner,
    /// The ordinary user, who owns `/home/sandbox` also where commands are root.
    pub sandbox: Owner,
    /// The id that stands for the group `tty`.
    pub tty_group: u32,
}

impl Owners {
    /// The host's ids, for a daemon that is root.
    pub fn outside(base: u32, user: Owner) -> Self {
        let owner = |id: u32| Owner { uid: base + id, gid: base + id };
        Self { host: Owner { uid: 0, gid: 0 }, runner: owner(0), user, sandbox: user, tty_group: base + TTY_GROUP }
    }

    /// The ids inside, for the daemon of an ordinary user. Without subordinate ids, everything belongs to the single user.
    pub fn inside(user: u32, has_others: bool) -> Self {
        let only = Owner { uid: user, gid: user };
        let root = if has_others { Owner { uid: 0, gid: 0 } } else { only };
        let tty_group = if has_others { TTY_GROUP } else { user };
        Self { host: root, runner: root, user: only, sandbox: only, tty_group }
    }

    /// The ids of a sandbox whose commands are root. `first` stands for that root, and the ids after it for everyone else.
    pub fn of_root(first: u32, runner: u32) -> Self {
        let owner = |id: u32| Owner { uid: id, gid: id };
        Self {
            host: owner(first),
            runner: owner(runner),
            user: owner(first),
            sandbox: owner(first + SANDBOX_USER),
            tty_group: first + TTY_GROUP,
        }
    }
}

/// The workspace to mount, with its id mapping.
pub enum WorkspaceSource {
    Directory { path: PathBuf, idmap: Option<Vec<IdRange>> },
    Subvolume { device: PathBuf, subvolume: u64, idmap: Vec<IdRange> },
}

impl WorkspaceSource {
    fn mounted_at(&self, path: &str) -> Step {
        let place = path.to_owned();
        match self {
            Self::Directory { path, idmap } => {
                Step::Bind { source: path.clone(), path: place, writable: true, idmap: idmap.clone() }
            }
            Self::Subvolume { device, subvolume, idmap } => {
                Step::Subvolume { device: device.clone(), subvolume: *subvolume, path: place, idmap: idmap.clone() }
            }
        }
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
    /// The certificate authority of the session, as PEM.
    pub authority: Option<&'a str>,
    /// Whether the image's own bundle of authorities can be replaced: not where programs may want to replace it themselves.
    pub covers_stores: bool,
    /// The size of the runner's own directory.
    pub scratch_bytes: u64,
    /// The size of the directory for the states of shells.
    pub state_bytes: u64,
    /// The steps that show the sandbox its own limits: before `/sys` is made read-only, and after `/proc` is mounted.
    pub own_limits: Vec<Step>,
    /// How a sandbox may change its root.
    pub writable_root: Option<WritableRoot>,
    /// The accounts of the host image if commands are root, and `None` if they are not.
    pub root: Option<&'a Accounts>,
}

/// A root that the sandbox may change.
#[derive(Debug, Clone)]
pub struct WritableRoot {
    /// Who owns what is made for the root.
    pub owner: Owner,
    /// Whose the files of the host are.
    pub idmap: Option<Vec<IdRange>>,
}

impl Layout<'_> {
    /// The steps that fill an empty root with the host's own system. `etc_names` are the names in `/etc` to show.
    pub fn host(&self, shown: &ShownFiles, etc_names: &[String]) -> Vec<Step> {
        let owner = self.root_owner();
        let directory = |path: &str, mode| Step::Directory { path: path.into(), mode, owner };
        let mut steps = vec![
            directory(ROOT_HOME, 0o700),
            directory("/home", 0o755),
            directory("/var", 0o755),
            directory("/var/lib", 0o755),
            directory("/sys", 0o755),
            directory(ETC, 0o755),
        ];
        if self.root.is_some() && self.writable_root.is_some() {
            steps.extend(ROOT_DIRECTORIES.map(|path| directory(path, 0o755)));
            if shown.directories.iter().any(|directory| directory.path == Path::new(DPKG)) {
                steps.extend(APT_DIRECTORIES.map(|path| directory(path, 0o755)));
            }
            let [security, limits] = LOGIN_LIMITS;
            steps.push(directory(security, 0o755));
            steps.push(Step::File { path: limits.into(), content: String::new(), mode: 0o644, owner });
        }
        if shown.directories.iter().any(|directory| directory.path.starts_with("/nix")) {
            steps.push(directory("/nix", 0o755));
        }
        let link =
            |(name, target): &(String, String)| Step::Symlink { path: format!("/{name}"), target: target.clone() };
        steps.extend(shown.links.iter().map(link));
        steps.extend(shown.directories.iter().map(|directory| self.show(directory)));
        steps.extend(self.own_files());
        let (source, path, names) = (PathBuf::from(ETC), ETC.to_owned(), etc_names.to_vec());
        steps.push(match &self.writable_root {
            None => Step::ShowNames { source, path, names, view: shown.etc.view() },
            Some(WritableRoot { owner, .. }) => {
                let names = if self.root.is_some() { etc::with_those_of_root(&names) } else { names };
                Step::CopyNames { source, path, names, owner: *owner }
            }
        });
        let is_visible = |path: &Path| {
            let name = path.strip_prefix(ETC).ok().and_then(|rest| rest.components().next());
            name.is_none_or(|name| etc::is_one_of(etc_names, &name.as_os_str().to_string_lossy()))
        };
        let visible = shown.submounts.iter().filter(|submount| is_visible(&submount.path));
        steps.extend(visible.map(|submount| self.show(submount)));
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
        let (owner, mode) = (self.root_owner(), if self.writable_root.is_some() { 0o644 } else { 0o444 });
        let file = move |(name, content): (&str, String)| {
            let path = format!("{ETC}/{name}");
            Step::File { path, content, mode, owner }
        };
        let accounts = self.root;
        let system_file = move |(name, content): (&'static str, String)| match (name, accounts) {
            ("passwd", Some(accounts)) => (name, accounts.passwd.clone()),
            ("group", Some(accounts)) => (name, accounts.group.clone()),
            _ => (name, content),
        };
        files::system_files().into_iter().map(system_file).chain([hostname]).map(file)
    }

    /// The owner of what is made for the root.
    fn root_owner(&self) -> Owner {
        self.writable_root.as_ref().map_or(self.owners.host, |root| root.owner)
    }

    /// Shows a directory of the host, and lets the sandbox change it if it may change its root.
    fn show(&self, directory: &ShownDirectory) -> Step {
        let (source, path) = (directory.path.clone(), directory.path.to_string_lossy().into_owned());
        match &self.writable_root {
            None => Step::Show { source, path, view: directory.overlay.view() },
            Some(WritableRoot { idmap, .. }) => {
                let name = show_name(&path);
                Step::Overlay { source, path, name, idmap: idmap.clone() }
            }
        }
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
            self.disk("home", "/home/sandbox", 0o755, owners.sandbox),
        ];
        // In a root that can be changed, it is a directory like any other.
        if self.root.is_some() && self.writable_root.is_none() {
            steps.push(self.disk("root-home", ROOT_HOME, 0o700, owners.user));
        }
        steps.push(match &self.workspace {
            None => self.disk("workspace", WORKSPACE, 0o755, owners.user),
            Some(workspace) => workspace.mounted_at(WORKSPACE),
        });
        steps.extend(self.devices());
        steps.extend(proc());
        steps.extend(self.cgroup_view());
        steps.extend(self.authority.map(|authority| self.trust(authority)).into_iter().flatten());
        steps
    }

    /// A read-only directory with the certificate authorities that programs trust.
    fn trust(&self, authority: &str) -> [Step; 4] {
        let (stores, owner) = (TRUST_STORES.map(str::to_owned).to_vec(), self.owners.host);
        [
            Step::Tmpfs { path: TRUST.into(), bytes: TRUST_BYTES, inodes: SMALL_INODES, mode: 0o755, owner },
            Step::File { path: TRUST_AUTHORITY.into(), content: authority.to_owned(), mode: 0o444, owner },
            Step::TrustBundle {
                path: TRUST_BUNDLE.into(),
                authority: authority.to_owned(),
                stores,
                covers_stores: self.covers_stores,
            },
            Step::ReadOnly { path: TRUST.into() },
        ]
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
        let (name, path) = ("shm".to_owned(), "/dev/shm".to_owned());
        steps.push(Step::Memory { name, path, mode: 0o1777, owner: owners.host });
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
        steps.extend(self.own_limits.iter().cloned());
        steps.push(Step::ReadOnly { path: "/sys".into() });
        steps
    }

    fn disk(&self, name: &str, path: &str, mode: u32, owner: Owner) -> Step {
        Step::Disk { name: name.into(), path: path.into(), mode, owner }
    }
}

/// The name on the disk of what a session changes in a directory of the host.
pub fn show_name(path: &str) -> String {
    path.trim_start_matches('/').replace('/', "-")
}

/// The process file system, without what shows the host.
fn proc() -> Vec<Step> {
    let mut steps = vec![Step::Proc { path: "/proc".into() }];
    steps.extend(MASKED.map(|path| Step::Mask { path: path.into() }));
    steps.extend(READ_ONLY.map(|path| Step::ReadOnly { path: path.into() }));
    steps
}

/// The directories inside in which files can be changed after these steps.
pub fn writable_places(steps: &[Step]) -> Vec<String> {
    let place = |step: &Step| match step {
        Step::Disk { path, .. }
        | Step::Subvolume { path, .. }
        | Step::Memory { path, .. }
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

pub fn limits(resources: &ResourcesView, has_cgroups: bool, has_disk: bool) -> Limits {
    let memory = if has_disk { shm(resources) } else { disk(resources) };
    Limits {
        memory_bytes: memory.bytes,
        memory_inodes: memory.inodes,
        open_files: MAX_OPEN_FILES,
        processes: (!has_cgroups).then_some(resources.pids),
    }
}

#[cfg(test)]
#[path = "layout_test.rs"]
mod tests;
