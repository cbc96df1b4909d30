//! Limits and statistics of sandboxes with cgroups: version 2, version 1, or none if an ordinary user has no delegated
//! cgroup.
//!
//! Each daemon has one cgroup directory, `cove-HASH`, named by a hash of its data directory, and each sandbox has one below
//! it. Everything below it belongs to the daemon, which touches nothing outside.
//!
//! ```text
//! cove-HASH/ID            cpu, and everything together: the session's limits and what its runner may use beside them
//!           ├─ runner     version 2 only, which wants processes in leaves; on version 1 the runner is in ID itself
//!           └─ commands   memory and pids: the session's limits. The sandbox sees this one as its own. A pause freezes it first
//! ```
//!
//! **Invariant:** the runner is never in the cgroup of the commands. Whatever they do there, the kernel has memory and a process
//! number for the runner, and kills none but them when they are over their limit.

mod detect;
mod v1;
mod v2;

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use shared_protocol::api::{ResourcesView, StatsView};

use crate::runtime::policy::{RUNNER_BYTES, RUNNER_PIDS, scratch_bytes};
use crate::sys::pidfd;

pub use detect::{Available, detect};

/// The most that is read of a cgroup file. All of them are short.
const MAX_FILE_BYTES: u64 = 64 << 10;

/// The scheduler's period; a quota is a share of it.
pub const CPU_PERIOD_USEC: u64 = 100_000;

/// How often and how long to wait for a cgroup to become empty after its last process was killed.
const REMOVE_TRIES: u32 = 200;
const REMOVE_PAUSE: Duration = Duration::from_millis(5);

/// The most processes that are held by a descriptor at once to be killed.
const HELD_AT_ONCE: usize = 256;

/// The longest wait for all processes of a sandbox to freeze. It takes milliseconds, unless one waits in the kernel for a disk.
const FREEZE_TIMEOUT: Duration = Duration::from_secs(3);

/// The cgroups of all sandboxes of one daemon.
#[derive(Debug, Clone)]
pub enum Cgroups {
    V2(v2::Tree),
    V1(v1::Tree),
    None { why: String },
}

/// The directories of a sandbox's cgroup.
const COMMANDS: &str = "commands";
const RUNNER: &str = "runner";
const LEAVES: [&str; 2] = [COMMANDS, RUNNER];

/// The cgroup of one sandbox, as the launcher needs it.
#[derive(Debug, Clone, Default)]
pub struct Placement {
    pub entrances: Entrances,
    /// The parts of it that the sandbox sees: the host path, and the name below `/sys/fs/cgroup`.
    pub visible: Vec<(PathBuf, String)>,
    /// Whether its processor time is limited.
    pub limits_cpu: bool,
}

/// The files through which the processes of a sandbox enter its cgroup. They are opened on the host, and used in this order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entrances {
    /// The launcher writes the number of the first process here, while that makes its root: version 2 needs milliseconds to move a
    /// process.
    pub launcher: Vec<PathBuf>,
    /// The first process writes `0`, which means itself, before it makes its cgroup namespace. On version 1 that is quicker.
    pub first_process: Vec<PathBuf>,
    /// The first process writes `0` after it has made its cgroup namespace. It is then where the runner stays.
    pub runner: Vec<PathBuf>,
    /// Each command writes `0` before it runs. The runner holds these files open; commands do not.
    pub commands: Vec<PathBuf>,
}

impl Entrances {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The limits of all sandboxes of a daemon together. They leave the host something that no sandbox can take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TotalLimits {
    pub memory_bytes: u64,
    pub pids: u64,
    /// The CPU weight in percent of the default weight. Sandboxes may use every idle CPU, but under load they do not slow down the
    /// daemon, which their clients wait for.
    pub cpu_weight_percent: u64,
}

/// The most that the processes of a sandbox may use together, runner included.
fn session_memory_bytes(limits: &ResourcesView) -> u64 {
    (limits.memory_mb << 20) + RUNNER_BYTES + scratch_bytes(limits.memory_mb)
}

fn session_pids(limits: &ResourcesView) -> u64 {
    limits.pids.saturating_add(RUNNER_PIDS)
}

impl Cgroups {
    /// Finds the cgroups that this process may use, and creates the daemon's own directory.
    pub fn open(name: &str) -> Self {
        match detect() {
            Ok(Available::V2(root)) => match v2::Tree::open(&root, name) {
                Ok(tree) => Self::V2(tree),
                Err(error) => Self::None { why: format!("cgroup v2 at {} cannot be used: {error}", root.display()) },
            },
            Ok(Available::V1(controllers)) => match v1::Tree::open(controllers, name) {
                Ok(tree) => Self::V1(tree),
                Err(error) => Self::None { why: format!("cgroup v1 cannot be used: {error}") },
            },
            Err(why) => Self::None { why },
        }
    }

