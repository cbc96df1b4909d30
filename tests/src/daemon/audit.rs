//! Finds what a daemon has left on the host: processes, mounts, cgroups, directories.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Everything on the host that belongs to the daemon of one data directory.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Leftovers {
    /// Processes whose program is in the data directory: runners. Their children die with their namespace.
    pub processes: Vec<String>,
    /// The cgroups of the daemon's sandboxes, with any process in them.
    pub cgroups: Vec<PathBuf>,
    /// Mounts in the namespaces of all processes, so that none is hidden in a namespace.
    pub mounts: Vec<String>,
    pub directories: Vec<PathBuf>,
    /// Containers of the engine, if the stories run on one.
    pub containers: Vec<String>,
    /// Its images that belong to sessions. Those of snapshots may stay.
    pub images: Vec<String>,
}

impl Leftovers {
    pub fn of(data_dir: &Path) -> Self {
        let needle = data_dir.to_string_lossy().into_owned();
        let mut left = Self::default();
        for process in crate::procfs::all() {
            let proc = PathBuf::from(format!("/proc/{}", process.pid));
            let mounts = std::fs::read_to_string(proc.join("mountinfo")).unwrap_or_default();
            left.mounts.extend(mounts.lines().filter(|line| line.contains(&needle)).map(str::to_owned));
        }
        left.processes = Self::runners(data_dir).iter().map(|p| format!("{} {}", p.pid, p.name)).collect();
        left.mounts.sort();
        left.mounts.dedup();
        left.directories = children(&data_dir.join("sandboxes"));
        left.directories.extend(children(&data_dir.join("containers")));
        left.cgroups = cgroups_of(data_dir);
        let instance = instance(data_dir);
        if let Some(engine) = super::engine().filter(|_| !instance.is_empty()) {
            left.containers = engine.containers_of(&instance);
            left.images = engine.images_of(&format!("{instance}/session"));
        }
        left
    }

    /// The ids of all sandboxes that left a directory, a cgroup or a container.
    pub fn sandboxes(data_dir: &Path) -> BTreeSet<String> {
        let mut places = children(&data_dir.join("sandboxes"));
        places.extend(children(&data_dir.join("containers")));
        places.extend(cgroups_of(data_dir).iter().flat_map(|cgroup| children(cgroup)).filter(|path| path.is_dir()));
        let names = places.iter().filter_map(|path| Some(path.file_name()?.to_str()?.to_owned()));
        names.chain(containers_of(data_dir).into_iter().map(|(id, _)| id)).collect()
    }

    /// The number of running first processes: runners that the host sees, or containers of the engine.
    pub fn first_processes(data_dir: &Path) -> usize {
        match super::engine() {
            Some(_) => containers_of(data_dir).iter().filter(|(_, runs)| *runs).count(),
            None => Self::runners(data_dir).len(),
        }
    }

    /// The processes whose program is in the directory.
    pub fn runners(data_dir: &Path) -> Vec<crate::procfs::Process> {
        let exe = |pid: i32| std::fs::read_link(format!("/proc/{pid}/exe"));
        let is_ours = |pid: i32| exe(pid).is_ok_and(|exe| exe.starts_with(data_dir));
        crate::procfs::all().into_iter().filter(|process| is_ours(process.pid)).collect()
    }

    /// Ends what a broken daemon left, so that it does not outlive the story.
    pub fn sweep(data_dir: &Path) {
        for process in Self::runners(data_dir) {
            crate::procfs::signal(process.pid, nix::sys::signal::Signal::SIGKILL);
        }
        let instance = instance(data_dir);
        if let Some(engine) = super::engine().filter(|_| !instance.is_empty()) {
            engine
                .containers_of(&instance)
                .iter()
                .for_each(|container| drop(engine.try_docker(&["rm", "-f", container])));
            for kind in ["session", "snapshot"] {
                let images = engine.images_of(&format!("{instance}/{kind}"));
                images.iter().for_each(|image| drop(engine.try_docker(&["rmi", "-f", image])));
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The name with which the daemon marks its cgroups and containers, from its data directory.
fn instance(data_dir: &Path) -> String {
    std::fs::read_to_string(data_dir.join("cgroup")).unwrap_or_default().trim().to_owned()
}

/// The sessions with a container, if there is an engine, and whether the container runs.
fn containers_of(data_dir: &Path) -> Vec<(String, bool)> {
    let instance = instance(data_dir);
    let engine = super::engine().filter(|_| !instance.is_empty());
    engine.map(|engine| engine.sessions_of(&instance)).unwrap_or_default()
}

/// The snapshots that a data directory and the engine have something of.
pub fn snapshots_of(data_dir: &Path) -> Vec<String> {
    let instance = instance(data_dir);
    let places = ["snapshots", "container-snapshots"].into_iter().flat_map(|name| children(&data_dir.join(name)));
    let mut found: Vec<String> = places.filter_map(|path| Some(path.file_name()?.to_str()?.to_owned())).collect();
    if let Some(engine) = super::engine().filter(|_| !instance.is_empty()) {
        let images = engine.images_of(&format!("{instance}/snapshot"));
        found.extend(images.iter().filter_map(|name| Some(name.rsplit_once(':')?.1.to_owned())));
    }
    found.sort();
    found.dedup();
    found
}

/// The directories that hold the cgroups of a daemon's sandboxes.
pub fn cgroups_of(data_dir: &Path) -> Vec<PathBuf> {
    let name = instance(data_dir);
    if name.is_empty() {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut roots = vec![PathBuf::from("/sys/fs/cgroup")];
    roots.extend(children(Path::new("/sys/fs/cgroup")));
    for root in roots {
        let path = root.join(&name);
        if path.is_dir() {
            found.push(path);
        }
    }
    found
}

/// The loop devices that show a file of the data directory.
pub fn loop_devices_of(data_dir: &Path) -> Vec<PathBuf> {
    let shows = |device: &PathBuf| {
        let file = std::fs::read_to_string(device.join("loop/backing_file")).unwrap_or_default();
        Path::new(file.trim()).starts_with(data_dir)
    };
    children(Path::new("/sys/block")).into_iter().filter(shows).collect()
}

fn children(path: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(path) else { return Vec::new() };
    entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect()
}
