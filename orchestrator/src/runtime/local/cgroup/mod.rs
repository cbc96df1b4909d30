//! Limits and accounts of sandboxes, by cgroups: version 2, version 1, or none where an ordinary user has not been given any.
//!
//! Each daemon has one directory of its own, `cove-HASH` by its data directory, and each sandbox one below it. Whatever is
//! there is ours, and nothing else is touched.

mod detect;
mod v1;
mod v2;

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use shared_protocol::api::{ResourcesView, StatsView};

pub use detect::{Available, detect};

/// What a cgroup of the kernel's says about out-of-memory kills, memory, processes and so on is short.
const MAX_FILE_BYTES: u64 = 64 << 10;

/// The scheduler's period; a quota is a share of it.
const CPU_PERIOD_USEC: u64 = 100_000;

/// What all sandboxes together weigh where processors are short, in percent of what everything else on the host does by itself. They
/// have all that is idle, and never hold up the daemon, which their clients wait for. A wish: where it is refused the limits hold.
const WEIGHT_PERCENT: u64 = 25;

/// For a directory to become empty after its last process was killed: the kernel lets go of them a moment later.
const REMOVE_TRIES: u32 = 200;
const REMOVE_PAUSE: Duration = Duration::from_millis(5);

/// For all processes of a sandbox to stop. Milliseconds, but for one that waits in the kernel for a disk.
const FREEZE_TIMEOUT: Duration = Duration::from_secs(3);

/// All sandboxes' cgroups of one daemon.
#[derive(Debug, Clone)]
pub enum Cgroups {
    V2(v2::Tree),
    V1(v1::Tree),
    None { why: String },
}

/// One sandbox's, as the launcher needs it.
#[derive(Debug, Clone, Default)]
pub struct Placement {
    /// To be written the number of the sandbox's first process to.
    pub procs: Vec<PathBuf>,
    /// What the sandbox may see of it: host path, and name below `/sys/fs/cgroup`.
    pub visible: Vec<(PathBuf, String)>,
}

impl Cgroups {
    /// Finds what this process may use and makes the daemon's own directory.
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

    /// Makes a sandbox's cgroup with its limits in force. On an error nothing is left.
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

    /// Kills whatever is in it and removes it. What is not there is no error.
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

    /// Stops or continues all processes at once.
    pub fn freeze(&self, id: &str, frozen: bool) -> io::Result<()> {
        match self {
            Self::V2(tree) => tree.freeze(id, frozen),
            Self::V1(tree) => tree.freeze(id, frozen),
            Self::None { why } => Err(unsupported(why)),
        }
    }

    /// Stops all processes and waits until each has stopped: the kernel does so one by one.
    pub fn freeze_all(&self, id: &str) -> io::Result<()> {
        self.freeze(id, true)?;
        let deadline = Instant::now() + FREEZE_TIMEOUT;
        match self {
            Self::V2(tree) => tree.wait_frozen(id, deadline),
            Self::V1(tree) => tree.wait_frozen(id, deadline),
            Self::None { why } => Err(unsupported(why)),
        }
    }

    /// How many processes the kernel killed in it for memory.
    pub fn oom_kills(&self, id: &str) -> u64 {
        match self {
            Self::V2(tree) => tree.oom_kills(id),
            Self::V1(tree) => tree.oom_kills(id),
            Self::None { .. } => 0,
        }
    }

    /// Sandboxes that have a cgroup here.
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

    /// The daemon's own directory, once the last sandbox is gone.
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
        for directory in directories {
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

/// The number behind `key` in a file of `key value` lines.
fn read_keyed(path: &Path, key: &str) -> Option<u64> {
    keyed(&read(path).ok()?, key)
}

fn keyed(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
}

/// A file that is kept open, from its beginning.
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

/// KILL to each process that is listed, by number: only for what is below a cgroup of ours.
fn kill_listed(procs: &Path) -> io::Result<()> {
    let text = match read(procs) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    for pid in text.lines().filter_map(|line| line.parse::<i32>().ok()).filter(|pid| *pid > 1) {
        let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL);
    }
    Ok(())
}

/// The share of one period that `cpus` allow.
fn cpu_quota(cpus: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked to be a small positive number"
    )]
    let quota = (cpus * 100_000.0).round() as u64;
    // The kernel's own minimum.
    quota.max(1_000)
}
