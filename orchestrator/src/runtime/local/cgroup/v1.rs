//! Cgroup version 1: each controller has its own tree, with a directory for every sandbox.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use shared_protocol::api::{ResourcesView, StatsView};

use super::{
    COMMANDS, CPU_PERIOD_USEC, Entrances, Placement, TotalLimits, cpu_quota, errors, kill_all, not_frozen, read,
    read_keyed, read_number, session_memory_bytes, session_pids, write,
};

/// The interval at which the freezer's state is read, because it sends no events.
const LOOK_INTERVAL: Duration = Duration::from_millis(2);

/// The kernel's default for `cpu.shares`, and its minimum.
const DEFAULT_SHARES: u64 = 1024;
const MIN_SHARES: u64 = 2;

/// The limit of the buffers of TCP and UDP sockets, which version 1 counts apart from all other memory, and not at all unless there is
/// a limit. They may take this part of the memory in addition.
const TCP_LIMIT: &str = "memory.kmem.tcp.limit_in_bytes";
const SOCKET_SHARE: u64 = 8;

#[derive(Debug, Clone)]
pub struct Tree {
    /// The directory of each controller. Two controllers may share one.
    controllers: BTreeMap<String, PathBuf>,
}

impl Tree {
    pub fn open(mounts: BTreeMap<String, PathBuf>, name: &str) -> io::Result<Self> {
        let controllers: BTreeMap<String, PathBuf> =
            mounts.into_iter().map(|(controller, mount)| (controller, mount.join(name))).collect();
        for root in controllers.values() {
            std::fs::create_dir_all(root).map_err(super::named(root))?;
        }
        let tree = Self { controllers };
        // Not every kernel has this on by default. Without it the parent does not count the memory of its sandboxes.
        if let Some(memory) = tree.controllers.get("memory") {
            let _ = write(&memory.join("memory.use_hierarchy"), "1");
        }
        Ok(tree)
    }

    pub fn limit_all(&self, limits: &TotalLimits) -> Vec<io::Error> {
        let set = |controller: &str, name: &str, value: u64| match self.controllers.get(controller) {
            Some(root) => write(&root.join(name), &value.to_string()),
            None => Ok(()),
        };
        errors([
            set("memory", "memory.limit_in_bytes", limits.memory_bytes),
            set("memory", TCP_LIMIT, limits.memory_bytes / SOCKET_SHARE),
            set("pids", "pids.max", limits.pids),
            set("cpu", "cpu.shares", (limits.cpu_weight_percent * DEFAULT_SHARES / 100).max(MIN_SHARES)),
        ])
    }

    /// The directories of the controllers, each once.
    pub fn roots(&self) -> impl Iterator<Item = &Path> {
        let mut seen: Vec<&Path> = self.controllers.values().map(PathBuf::as_path).collect();
        seen.sort();
        seen.dedup();
        seen.into_iter()
    }

    fn file(&self, controller: &str, id: &str, name: &str) -> Option<PathBuf> {
        Some(self.controllers.get(controller)?.join(id).join(name))
    }

    /// The directories of the controllers that limit or freeze commands apart from their runner, each once.
    fn commands_roots(&self) -> Vec<&Path> {
        let mut roots: Vec<&Path> = ["memory", "pids", "freezer"]
            .into_iter()
            .filter_map(|name| self.controllers.get(name))
            .map(PathBuf::as_path)
            .collect();
        roots.sort();
        roots.dedup();
        roots
    }