    /// Limits all sandboxes together. Each sandbox keeps its own limits if the host refuses one of these.
    pub fn limit_all(&self, limits: &TotalLimits) {
        let refused = match self {
            Self::V2(tree) => tree.limit_all(limits),
            Self::V1(tree) => tree.limit_all(limits),
            Self::None { .. } => Vec::new(),
        };
        for error in refused {
            tracing::warn!(%error, "a limit of all sandboxes together was refused");
        }
    }

    /// Makes a sandbox's cgroup and sets its limits. On an error nothing is left behind.
    pub fn create(&self, id: &str, limits: &ResourcesView) -> io::Result<Placement> {
        let made = match self {
            Self::V2(tree) => tree.create(id, limits),
            Self::V1(tree) => tree.create(id, limits),
            Self::None { .. } => return Ok(Placement::default()),
        };
        if made.is_err() {
            let _ = self.remove_directories(id);
        }
        made
    }

    /// Kills every process in a cgroup and removes it. A missing cgroup is no error.
    pub fn remove(&self, id: &str) -> io::Result<()> {
        for _ in 0..REMOVE_TRIES {
            match self.remove_directories(id) {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => self.kill(id)?,
                result => return result,
            }
            std::thread::sleep(REMOVE_PAUSE);
        }
        self.remove_directories(id)
    }

    pub fn stats(&self, id: &str) -> io::Result<StatsView> {
        match self {
            Self::V2(tree) => tree.stats(id),
            Self::V1(tree) => tree.stats(id),
            Self::None { why } => Err(unsupported(why)),
        }
    }

    /// Lets all processes continue.
    pub fn thaw(&self, id: &str) -> io::Result<()> {
        match self {
            Self::V2(tree) => tree.thaw(id),
            Self::V1(tree) => tree.thaw(id),
            Self::None { why } => Err(unsupported(why)),
        }
    }

    /// Lets the processes of a sandbox that ends use every CPU: the kernel closes what they have open in their own time.
    pub fn lift_cpu_limit(&self, id: &str) {
        match self {
            Self::V2(tree) => tree.lift_cpu_limit(id),
            Self::V1(tree) => tree.lift_cpu_limit(id),
            Self::None { .. } => {}
        }
    }

    /// Freezes all processes and waits until each is frozen: the kernel freezes them one by one. The commands come first: a program that
    /// waits for the runner's answer, as a reader of a file of `/proc` does, cannot be frozen before it has that answer.
    pub fn freeze(&self, id: &str) -> io::Result<()> {
        let deadline = Instant::now() + FREEZE_TIMEOUT;
        match self {
            Self::V2(tree) => tree.freeze(id, deadline),
            Self::V1(tree) => tree.freeze(id, deadline),
            Self::None { why } => Err(unsupported(why)),
        }
    }

    /// The number of processes in the cgroup that the kernel killed because memory ran out.
    pub fn oom_kills(&self, id: &str) -> u64 {
        match self {
            Self::V2(tree) => tree.oom_kills(id),
            Self::V1(tree) => tree.oom_kills(id),
            Self::None { .. } => 0,
        }
    }

    /// The ids of all sandboxes that have a cgroup.
    pub fn list(&self) -> io::Result<Vec<String>> {
        match self {
            Self::V2(tree) => children(&tree.root),
            Self::V1(tree) => {
                let mut all = Vec::new();
                for root in tree.roots() {
                    all.extend(children(root)?);
                }
                all.sort();
                all.dedup();
                Ok(all)
            }
            Self::None { .. } => Ok(Vec::new()),
        }
    }

    /// Removes the daemon's own directory, if the last sandbox is gone.
    pub fn close(&self) {
        let roots: Vec<&Path> = match self {
            Self::V2(tree) => vec![&tree.root],
            Self::V1(tree) => tree.roots().collect(),
            Self::None { .. } => Vec::new(),
        };
        for root in roots {
            let _ = std::fs::remove_dir(root);
        }
    }

