//! A daemon for one command alone, where none runs.
//!
//! It lives as long as the pipe that is its standard input: when this process ends, by `kill -9` too, the pipe closes and the
//! daemon destroys its sessions, removes its data directory and ends. Its key is made here and known to the two alone.

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::exit::Failure;
use crate::client::{ApiKey, Client, Endpoint};

const START_PATIENCE: Duration = Duration::from_secs(20);
/// The daemon gives its own sessions a while to end.
const STOP_PATIENCE: Duration = Duration::from_secs(30);
/// The first line is short; a program that is no daemon may print anything.
const MAX_FIRST_LINE: u64 = 4 << 10;
const LISTENING: &str = "listening on ";
/// Imported ones are the user's, not the daemon's: here as a link, which goes without them.
const IMAGES: &str = "images";
const LOG_FILE: &str = "daemon.log";
const LOG_LINES_SHOWN: usize = 5;
const KEY_BYTES: usize = 32;
/// By which a directory is known to be one of these; nothing else is ever removed.
pub const DIR_PREFIX: &str = "cove-private-";

/// A fresh directory that nobody else can look into; removed with all that is in it.
pub struct ScratchDir(PathBuf);

impl ScratchDir {
    pub fn new() -> Result<Self, Failure> {
        let path = std::env::temp_dir().join(format!("{DIR_PREFIX}{}", random_hex(6)?));
        std::fs::DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .map_err(|e| Failure::failed(format!("cannot make {}: {e}", path.display())))?;
        Ok(Self(path))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// From now on another removes it.
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
    /// Closing it ends the daemon.
    lifeline: Option<ChildStdin>,
    /// Open, so that what it prints later does not fail.
    _stdout: BufReader<ChildStdout>,
    /// The daemon removes it at its end, and may still need it if nobody waits for that.
    dir: PathBuf,
    client: Client,
}

impl PrivateDaemon {
    pub async fn start(images: Option<&Path>) -> Result<Self, Failure> {
        let failed =
            |what: &str, e: std::io::Error| Failure::failed(format!("cannot start a private daemon: {what}: {e}"));
        let scratch = ScratchDir::new()?;
        let dir = scratch.path();
        let log = std::fs::File::create(dir.join(LOG_FILE)).map_err(|e| failed(LOG_FILE, e))?;
        if let Some(images) = images.filter(|images| images.is_dir()) {
            std::os::unix::fs::symlink(images, dir.join(IMAGES)).map_err(|e| failed(IMAGES, e))?;
        }
        let key = random_hex(KEY_BYTES)?;
        let mut command = Command::new("/proc/self/exe");
        command
            .args(["serve", "--until-stdin-closes", "--remove-data-dir", "--listen", "127.0.0.1:0", "--data-dir"])
            .arg(dir)
            .env("COVE_API_KEY", &key)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            // Ctrl-C is for the command; the daemon ends after it, in order.
            .process_group(0);
        let mut child = command.spawn().map_err(|e| failed("/proc/self/exe", e))?;
        let (Some(lifeline), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Failure::failed("cannot start a private daemon: it has no pipes"));
        };
        let mut stdout = BufReader::new(stdout);
        let started = tokio::time::timeout(START_PATIENCE, first_line(&mut stdout)).await;
        let endpoint = match &started {
            Ok(Some(line)) => line.strip_prefix(LISTENING).and_then(|url| Endpoint::parse(url.trim()).ok()),
            Ok(None) | Err(_) => None,
        };
        let Some(endpoint) = endpoint else {
            let why =
                if started.is_err() { "it did not begin to listen in time" } else { "it did not begin to listen" };
            let failure = Failure::failed(format!("cannot start a private daemon: {why}{}", end_of_log(dir)));
            drop(lifeline);
            let _ = child.kill().await;
            return Err(failure);
        };
        let client = Client::new(endpoint, ApiKey::new(key));
        Ok(Self { child, lifeline: Some(lifeline), _stdout: stdout, dir: scratch.leave(), client })
    }

    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Ends it, and does not return before it is gone with all it had.
    pub async fn stop(mut self) {
        drop(self.lifeline.take());
        if tokio::time::timeout(STOP_PATIENCE, self.child.wait()).await.is_err() {
            let _ = self.child.kill().await;
        }
        // It removes the directory itself, unless it was killed.
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// None where it ended, or said something that is no line of text.
async fn first_line(stdout: &mut BufReader<ChildStdout>) -> Option<String> {
    let mut line = String::new();
    stdout.take(MAX_FIRST_LINE).read_line(&mut line).await.ok().filter(|read| *read > 0)?;
    Some(line)
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
    getrandom::fill(&mut random).map_err(|e| Failure::failed(format!("no random bytes: {e}")))?;
    Ok(random.iter().map(|byte| format!("{byte:02x}")).collect())
}
