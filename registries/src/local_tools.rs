//! This machine: runs real programs, reads real files, resolves real names, each with a bound.
//!
//! A program gets its own process group. When it ends or its time is over, the whole group is killed before the program is
//! reaped, so the group's id cannot belong to anybody else by then.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{IpAddr, ToSocketAddrs};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use crate::toolbox::{Invocation, Output, ReadError, RunError, Tools};

/// Bytes that a program may print on each of its two streams.
const MAX_OUTPUT_BYTES: u64 = 4 << 20;
/// Bytes of a configuration file.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// Files of a directory.
const MAX_FILES: usize = 256;
/// How long a name may take to resolve.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(3);
/// How long the output of a program that has ended may take. Only a process that left the group can hold it open.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);
/// What a program sees in addition: no colours, English messages, and no download of a tool that is only a stub.
const VARIABLES: [(&str, &str); 3] = [("NO_COLOR", "1"), ("LC_ALL", "C.UTF-8"), ("COREPACK_ENABLE_NETWORK", "0")];

/// The machine that the daemon runs on, with the environment of the daemon's user.
#[derive(Debug, Clone, Copy, Default)]
pub struct LocalTools;

impl Tools for LocalTools {
    fn run(&self, invocation: &Invocation) -> Result<Output, RunError> {
        let deadline = Instant::now() + invocation.timeout;
        let scratch = invocation.scratch_variable.as_ref().map(|_| Scratch::new()).transpose().map_err(RunError::Io)?;
        let mut command = Command::new(&invocation.program);
        command.args(&invocation.arguments).envs(VARIABLES).current_dir("/").process_group(0);
        command.envs(invocation.variables.iter().map(|(name, value)| (name, value)));
        if let (Some(name), Some(scratch)) = (&invocation.scratch_variable, &scratch) {
            command.env(name, &scratch.0);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => RunError::NotInstalled,
            _ => RunError::Io(error),
        })?;
        finish(child, invocation.stdin.clone(), deadline)
    }

    fn read(&self, path: &Path) -> Result<String, ReadError> {
        let metadata = fs::metadata(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => ReadError::Missing,
            _ => ReadError::Io(error),
        })?;
        // Opening a FIFO or a device could block.
        if !metadata.is_file() {
            return Err(ReadError::NotText);
        }
        let mut bytes = Vec::new();
        let file = File::open(path).map_err(ReadError::Io)?;
        file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(ReadError::Io)?;
        match bytes {
            bytes if bytes.len() as u64 > MAX_FILE_BYTES => Err(ReadError::TooLarge),
            bytes if bytes.contains(&0) => Err(ReadError::NotText),
            bytes => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        }
    }

    fn list(&self, directory: &Path) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
        let mut paths: Vec<PathBuf> = entries.take(MAX_FILES).flatten().map(|entry| entry.path()).collect();
        paths.sort();
        paths
    }

    fn variables(&self) -> Vec<(String, String)> {
        std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect()
    }

    fn resolve(&self, host: &str) -> Vec<IpAddr> {
        let (sender, receiver) = mpsc::channel();
        let host = host.to_owned();
        // The system's resolver cannot be interrupted. The thread ends by the resolver's own time limit.
        thread::spawn(move || {
            let addresses = (host.as_str(), 0).to_socket_addrs().map(|found| found.map(|a| a.ip()).collect());
            let _ = sender.send(addresses.unwrap_or_default());
        });
        receiver.recv_timeout(RESOLVE_TIMEOUT).unwrap_or_default()
    }
}

/// Feeds and reads a program until it ends or the deadline passes.
fn finish(mut child: Child, stdin: Vec<u8>, deadline: Instant) -> Result<Output, RunError> {
    if let Some(mut pipe) = child.stdin.take() {
        // It ends when the program reads everything, or ends.
        thread::spawn(move || pipe.write_all(&stdin));
    }
    let stdout = child.stdout.take().map(read_apart);
    let stderr = child.stderr.take().map(read_apart);
    let is_ended = wait_apart(&child).recv_timeout(deadline.saturating_duration_since(Instant::now())).is_ok();
    if let Some(group) = group_of(&child) {
        let _ = kill_process_group(group, Signal::KILL);
    }
    let status = child.wait().map_err(RunError::Io)?;
    if !is_ended {
        return Err(RunError::TimedOut);
    }
    let received = |stream: Option<Receiver<Vec<u8>>>| match stream.map(|s| s.recv_timeout(DRAIN_TIMEOUT)) {
        Some(Ok(bytes)) if bytes.len() as u64 > MAX_OUTPUT_BYTES => Err(RunError::TooMuchOutput),
        Some(Ok(bytes)) => Ok(bytes),
        _ => Err(RunError::TimedOut),
    };
    Ok(Output { stdout: received(stdout)?, stderr: received(stderr)?, code: status.code() })
}

/// Reads a stream in a thread of its own. Beyond the bound the pipe is closed, which ends most programs.
fn read_apart(stream: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = stream.take(MAX_OUTPUT_BYTES + 1).read_to_end(&mut bytes);
        let _ = sender.send(bytes);
    });
    receiver
}

/// Reports the end of a program without reaping it.
fn wait_apart(child: &Child) -> Receiver<()> {
    let (sender, receiver) = mpsc::channel();
    let pid = group_of(child);
    thread::spawn(move || {
        if let Some(pid) = pid {
            let _ = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
        }
        let _ = sender.send(());
    });
    receiver
}

/// The program's process group, whose id is the program's own.
fn group_of(child: &Child) -> Option<Pid> {
    i32::try_from(child.id()).ok().and_then(Pid::from_raw)
}

/// An empty directory that only this user can enter. It is removed when it is dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> io::Result<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map(|d| d.as_nanos()).unwrap_or_default();
        let name = format!("cove-detect-{}-{}-{now}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        // It fails if the name exists, so nobody can prepare it.
        fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
#[path = "local_tools_test.rs"]
mod tests;
