//! The daemon's side of a launch: starts the launcher, hands it the plan, and holds what it made.

use std::io;
use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, Command};

use super::launcher::{KEEP, WORD};
use super::plan::{LaunchPlan, LaunchReport};
use crate::runtime::RuntimeError;
use crate::sys::pidfd;

/// For a whole launch; milliseconds on an idle host, more when hundreds start at once.
const LAUNCH_TIMEOUT: Duration = Duration::from_secs(30);

const MAX_REPORT_BYTES: u64 = 64 << 10;

/// A sandbox whose launcher still waits: dropped, both end.
pub struct Launched {
    pub pid: i32,
    pidfd: OwnedFd,
    launcher: Child,
    answer: ChildStdin,
}

pub async fn launch(plan: &LaunchPlan) -> Result<Launched, RuntimeError> {
    match tokio::time::timeout(LAUNCH_TIMEOUT, start(plan)).await {
        Ok(result) => result,
        Err(_) => Err(failed("launching the sandbox", io::Error::from(io::ErrorKind::TimedOut))),
    }
}

async fn start(plan: &LaunchPlan) -> Result<Launched, RuntimeError> {
    let mut launcher = Command::new("/proc/self/exe")
        .arg(WORD)
        .env_clear()
        // For newuidmap.
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
    // A launcher that ended says why on its standard output.
    let _ = stdin.write_all(&message).await;
    let mut line = String::new();
    BufReader::new(stdout.take(MAX_REPORT_BYTES))
        .read_line(&mut line)
        .await
        .map_err(|e| failed("reading the launcher's report", e))?;
    let report = serde_json::from_str(&line)
        .map_err(|_| failed("reading the launcher's report", io::Error::other("it ended without one")))?;
    match report {
        LaunchReport::Started { pid } => {
            // The launcher is its parent and has not waited for it: the number cannot be another's.
            let pidfd = pidfd::open(pid).map_err(|e| failed("holding the sandbox's first process", e))?;
            Ok(Launched { pid, pidfd, launcher, answer: stdin })
        }
        LaunchReport::Failed { step, error } => Err(RuntimeError::failed(step, error)),
    }
}

impl Launched {
    /// From now on the sandbox outlives the launcher and this daemon.
    pub async fn keep(mut self) -> Result<(i32, OwnedFd), RuntimeError> {
        let step = "letting the launcher go";
        self.answer.write_all(&[KEEP]).await.map_err(|e| failed(step, e))?;
        drop(self.answer);
        let status = tokio::time::timeout(LAUNCH_TIMEOUT, self.launcher.wait()).await;
        match status {
            Ok(Ok(status)) if status.success() => Ok((self.pid, self.pidfd)),
            Ok(Ok(status)) => Err(failed(step, io::Error::other(format!("it ended with {status}")))),
            Ok(Err(error)) => Err(failed(step, error)),
            Err(_) => Err(failed(step, io::Error::from(io::ErrorKind::TimedOut))),
        }
    }
}

fn failed(step: &str, error: io::Error) -> RuntimeError {
    RuntimeError::failed(step, error)
}