    pub fn create(&self, id: &str, limits: &ResourcesView) -> io::Result<Placement> {
        let commands = format!("{id}/{COMMANDS}");
        let apart = self.commands_roots();
        for directory in self.roots().map(|root| root.join(id)).chain(apart.iter().map(|root| root.join(&commands))) {
            std::fs::create_dir(&directory).map_err(super::named(&directory))?;
        }
        let set = |controller: &str, id: &str, name: &str, value: u64| match self.file(controller, id, name) {
            Some(path) => write(&path, &value.to_string()),
            None => Err(io::Error::new(io::ErrorKind::Unsupported, format!("there is no {controller} controller"))),
        };
        for (place, memory_bytes, pids) in [
            (id, session_memory_bytes(limits), session_pids(limits)),
            (commands.as_str(), limits.memory_mb << 20, limits.pids),
        ] {
            set("memory", place, "memory.limit_in_bytes", memory_bytes)?;
            // If the kernel counts swap, the same limit for memory and for memory with swap means no swap.
            if self.file("memory", place, "memory.memsw.limit_in_bytes").is_some_and(|path| path.exists()) {
                set("memory", place, "memory.memsw.limit_in_bytes", memory_bytes)?;
            }
            // A kernel without IP sockets in cgroups has no such file.
            if self.file("memory", place, TCP_LIMIT).is_some_and(|path| path.exists()) {
                set("memory", place, TCP_LIMIT, memory_bytes / SOCKET_SHARE)?;
            }
            set("pids", place, "pids.max", pids)?;
        }
        if self.controllers.contains_key("cpu") {
            set("cpu", id, "cpu.cfs_period_us", CPU_PERIOD_USEC)?;
            set("cpu", id, "cpu.cfs_quota_us", cpu_quota(limits.cpus))?;
        }
        let is_apart = |controller: &str| ["memory", "pids"].contains(&controller);
        let visible = ["memory", "pids", "cpu", "cpuacct"]
            .into_iter()
            .filter_map(|name| {
                let place = if is_apart(name) { &commands } else { id };
                Some((self.controllers.get(name)?.join(place), name.to_owned()))
            })
            .collect();
        // A process that moves only itself, by `tasks`, need not wait until no process of the host forks.
        let tasks = |root: &Path, place: &str| root.join(place).join("tasks");
        let entrances = Entrances {
            launcher: Vec::new(),
            first_process: self
                .roots()
                .map(|root| tasks(root, if apart.contains(&root) { &commands } else { id }))
                .collect(),
            runner: apart.iter().map(|root| tasks(root, id)).collect(),
            commands: apart.iter().map(|root| tasks(root, &commands)).collect(),
        };
        Ok(Placement { entrances, visible, limits_cpu: self.controllers.contains_key("cpu") })
    }

    pub fn stats(&self, id: &str) -> io::Result<StatsView> {
        let number = |controller: &str, name: &str| match self.file(controller, id, name) {
            Some(path) => read_number(&path),
            None => Ok(0),
        };
        let used = number("memory", "memory.usage_in_bytes")?;
        // A sandbox of a daemon before this version has no cgroup for its commands.
        let limit = self.file("memory", &format!("{id}/{COMMANDS}"), "memory.limit_in_bytes");
        let limit = match limit.and_then(|path| read_number(&path).ok()) {
            Some(limit) => limit,
            None => number("memory", "memory.limit_in_bytes")?,
        };
        // Cache that the kernel would drop first does not count as used.
        let idle = self.file("memory", id, "memory.stat").and_then(|path| read_keyed(&path, "total_inactive_file"));
        Ok(StatsView {
            memory_bytes: used.saturating_sub(idle.unwrap_or(0)),
            memory_limit: Some(limit),
            cpu_usage_usec: number("cpuacct", "cpuacct.usage")? / 1_000,
            pids: number("pids", "pids.current")?,
            disk_bytes: None,
        })
    }

    /// The states of a sandbox's freezers: that of its commands, which one of a daemon before this version does not have, and that of
    /// everything.
    fn freezers(&self, id: &str) -> io::Result<[PathBuf; 2]> {
        let file = |id: &str| self.file("freezer", id, "freezer.state");
        file(&format!("{id}/{COMMANDS}"))
            .zip(file(id))
            .map(<[PathBuf; 2]>::from)
            .ok_or_else(|| io::Error::new(io::ErrorKind::Unsupported, "there is no freezer controller"))
    }

    pub fn freeze(&self, id: &str, deadline: Instant) -> io::Result<()> {
        for state in self.freezers(id)?.iter().filter(|state| state.exists()) {
            write(state, "FROZEN")?;
            wait_frozen(state, deadline)?;
        }
        Ok(())
    }

    pub fn thaw(&self, id: &str) -> io::Result<()> {
        let [commands, all] = self.freezers(id)?;
        write(&all, "THAWED")?;
        if commands.exists() { write(&commands, "THAWED") } else { Ok(()) }
    }

    pub fn lift_cpu_limit(&self, id: &str) {
        // Without the cpu controller there is no limit to lift.
        if let Some(path) = self.file("cpu", id, "cpu.cfs_quota_us") {
            let _ = write(&path, "-1");
        }
    }

    pub fn oom_kills(&self, id: &str) -> u64 {
        // Version 1 counts a kill only in the cgroup of the process that was killed.
        let places = [id.to_owned(), format!("{id}/{COMMANDS}")];
        let files = places.iter().filter_map(|place| self.file("memory", place, "memory.oom_control"));
        files.filter_map(|path| read_keyed(&path, "oom_kill")).sum()
    }

    pub fn kill(&self, id: &str) -> io::Result<()> {
        // A frozen process does not react to SIGKILL.
        let _ = self.thaw(id);
        self.roots().try_for_each(|root| kill_all(&root.join(id)))
    }
}

/// Waits until all processes are frozen. It polls: version 1 sends no events, and continues to freeze only when the state is read.
fn wait_frozen(state: &Path, deadline: Instant) -> io::Result<()> {
    while read(state)?.trim() != "FROZEN" {
        if Instant::now() >= deadline {
            return Err(not_frozen());
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
    Ok(())
}
