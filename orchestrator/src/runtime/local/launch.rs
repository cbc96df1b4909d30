//! The daemon's side of a launch: it starts the launcher, sends it the plan, and holds the sandbox that the launcher made.

use std::io;
use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Take};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::launcher::{KEEP, SUBCOMMAND};
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
}

/// The launcher's standard output.
type Reports = BufReader<Take<ChildStdout>>;

pub async fn launch(plan: &LaunchPlan) -> Result<Launched, RuntimeError> {
    match tokio::time::timeout(LAUNCH_TIMEOUT, start(plan)).await {
        Ok(result) => result,
        Err(_) => Err(failed("launching the sandbox", io::Error::from(io::ErrorKind::TimedOut))),
    }
}

async fn start(plan: &LaunchPlan) -> Result<Launched, RuntimeError> {
    let mut launcher = Command::new("/proc/self/exe")
        .arg(SUBCOMMAND)
        .env_clear()
        // The launcher runs newuidmap and newgidmap.
        .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .kill_on_drop(true)
        .spawn()
        .map_err(|e| failed("starting the launcher", e))?;
    let (Some(mut stdin), Some(stdout)) = (launcher.stdin.take(), launcher.stdout.take()) else {
        return Err(failed("starting the launcher", io::Error::from(io::ErrorKind::BrokenPipe)));
    };
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
            Ok(Launched { pid, pidfd, launcher, answer: stdin, reports })
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
            Ok(result) => result.map(|()| (self.pid, self.pidfd)),
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