    fn remove_directories(&self, id: &str) -> io::Result<()> {
        let directories: Vec<PathBuf> = match self {
            Self::V2(tree) => vec![tree.root.join(id)],
            Self::V1(tree) => tree.roots().map(|root| root.join(id)).collect(),
            Self::None { .. } => Vec::new(),
        };
        let with_leaves = |directory: PathBuf| LEAVES.map(|leaf| directory.join(leaf)).into_iter().chain([directory]);
        for directory in directories.into_iter().flat_map(with_leaves) {
            match std::fs::remove_dir(&directory) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn kill(&self, id: &str) -> io::Result<()> {
        match self {
            Self::V2(tree) => tree.kill(id),
            Self::V1(tree) => tree.kill(id),
            Self::None { .. } => Ok(()),
        }
    }
}

fn not_frozen() -> io::Error {
    let message = format!("a process hangs in the kernel: not frozen after {} s", FREEZE_TIMEOUT.as_secs());
    io::Error::new(io::ErrorKind::TimedOut, message)
}

fn unsupported(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, why.to_owned())
}

fn children(root: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(root)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            names.extend(entry.file_name().into_string().ok());
        }
    }
    Ok(names)
}

fn read(path: &Path) -> io::Result<String> {
    use std::io::Read as _;
    let mut text = String::new();
    std::fs::File::open(path).map_err(named(path))?.take(MAX_FILE_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

fn read_number(path: &Path) -> io::Result<u64> {
    let text = read(path)?;
    text.trim().parse().map_err(|_| io::Error::other(format!("{} holds {text:?}, not a number", path.display())))
}

/// The number after `key` in a file of `key value` lines.
fn read_keyed(path: &Path, key: &str) -> Option<u64> {
    keyed(&read(path).ok()?, key)
}

fn keyed(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
}

/// Reads an open file from its beginning.
fn read_again(mut file: &std::fs::File) -> io::Result<String> {
    use std::io::{Read as _, Seek as _};
    let mut text = String::new();
    file.rewind()?;
    file.take(MAX_FILE_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

fn write(path: &Path, value: &str) -> io::Result<()> {
    std::fs::write(path, value).map_err(named(path))
}

fn named(path: &Path) -> impl Fn(io::Error) -> io::Error {
    let path = path.display().to_string();
    move |error| io::Error::new(error.kind(), format!("{path}: {error}"))
}

/// Sends SIGKILL to each process in a sandbox's cgroup: `directory` and what is below it. Call it only for the daemon's own cgroups.
fn kill_all(directory: &Path) -> io::Result<()> {
    let places = LEAVES.map(|leaf| directory.join(leaf)).into_iter().chain([directory.to_owned()]);
    places.into_iter().try_for_each(|place| kill_listed(&place.join("cgroup.procs")))
}

/// Sends SIGKILL to each process that a `cgroup.procs` file lists.
fn kill_listed(procs: &Path) -> io::Result<()> {
    for pids in listed(procs)?.chunks(HELD_AT_ONCE) {
        // Each process is held by a descriptor before the list is read again. If its number is still listed then, the descriptor
        // means that process, and not another that got the number in between.
        let held: Vec<(i32, OwnedFd)> = pids.iter().filter_map(|pid| Some((*pid, pidfd::open(*pid).ok()?))).collect();
        let still = listed(procs)?;
        for (_, process) in held.iter().filter(|(pid, _)| still.contains(pid)) {
            let _ = pidfd::kill(process.as_fd());
        }
    }
    Ok(())
}

fn listed(procs: &Path) -> io::Result<Vec<i32>> {
    match read(procs) {
        // A process of another pid namespace is listed as 0.
        Ok(text) => Ok(text.lines().filter_map(|line| line.parse().ok()).filter(|pid| *pid > 1).collect()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// The errors of several attempts.
fn errors<const N: usize>(attempts: [io::Result<()>; N]) -> Vec<io::Error> {
    attempts.into_iter().filter_map(Result::err).collect()
}

/// The time in each period that `cpus` allows, in microseconds.
pub fn cpu_quota(cpus: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked to be a small positive number"
    )]
    let quota = (cpus * 100_000.0).round() as u64;
    // This is the kernel's minimum.
    quota.max(1_000)
}
