//! Version 2: one tree, controllers handed down from directory to directory.

use std::io;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use shared_protocol::api::{ResourcesView, StatsView};

use super::{
    CPU_PERIOD_USEC, Placement, WEIGHT_PERCENT, cpu_quota, kill_listed, not_frozen, read, read_keyed, read_number,
    write,
};

const WANTED: [&str; 3] = ["memory", "pids", "cpu"];

/// Where processes go that were in a directory which is to hand controllers down: version 2 allows no processes there.
const OWN_LEAF: &str = "cove-daemon";

/// The kernel's `cpu.weight` of whoever asks for nothing.
const DEFAULT_WEIGHT: u64 = 100;

#[derive(Debug, Clone)]
pub struct Tree {
    pub root: PathBuf,
    has_cpu: bool,
}

impl Tree {
    pub fn open(base: &Path, name: &str) -> io::Result<Self> {
        hand_down(base)?;
        let root = base.join(name);
        std::fs::create_dir_all(&root).map_err(super::named(&root))?;
        hand_down(&root)?;
        let has_cpu = read(&root.join("cgroup.subtree_control"))?.split_whitespace().any(|c| c == "cpu");
        if has_cpu {
            let _ = write(&root.join("cpu.weight"), &(WEIGHT_PERCENT * DEFAULT_WEIGHT / 100).to_string());
        }
        Ok(Self { root, has_cpu })
    }

    pub fn create(&self, id: &str, limits: &ResourcesView) -> io::Result<Placement> {
        let directory = self.root.join(id);
        std::fs::create_dir(&directory).map_err(super::named(&directory))?;
        let set = |name: &str, value: String| write(&directory.join(name), &value);
        set("memory.max", (limits.memory_mb << 20).to_string())?;
        if directory.join("memory.swap.max").exists() {
            set("memory.swap.max", "0".into())?;
        }
        set("pids.max", limits.pids.to_string())?;
        if self.has_cpu {
            set("cpu.max", format!("{} {CPU_PERIOD_USEC}", cpu_quota(limits.cpus)))?;
        }
        Ok(Placement { procs: vec![directory.join("cgroup.procs")], visible: vec![(directory, String::new())] })
    }

    pub fn stats(&self, id: &str) -> io::Result<StatsView> {
        let directory = self.root.join(id);
        let used = read_number(&directory.join("memory.current"))?;
        let idle = read_keyed(&directory.join("memory.stat"), "inactive_file").unwrap_or(0);
        Ok(StatsView {
            memory_bytes: used.saturating_sub(idle),
            memory_limit: read_number(&directory.join("memory.max")).ok(),
            cpu_usage_usec: read_keyed(&directory.join("cpu.stat"), "usage_usec").unwrap_or(0),
            pids: read_number(&directory.join("pids.current"))?,
            disk_bytes: None,
        })
    }

    pub fn freeze(&self, id: &str, frozen: bool) -> io::Result<()> {
        write(&self.root.join(id).join("cgroup.freeze"), if frozen { "1" } else { "0" })
    }

    /// The kernel tells of each change of this file by an exceptional condition.
    pub fn wait_frozen(&self, id: &str, deadline: Instant) -> io::Result<()> {
        let path = self.root.join(id).join("cgroup.events");
        let file = std::fs::File::open(&path).map_err(super::named(&path))?;
        // Read after it was opened, and before each wait: a change in between is told at once.
        while super::keyed(&super::read_again(&file)?, "frozen") != Some(1) {
            let left = deadline.saturating_duration_since(Instant::now());
            let left = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            let mut wanted = [PollFd::new(file.as_fd(), PollFlags::POLLPRI)];
            if left == PollTimeout::ZERO || poll(&mut wanted, left)? == 0 {
                return Err(not_frozen());
            }
        }
        Ok(())
    }

    pub fn oom_kills(&self, id: &str) -> u64 {
        read_keyed(&self.root.join(id).join("memory.events"), "oom_kill").unwrap_or(0)
    }

    pub fn kill(&self, id: &str) -> io::Result<()> {
        let directory = self.root.join(id);
        match write(&directory.join("cgroup.kill"), "1") {
            Ok(()) => Ok(()),
            // Kernels before 5.14 have no such file.
            Err(_) => {
                let _ = self.freeze(id, false);
                kill_listed(&directory.join("cgroup.procs"))
            }
        }
    }
}

/// Lets the children of a directory use the controllers it has, moving processes out of the way where the kernel asks for it.
fn hand_down(directory: &Path) -> io::Result<()> {
    let control = directory.join("cgroup.subtree_control");
    let available = read(&directory.join("cgroup.controllers"))?;
    let already = read(&control)?;
    let missing: Vec<&str> = WANTED
        .into_iter()
        .filter(|wanted| available.split_whitespace().any(|c| c == *wanted))
        .filter(|wanted| !already.split_whitespace().any(|c| c == *wanted))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let line = missing.iter().map(|name| format!("+{name}")).collect::<Vec<_>>().join(" ");
    match write(&control, &line) {
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
            let leaf = directory.join(OWN_LEAF);
            std::fs::create_dir_all(&leaf)?;
            for pid in read(&directory.join("cgroup.procs"))?.lines() {
                // One that ended meanwhile needs no place.
                let _ = write(&leaf.join("cgroup.procs"), pid);
            }
            write(&control, &line)
        }
        result => result,
    }
}
