//! Runs the commands of `cove` as a script does.

use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use super::{Daemon, cove_binary};
use crate::wait::wait_until;

/// The longest wait for a command. A command with its own daemon has to start and stop it.
const COMMAND_DEADLINE: Duration = Duration::from_secs(60);

/// The environment of commands: their home, their temporary directory, and the daemon that they find.
pub struct Cove {
    env: Vec<(String, String)>,
    /// The words before `cove`'s own arguments.
    program: Vec<OsString>,
}

#[derive(Debug)]
pub struct Finished {
    /// The exit code as a shell reports it: 128 plus the signal's number if a signal ended the command.
    pub code: i32,
    pub stdout: Vec<u8>,
    pub stderr: String,
}

impl Finished {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.stdout).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    /// The standard output of a command that must succeed.
    #[track_caller]
    pub fn ok(&self) -> String {
        assert_eq!(self.code, 0, "{self:?}");
        self.text()
    }
}

impl Cove {
    /// Commands for a daemon, found by its data directory.
    pub fn of(daemon: &Daemon) -> Self {
        Self::at(daemon.directory(), &daemon.data_dir())
    }

    /// Commands whose home and temporary directory is `home`.
    pub fn at(home: &Path, data_dir: &Path) -> Self {
        let env = [("HOME", home), ("TMPDIR", home), ("COVE_DATA_DIR", data_dir)];
        let env = env.map(|(name, path)| (name.to_owned(), path.to_string_lossy().into_owned())).to_vec();
        Self { env, program: vec![cove_binary().into()] }
    }

    /// Runs the commands as another user, which needs root. Their home becomes that user's.
    pub fn as_user(mut self, uid: u32, home: &Path) -> Self {
        std::os::unix::fs::chown(home, Some(uid), Some(uid)).expect("our own directory");
        // This is a copy, because the original may be in somebody's home directory.
        let copy = home.join("cove");
        std::fs::copy(cove_binary(), &copy).expect("a copy of the binary");
        let user = uid.to_string();
        let words = ["setpriv", "--reuid", &user, "--regid", &user, "--clear-groups", "--"];
        self.program = words.map(OsString::from).into_iter().chain([copy.into()]).collect();
        self
    }

    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn command(&self, args: &[impl AsRef<OsStr>]) -> Command {
        let mut command = Command::new(&self.program[0]);
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("COVE_")) {
            command.env_remove(name);
        }
        command.args(&self.program[1..]).args(args).envs(super::runtime::variables()).envs(self.env.iter().cloned());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub fn spawn(&self, args: &[&str]) -> Child {
        self.command(args).spawn().expect("cove can be started")
    }

    pub async fn run(&self, args: &[impl AsRef<OsStr>]) -> Finished {
        finished(self.command(args).spawn().expect("cove can be started")).await
    }

    pub async fn run_with_stdin(&self, args: &[&str], stdin: impl Into<Vec<u8>>) -> Finished {
        let mut child = self.command(args).stdin(Stdio::piped()).spawn().expect("cove can be started");
        let (mut pipe, bytes) = (child.stdin.take().expect("a pipe"), stdin.into());
        // The command may end before it has read everything; its exit code says why.
        std::thread::spawn(move || drop(pipe.write_all(&bytes)));
        finished(child).await
    }
}

/// Waits for the end of a command, with everything that it printed.
pub async fn finished(mut child: Child) -> Finished {
    use std::io::Read as _;
    use std::os::unix::process::ExitStatusExt as _;
    let (mut stdout, mut stderr) = (child.stdout.take().expect("a pipe"), child.stderr.take().expect("a pipe"));
    let printed = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        stdout.read_to_end(&mut bytes).map(|_| bytes)
    });
    let said = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        stderr.read_to_end(&mut bytes).map(|_| String::from_utf8_lossy(&bytes).into_owned())
    });
    let mut child = Killed(child);
    let status =
        wait_until("the command's end", COMMAND_DEADLINE, async || child.0.try_wait().expect("our own child")).await;
    let code = status.code().or(status.signal().map(|signal| 128 + signal)).expect("an end");
    let stdout = printed.join().expect("no panic").expect("a pipe");
    Finished { code, stdout, stderr: said.join().expect("no panic").expect("a pipe") }
}

/// Kills the command if the story stops waiting for it.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
