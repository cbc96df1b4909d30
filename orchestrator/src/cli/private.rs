//! A private daemon, for one command, where no daemon runs.
//!
//! Its standard input is a pipe from this process. When this process ends, even by `kill -9`, the pipe closes, and the daemon ends
//! its sessions, removes its data directory and exits. Its key is made here, and only the two processes know it.

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::exit::Failure;
use crate::client::{ApiKey, Client, Endpoint};
use crate::server::banner::{LISTENING, WARNING};

const START_TIMEOUT: Duration = Duration::from_secs(20);
/// Long, because the daemon gives its sessions time to end.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);
/// The most that is read of what the daemon prints when it listens.
const MAX_ANNOUNCEMENT: u64 = 4 << 10;
/// A link to the user's images. Removing the private data directory removes the link and not the images.
pub const IMAGES: &str = "images";
const LOG_FILE: &str = "daemon.log";
const LOG_LINES_SHOWN: usize = 5;
const KEY_BYTES: usize = 32;
/// The prefix of private data directories. No other directory is ever removed.
pub const DIR_PREFIX: &str = "cove-private-";

/// A new directory that only its owner can read. It is removed, with all that is in it, when this is dropped.
pub struct ScratchDir(PathBuf);

impl ScratchDir {
    pub fn new() -> Result<Self, Failure> {
        Self::below(&std::env::temp_dir())
    }

    /// A directory in another one, to learn about the file system that has it.
    pub fn below(directory: &Path) -> Result<Self, Failure> {
        let path = directory.join(format!("{DIR_PREFIX}{}", random_hex(6)?));
        std::fs::DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .map_err(|e| Failure::failed(format!("cannot make {}: {e}", path.display())))?;
        Ok(Self(path))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// A data directory for a private daemon, which uses the images of `images`, and adds to them what it pulls.
    pub fn with_images(images: Option<&Path>) -> Result<Self, Failure> {
        let scratch = Self::new()?;
        if let Some(images) = images.filter(|images| images.is_dir()) {
            std::os::unix::fs::symlink(images, scratch.path().join(IMAGES))
                .map_err(|e| Failure::failed(format!("cannot use the images in {}: {e}", images.display())))?;
        }
        Ok(scratch)
    }

    /// Leaves the directory for somebody else to remove.
    fn leave(mut self) -> PathBuf {
        std::mem::take(&mut self.0)
    }
}

impl Drop for ScratchDir {
    fn drop(&mut self) {
        if !self.0.as_os_str().is_empty() {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}

pub struct PrivateDaemon {
    child: Child,
    /// The daemon's standard input. Closing it ends the daemon.
    stdin: Option<ChildStdin>,
    /// Kept open, so that the daemon can go on printing.
    _stdout: BufReader<ChildStdout>,
    /// The daemon removes it when it ends, unless it is killed.
    dir: PathBuf,
    client: Client,
    /// What this host does not enforce, for the user.
    warning: Option<String>,
}

impl PrivateDaemon {
    pub async fn start(images: Option<&Path>) -> Result<Self, Failure> {
        let failed =
            |what: &str, e: std::io::Error| Failure::failed(format!("cannot start a private daemon: {what}: {e}"));
        let scratch = ScratchDir::with_images(images)?;
        let dir = scratch.path();
        let log = std::fs::File::create(dir.join(LOG_FILE)).map_err(|e| failed(LOG_FILE, e))?;
        let key = random_hex(KEY_BYTES)?;
        let mut command = Command::new("/proc/self/exe");
        command
            .args(["serve", "--until-stdin-closes", "--remove-data-dir", "--listen", "127.0.0.1:0", "--data-dir"])
            .arg(dir)
            .env("COVE_API_KEY", &key)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            // So that Ctrl-C reaches this process and not the daemon, which ends after it.
            .process_group(0);
        let mut child = command.spawn().map_err(|e| failed("/proc/self/exe", e))?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Failure::failed("cannot start a private daemon: it has no pipes"));
        };
        let mut stdout = BufReader::new(stdout);
        let started = tokio::time::timeout(START_TIMEOUT, announcement(&mut stdout)).await;
        let Ok(Some(Announcement { endpoint, warning })) = started else {
            let why =
                if started.is_err() { "it did not start to listen in time" } else { "it did not start to listen" };
            let failure = Failure::failed(format!("cannot start a private daemon: {why}{}", end_of_log(dir)));
            drop(stdin);
            let _ = child.kill().await;
            return Err(failure);
        };
        let client = Client::new(endpoint, ApiKey::new(key));
        Ok(Self { child, stdin: Some(stdin), _stdout: stdout, dir: scratch.leave(), client, warning })
    }

    pub fn client(&self) -> Client {
        self.client.clone()
    }

    pub fn warning(&self) -> Option<&str> {
        self.warning.as_deref()
    }

    /// Ends the daemon, and waits until it and its data directory are gone.
    pub async fn stop(mut self) {
        drop(self.stdin.take());
        if tokio::time::timeout(STOP_TIMEOUT, self.child.wait()).await.is_err() {
            let _ = self.child.kill().await;
        }
        // It removes the directory itself, unless it was killed.
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// What a daemon prints when it listens.
struct Announcement {
    endpoint: Endpoint,
    warning: Option<String>,
}

/// Reads lines up to the first empty one; `None` if the daemon ended, or said something else.
async fn announcement(stdout: &mut BufReader<ChildStdout>) -> Option<Announcement> {
    let mut lines = stdout.take(MAX_ANNOUNCEMENT).lines();
    let first = lines.next_line().await.ok()??;
    let endpoint = Endpoint::parse(first.strip_prefix(LISTENING)?.trim()).ok()?;
    let mut warning = None;
    while let Some(line) = lines.next_line().await.ok()?.filter(|line| !line.is_empty()) {
        warning = warning.or(line.strip_prefix(WARNING).map(str::to_owned));
    }
    Some(Announcement { endpoint, warning })
}

fn end_of_log(dir: &Path) -> String {
    let text = std::fs::read(dir.join(LOG_FILE)).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    let shown = &lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..];
    shown.iter().map(|line| format!("\n  {line}")).collect()
}

pub fn random_hex(bytes: usize) -> Result<String, Failure> {
    let mut random = vec![0; bytes];
    getrandom::fill(&mut random).map_err(|e| Failure::failed(format!("cannot get random bytes: {e}")))?;
    Ok(random.iter().map(|byte| format!("{byte:02x}")).collect())
}
