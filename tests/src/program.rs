//! The binary as a plain init: `runner -- COMMAND`.

use std::path::PathBuf;
use std::time::Duration;

use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::launch::{Launch, Launched, log_file};
use crate::procfs::Process;
use crate::wait::{DEADLINE, wait_until};

pub struct Program {
    launched: Launched,
    directory: TempDir,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Ended {
    /// The exit code. `None` if a signal killed the binary.
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Program {
    pub async fn start(command: &[&str]) -> Self {
        Self::start_with(&[], command).await
    }

    /// Starts it with flags of the init before the command.
    pub async fn start_with(flags: &[&str], command: &[&str]) -> Self {
        Self::launch(Launch::default(), flags, command).await
    }

    pub async fn start_as_pid1(command: &[&str]) -> Self {
        Self::launch(Launch { pid1: true, ..Launch::default() }, &[], command).await
    }

    async fn launch(launch: Launch, flags: &[&str], command: &[&str]) -> Self {
        let directory = tempfile::Builder::new().prefix("cove-e2e-").tempdir().expect("a temporary directory");
        let args: Vec<String> = [flags, &["--"], command].concat().into_iter().map(str::to_owned).collect();
        let (stdout, stderr) = (log_file(&directory.path().join("stdout")), log_file(&directory.path().join("stderr")));
        let launched = launch.start(&args, stdout, stderr).await;
        Self { launched, directory }
    }

    fn read(&self, name: &str) -> String {
        let path: PathBuf = self.directory.path().join(name);
        String::from_utf8_lossy(&std::fs::read(path).expect("our own file")).into_owned()
    }

    pub fn pid(&self) -> i32 {
        self.launched.pid
    }

    pub async fn until_output(&self, needle: &str) {
        wait_until(&format!("{needle:?} on standard output"), DEADLINE, async || {
            self.read("stdout").contains(needle).then_some(())
        })
        .await;
    }

    pub fn signal(&mut self, signal: Signal) {
        self.launched.signal(signal);
    }

    pub async fn ended(&mut self, deadline: Duration) -> Ended {
        let status = self.launched.wait(deadline).await;
        Ended { code: status.code(), stdout: self.read("stdout"), stderr: self.read("stderr") }
    }

    /// The processes that it started and that outlived it.
    pub fn left(&mut self) -> Vec<Process> {
        self.launched.left()
    }
}
