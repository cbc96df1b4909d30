//! Version 1: one tree a controller, each with a directory for every sandbox.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use shared_protocol::api::{ResourcesView, StatsView};

use super::{
    CPU_PERIOD_USEC, Placement, WEIGHT_PERCENT, cpu_quota, kill_listed, not_frozen, read, read_keyed, read_number,
    write,
};

/// How often a freezer that tells nothing is looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(2);

/// The kernel's `cpu.shares` of whoever asks for nothing.
const DEFAULT_SHARES: u64 = 1024;

#[derive(Debug, Clone)]
pub struct Tree {
    /// By controller; two controllers may share a directory.
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
        // The default of some kernels; without it a sandbox could escape its parent's accounts.
        if let Some(memory) = tree.controllers.get("memory") {
            let _ = write(&memory.join("memory.use_hierarchy"), "1");
        }
        if let Some(cpu) = tree.controllers.get("cpu") {
            let _ = write(&cpu.join("cpu.shares"), &(WEIGHT_PERCENT * DEFAULT_SHARES / 100).to_string());
        }
        Ok(tree)
    }

    /// Each directory once.
    pub fn roots(&self) -> impl Iterator<Item = &Path> {
        let mut seen: Vec<&Path> = self.controllers.values().map(PathBuf::as_path).collect();
        seen.sort();
        seen.dedup();
        seen.into_iter()
    }

    fn file(&self, controller: &str, id: &str, name: &str) -> Option<PathBuf> {
        Some(self.controllers.get(controller)?.join(id).join(name))
    }

    pub fn create(&self, id: &str, limits: &ResourcesView) -> io::Result<Placement> {
        for root in self.roots() {
            let directory = root.join(id);
            std::fs::create_dir(&directory).map_err(super::named(&directory))?;
        }
        let set = |controller: &str, name: &str, value: String| match self.file(controller, id, name) {
            Some(path) => write(&path, &value),
            None => Err(io::Error::new(io::ErrorKind::Unsupported, format!("there is no {controller} controller"))),
        };
        let bytes = (limits.memory_mb << 20).to_string();
        set("memory", "memory.limit_in_bytes", bytes.clone())?;
        // Memory and swap together, where the kernel counts swap: what is not in memory is nowhere.
        if self.file("memory", id, "memory.memsw.limit_in_bytes").is_some_and(|path| path.exists()) {
            set("memory", "memory.memsw.limit_in_bytes", bytes)?;
        }
        set("pids", "pids.max", limits.pids.to_string())?;
        if self.controllers.contains_key("cpu") {
            set("cpu", "cpu.cfs_period_us", CPU_PERIOD_USEC.to_string())?;
            set("cpu", "cpu.cfs_quota_us", cpu_quota(limits.cpus).to_string())?;
        }
        let visible = ["memory", "pids", "cpu"]
            .into_iter()
            .filter_map(|name| Some((self.controllers.get(name)?.join(id), name.to_owned())))
            .collect();
        Ok(Placement { procs: self.roots().map(|root| root.join(id).join("cgroup.procs")).collect(), visible })
    }

    pub fn stats(&self, id: &str) -> io::Result<StatsView> {
        let number = |controller: &str, name: &str| match self.file(controller, id, name) {
            Some(path) => read_number(&path),
            None => Ok(0),
        };
        let used = number("memory", "memory.usage_in_bytes")?;
        // Cache that the kernel would give back first is not what a session needs.
        let idle = self.file("memory", id, "memory.stat").and_then(|path| read_keyed(&path, "total_inactive_file"));
        Ok(StatsView {
            memory_bytes: used.saturating_sub(idle.unwrap_or(0)),
            memory_limit: Some(number("memory", "memory.limit_in_bytes")?),
            cpu_usage_usec: number("cpuacct", "cpuacct.usage")? / 1_000,
            pids: number("pids", "pids.current")?,
            disk_bytes: None,
        })
    }

    pub fn freeze(&self, id: &str, frozen: bool) -> io::Result<()> {
        let path = self.file("freezer", id, "freezer.state");
        let path = path.ok_or_else(|| io::Error::new(io::ErrorKind::Unsupported, "there is no freezer controller"))?;
        write(&path, if frozen { "FROZEN" } else { "THAWED" })
    }

    /// By looking again: version 1 tells nobody, and moves on only when it is looked at.
    pub fn wait_frozen(&self, id: &str, deadline: Instant) -> io::Result<()> {
        let path = self.file("freezer", id, "freezer.state");
        let path = path.ok_or_else(|| io::Error::new(io::ErrorKind::Unsupported, "there is no freezer controller"))?;
        while read(&path)?.trim() != "FROZEN" {
            if Instant::now() >= deadline {
                return Err(not_frozen());
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
        Ok(())
    }

    pub fn oom_kills(&self, id: &str) -> u64 {
        self.file("memory", id, "memory.oom_control").and_then(|path| read_keyed(&path, "oom_kill")).unwrap_or(0)
    }

    pub fn kill(&self, id: &str) -> io::Result<()> {
        // A frozen process cannot die.
        if self.file("freezer", id, "freezer.state").is_some_and(|path| read(&path).is_ok()) {
            let _ = self.freeze(id, false);
        }
        self.roots().try_for_each(|root| kill_listed(&root.join(id).join("cgroup.procs")))
    }
}
