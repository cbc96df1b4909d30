//! The daemon's side of a launch: it takes a launcher, sends it the plan, and holds the sandbox that the launcher made.
//!
//! One launcher is kept ready, because the start of a process takes two milliseconds. It has made the namespaces that are the same for
//! every sandbox, and waits for a plan. The next one is started when a sandbox runs, beside the start of its shell. Creates that come at
//! once start launchers of their own. A launcher that waits ends with the daemon: its standard input closes.

use std::io;
use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Take};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::launcher::{KEEP, NAMESPACES_AHEAD, SUBCOMMAND};
use super::plan::{LaunchPlan, LaunchReport};
use crate::runtime::RuntimeError;
use crate::sys::pidfd;

/// The longest wait for a launch. It takes milliseconds on an idle host, and longer when hundreds start at once.
const LAUNCH_TIMEOUT: Duration = Duration::from_secs(30);

const MAX_REPORT_BYTES: u64 = 64 << 10;

/// A sandbox whose first process is not yet the runner. If this is dropped, the launcher and the sandbox end.
pub struct Launched {
    pub pid: i32,
    pidfd: OwnedFd,
    launcher: Child,
    answer: ChildStdin,
    reports: Reports,
    launchers: Launchers,
}

/// The launcher's standard output.
type Reports = BufReader<Take<ChildStdout>>;

/// Starts launchers, and keeps one ready. Cheap to clone.
#[derive(Clone)]
pub struct Launchers(Arc<Shared>);

struct Shared {
    namespaces: Namespaces,
    stock: Stock,
    ready: Mutex<Option<Launcher>>,
}

/// When a launcher makes the namespaces that do not depend on the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Namespaces {
    /// Before it has the plan. The daemon must be root, and every sandbox must have all of them.
    Ahead,
    WithPlan,
}

/// How many launchers wait for a create.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stock {
    /// None, where only one sandbox is made.
    None,
    One,
}

/// A launcher that waits for its plan.
struct Launcher {
    process: Child,
    stdin: ChildStdin,
    stdout: ChildStdout,
}

impl Launcher {
    fn start(namespaces: Namespaces) -> io::Result<Self> {
        let mut process = Command::new("/proc/self/exe")
            .arg(SUBCOMMAND)
            .args((namespaces == Namespaces::Ahead).then_some(NAMESPACES_AHEAD))
            .env_clear()
            // The launcher runs newuidmap and newgidmap.
            .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .kill_on_drop(true)
            .spawn()?;
        match (process.stdin.take(), process.stdout.take()) {
            (Some(stdin), Some(stdout)) => Ok(Self { process, stdin, stdout }),
            _ => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    /// Whether it still waits. Something may have killed it.
    fn waits(&mut self) -> bool {
        matches!(self.process.try_wait(), Ok(None))
    }
}

impl Launchers {
    pub fn new(namespaces: Namespaces, stock: Stock) -> Self {
        Self(Arc::new(Shared { namespaces, stock, ready: Mutex::default() }))
    }

    fn ready(&self) -> MutexGuard<'_, Option<Launcher>> {
        // A panic under this lock leaves nothing half done.
        self.0.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> io::Result<Launcher> {
        let ready = self.ready().take();
        let waiting = ready.and_then(|mut launcher| launcher.waits().then_some(launcher));
        waiting.map_or_else(|| Launcher::start(self.0.namespaces), Ok)
    }

    /// Starts the launcher of the next create, unless there is one.
    fn restock(&self) {
        let mut ready = self.ready();
        if self.0.stock == Stock::One && ready.is_none() {
            // The next create starts its own launcher then, and reports the error.
            *ready = Launcher::start(self.0.namespaces).ok();
        }
    }

    pub async fn launch(&self, plan: &LaunchPlan) -> Result<Launched, RuntimeError> {
        match tokio::time::timeout(LAUNCH_TIMEOUT, start(self, plan)).await {
            Ok(result) => result,
            Err(_) => Err(failed("launching the sandbox", io::Error::from(io::ErrorKind::TimedOut))),
        }
    }
}

async fn start(launchers: &Launchers, plan: &LaunchPlan) -> Result<Launched, RuntimeError> {
    let Launcher { process, mut stdin, stdout } =
        launchers.take().map_err(|error| failed("starting the launcher", error))?;
    let text = serde_json::to_vec(plan).map_err(|e| failed("writing the plan", e.into()))?;
    let mut message = u64::try_from(text.len()).unwrap_or(u64::MAX).to_le_bytes().to_vec();
    message.extend(text);
    // If the launcher has ended, its standard output says why.
    let _ = stdin.write_all(&message).await;
    let mut reports = BufReader::new(stdout.take(MAX_REPORT_BYTES));
    match next(&mut reports).await? {
        LaunchReport::Started { pid } => {
            // The launcher is its parent and has not waited for it, so no other process can have the number.
            let pidfd = pidfd::open(pid).map_err(|e| failed("opening the sandbox's first process", e))?;
            Ok(Launched { pid, pidfd, launcher: process, answer: stdin, reports, launchers: launchers.clone() })
        }
        LaunchReport::Running => Err(failed(READING_REPORT, io::ErrorKind::InvalidData.into())),
        LaunchReport::Failed { step, error } => Err(RuntimeError::failed(step, error)),
    }
}

const READING_REPORT: &str = "reading the launcher's report";

async fn next(reports: &mut Reports) -> Result<LaunchReport, RuntimeError> {
    let mut line = String::new();
    reports.read_line(&mut line).await.map_err(|e| failed(READING_REPORT, e))?;
    serde_json::from_str(&line).map_err(|_| failed(READING_REPORT, io::Error::other("it ended without one")))
}

impl Launched {
    /// Another descriptor of the first process.
    pub fn process(&self) -> io::Result<OwnedFd> {
        self.pidfd.try_clone()
    }

    /// Lets the first process become the runner, and the launcher exit. From now on the sandbox outlives the launcher and this
    /// daemon, so it must be recorded.
    pub async fn keep(mut self) -> Result<(i32, OwnedFd), RuntimeError> {
        match tokio::time::timeout(LAUNCH_TIMEOUT, self.released()).await {
            Ok(result) => {
                self.launchers.restock();
                result.map(|()| (self.pid, self.pidfd))
            }
            Err(_) => Err(failed("launching the sandbox", io::ErrorKind::TimedOut.into())),
        }
    }

    async fn released(&mut self) -> Result<(), RuntimeError> {
        // If the launcher has ended, its standard output says why.
        let _ = self.answer.write_all(&[KEEP]).await;
        match next(&mut self.reports).await? {
            LaunchReport::Running => {}
            LaunchReport::Started { .. } => return Err(failed(READING_REPORT, io::ErrorKind::InvalidData.into())),
            LaunchReport::Failed { step, error } => return Err(RuntimeError::failed(step, error)),
        }
        let step = "releasing the launcher";
        let status = self.launcher.wait().await.map_err(|e| failed(step, e))?;
        if status.success() { Ok(()) } else { Err(failed(step, io::Error::other(format!("it ended with {status}")))) }
    }
}

fn failed(step: &str, error: io::Error) -> RuntimeError {
    RuntimeError::failed(step, error)
}
