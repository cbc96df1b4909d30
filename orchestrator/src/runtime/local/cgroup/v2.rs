//! Cgroup version 2: one tree, in which each directory enables controllers for its children.

use std::io;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use shared_protocol::api::{ResourcesView, StatsView};

use super::{
    COMMANDS, CPU_PERIOD_USEC, Entrances, Placement, RUNNER, TotalLimits, cpu_quota, errors, kill_all, not_frozen,
    read, read_keyed, read_number, session_memory_bytes, session_pids, write,
};

const WANTED: [&str; 3] = ["memory", "pids", "cpu"];

/// The directory for processes that must leave a directory which enables controllers for its children: version 2 allows no
/// processes there.
const OWN_LEAF: &str = "cove-daemon";

/// The kernel's default for `cpu.weight`.
const DEFAULT_WEIGHT: u64 = 100;

#[derive(Debug, Clone)]
pub struct Tree {
    pub root: PathBuf,
    has_cpu: bool,
}

impl Tree {
    pub fn open(base: &Path, name: &str) -> io::Result<Self> {
        enable_controllers(base)?;
        let root = base.join(name);
        std::fs::create_dir_all(&root).map_err(super::named(&root))?;
        enable_controllers(&root)?;
        let has_cpu = read(&root.join("cgroup.subtree_control"))?.split_whitespace().any(|c| c == "cpu");
        Ok(Self { root, has_cpu })
    }

    pub fn limit_all(&self, limits: &TotalLimits) -> Vec<io::Error> {
        let set = |name: &str, value: u64| write(&self.root.join(name), &value.to_string());
        let weight = (limits.cpu_weight_percent * DEFAULT_WEIGHT / 100).max(1);
        errors([
            set("memory.max", limits.memory_bytes),
            set("pids.max", limits.pids),
            if self.has_cpu { set("cpu.weight", weight) } else { Ok(()) },
        ])
    }

    pub fn create(&self, id: &str, limits: &ResourcesView) -> io::Result<Placement> {
        let session = self.root.join(id);
        let (commands, runner) = (session.join(COMMANDS), session.join(RUNNER));
        std::fs::create_dir(&session).map_err(super::named(&session))?;
        enable_controllers(&session)?;
        for leaf in [&commands, &runner] {
            std::fs::create_dir(leaf).map_err(super::named(leaf))?;
        }
        for (place, memory_bytes, pids) in [
            (&session, session_memory_bytes(limits), session_pids(limits)),
            (&commands, limits.memory_mb << 20, limits.pids),
        ] {
            write(&place.join("memory.max"), &memory_bytes.to_string())?;
            if place.join("memory.swap.max").exists() {
                write(&place.join("memory.swap.max"), "0")?;
            }
            write(&place.join("pids.max"), &pids.to_string())?;
            if self.has_cpu {
                // Commands read their limit in their own cgroup.
                write(&place.join("cpu.max"), &format!("{} {CPU_PERIOD_USEC}", cpu_quota(limits.cpus)))?;
            }
        }
        let procs = |place: &Path| vec![place.join("cgroup.procs")];
        let entrances = Entrances {
            launcher: procs(&commands),
            first_process: Vec::new(),
            runner: procs(&runner),
            commands: procs(&commands),
        };
        Ok(Placement { entrances, visible: vec![(commands, String::new())], limits_cpu: self.has_cpu })
    }

    pub fn stats(&self, id: &str) -> io::Result<StatsView> {
        let directory = self.root.join(id);
        let used = read_number(&directory.join("memory.current"))?;
        let idle = read_keyed(&directory.join("memory.stat"), "inactive_file").unwrap_or(0);
        Ok(StatsView {
            memory_bytes: used.saturating_sub(idle),
            // A sandbox of a daemon before this version has no cgroup for its commands.
            memory_limit: [directory.join(COMMANDS), directory.clone()]
                .iter()
                .find_map(|place| read_number(&place.join("memory.max")).ok()),
            cpu_usage_usec: read_keyed(&directory.join("cpu.stat"), "usage_usec").unwrap_or(0),
            pids: read_number(&directory.join("pids.current"))?,
            disk_bytes: None,
        })
    }

    pub fn freeze(&self, id: &str, deadline: Instant) -> io::Result<()> {
        let all = self.root.join(id);
        // A sandbox of a daemon before this version has no cgroup for its commands.
        for place in [all.join(COMMANDS), all].iter().filter(|place| place.exists()) {
            write(&place.join("cgroup.freeze"), "1")?;
            wait_frozen(place, deadline)?;
        }
        Ok(())
    }

    pub fn thaw(&self, id: &str) -> io::Result<()> {
        let all = self.root.join(id);
        write(&all.join("cgroup.freeze"), "0")?;
        let commands = all.join(COMMANDS);
        if commands.exists() { write(&commands.join("cgroup.freeze"), "0") } else { Ok(()) }
    }

    pub fn lift_cpu_limit(&self, id: &str) {
        let session = self.root.join(id);
        for place in [session.join(COMMANDS), session] {
            // Without the cpu controller there is no limit to lift.
            let _ = write(&place.join("cpu.max"), "max");
        }
    }

    pub fn oom_kills(&self, id: &str) -> u64 {
        read_keyed(&self.root.join(id).join("memory.events"), "oom_kill").unwrap_or(0)
    }

    pub fn kill(&self, id: &str) -> io::Result<()> {
        let directory = self.root.join(id);
        match write(&directory.join("cgroup.kill"), "1") {
            Ok(()) => Ok(()),
            // Kernels before 5.14 do not have this file.
            Err(_) => {
                let _ = self.thaw(id);
                kill_all(&directory)
            }
        }
    }
}

/// Waits until `cgroup.events` says that all processes are frozen. The kernel signals each change of that file with
/// POLLPRI.
fn wait_frozen(place: &Path, deadline: Instant) -> io::Result<()> {
    let path = place.join("cgroup.events");
    let file = std::fs::File::open(&path).map_err(super::named(&path))?;
    // The file is read before each wait: a change after the read ends the wait at once.
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

/// Enables the wanted controllers for the children of a directory. Moves processes out of the directory if the kernel asks
/// for it.
fn enable_controllers(directory: &Path) -> io::Result<()> {
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
                // A process that has ended in the meantime need not move.
                let _ = write(&leaf.join("cgroup.procs"), pid);
            }
            write(&control, &line)
        }
        result => result,
    }
}
