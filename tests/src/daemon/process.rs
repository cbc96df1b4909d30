//! Starting and ending the daemon.

use std::fs::OpenOptions;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::LazyLock;
use std::time::Duration;

use nix::sys::signal::Signal;
use tempfile::TempDir;

use super::{Api, Leftovers, Session};
use crate::procfs;
use crate::wait::{blocks_until, wait_until};

/// For a clean stop with sessions to end.
const STOP_DEADLINE: Duration = Duration::from_secs(60);

static BINARY: LazyLock<PathBuf> = LazyLock::new(|| match std::env::var_os("COVE_BIN") {
    Some(path) => std::path::absolute(path).expect("COVE_BIN is a path"),
    None => build(),
});

/// The one named by `COVE_BIN`, or a release build made now.
pub fn cove_binary() -> &'static Path {
    assert!(BINARY.is_file(), "no cove at {}", BINARY.display());
    &BINARY
}

fn build() -> PathBuf {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let built = Command::new("cargo")
        .args(["build", "--release", "--package", "orchestrator", "--target-dir", "target/e2e"])
        .current_dir(root)
        .status()
        .expect("cargo can be started");
    assert!(built.success(), "cargo build failed: {built}");
    Path::new(root).join("target/e2e/release/cove")
}

pub struct Daemon {
    api: Api,
    child: Option<Child>,
    /// Absent once another daemon has it.
    directory: Option<TempDir>,
    builder: DaemonBuilder,
    /// What its standard output said.
    pub banner: Vec<String>,
}

#[derive(Clone, Default)]
pub struct DaemonBuilder {
    arguments: Vec<String>,
    env: Vec<(String, String)>,
    config: Option<String>,
    user: Option<u32>,
}

impl std::ops::Deref for Daemon {
    type Target = Api;
    fn deref(&self) -> &Api {
        &self.api
    }
}

impl DaemonBuilder {
    pub fn arg(mut self, argument: &str) -> Self {
        self.arguments.push(argument.to_owned());
        self
    }

    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The text of its `cove.toml`.
    pub fn config(mut self, text: &str) -> Self {
        self.config = Some(text.to_owned());
        self
    }

    /// As an ordinary user; only root can ask for that.
    pub fn as_user(mut self, uid: u32) -> Self {
        self.user = Some(uid);
        self
    }

    pub async fn start(self) -> Daemon {
        let directory = tempfile::Builder::new().prefix("cove-e2e-").tempdir().expect("a temporary directory");
        if let Some(user) = self.user {
            std::os::unix::fs::chown(directory.path(), Some(user), Some(user)).expect("our own directory");
        } else {
            std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o700)).expect("our own directory");
        }
        self.start_in(directory)
    }

    fn command(&self, directory: &Path) -> Command {
        let log = OpenOptions::new().create(true).append(true).open(directory.join("log")).expect("our own directory");
        let mut command = match self.user {
            None => Command::new(cove_binary()),
            Some(user) => {
                let user = user.to_string();
                let mut command = Command::new("setpriv");
                // A copy, since the one there is may lie below somebody's home.
                let copy = directory.join("cove");
                std::fs::copy(cove_binary(), &copy).expect("a copy of the binary");
                command.args(["--reuid", &user, "--regid", &user, "--clear-groups", "--"]).arg(copy);
                command
            }
        };
        command.args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]).arg(directory.join("data"));
        command.args(&self.arguments);
        // Whatever the tester's own shell has for a daemon is not for this one.
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("COVE_")) {
            command.env_remove(name);
        }
        command.env("HOME", directory).current_dir("/");
        if let Some(text) = &self.config {
            let path = directory.join("cove.toml");
            std::fs::write(&path, text).expect("our own directory");
            command.arg("--config").arg(path);
        }
        command.envs(self.env.iter().cloned()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        command
    }

    fn start_in(self, directory: TempDir) -> Daemon {
        let data_dir = directory.path().join("data");
        let mut child = self.command(directory.path()).spawn().expect("the daemon can be started");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let first = lines.next().and_then(Result::ok).unwrap_or_default();
        let Some(address) = first.strip_prefix("listening on http://").and_then(|a| a.parse::<SocketAddr>().ok())
        else {
            let log = std::fs::read_to_string(directory.path().join("log")).unwrap_or_default();
            panic!("the first line is {first:?}\n{log}");
        };
        // The rest is short and comes at once; a thread reads on so that the daemon never waits for us.
        let (send, receive) = std::sync::mpsc::channel();
        std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| send.send(line)));
        let mut banner = vec![first];
        while let Ok(line) = receive.recv_timeout(Duration::from_millis(200)) {
            banner.push(line);
        }
        let key = std::fs::read_to_string(data_dir.join("api-key")).map(|key| key.trim().to_owned()).ok();
        let api = Api { address, key, headers: Vec::new() };
        Daemon { api, child: Some(child), directory: Some(directory), builder: self, banner }
    }
}

impl Daemon {
    pub async fn start() -> Self {
        Self::builder().start().await
    }

    pub fn builder() -> DaemonBuilder {
        DaemonBuilder::default()
    }

    /// The runner of a session, as the host sees it.
    pub fn runner_pid(&self, session: &Session) -> i32 {
        let path = self.data_dir().join("sandboxes").join(&session.id).join("record.json");
        let record = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let record: serde_json::Value = serde_json::from_slice(&record).expect("a record is JSON");
        record["process"]["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok()).expect("a record has a pid")
    }

    pub fn api(&self) -> &Api {
        &self.api
    }

    pub fn pid(&self) -> i32 {
        let child = self.child.as_ref().expect("it has not been stopped");
        i32::try_from(child.id()).expect("a pid")
    }

    pub fn data_dir(&self) -> PathBuf {
        self.directory().join("data")
    }

    pub fn directory(&self) -> &Path {
        self.directory.as_ref().expect("it has not been given away").path()
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.directory().join("log")).unwrap_or_default()
    }

    pub fn signal(&self, signal: Signal) {
        procfs::signal(self.pid(), signal);
    }

    /// Waits for it to end by itself.
    pub async fn ended(&mut self) -> ExitStatus {
        let child = self.child.as_mut().expect("it has not been stopped");
        let status =
            wait_until("the daemon's end", STOP_DEADLINE, async || child.try_wait().expect("our own child")).await;
        self.child = None;
        status
    }

    /// A clean stop, and the same daemon again.
    pub async fn restart(mut self) -> Self {
        self.signal(Signal::SIGTERM);
        let status = self.ended().await;
        assert!(status.success(), "{status}\n{}", self.log());
        self.start_again()
    }

    /// The same daemon again, after it has ended in whatever way.
    pub fn start_again(mut self) -> Self {
        assert!(self.child.is_none(), "it still runs");
        let directory = self.directory.take().expect("it has not been given away");
        self.builder.clone().start_in(directory)
    }

    /// A clean stop, after which nothing of it may be left.
    pub async fn stop(mut self) {
        self.signal(Signal::SIGTERM);
        let status = self.ended().await;
        assert!(status.success(), "{status}\n{}", self.log());
        let left = Leftovers::of(&self.data_dir());
        assert!(left.is_empty(), "the daemon left something: {left:?}\n{}", self.log());
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        if std::thread::panicking() {
            eprintln!("-- the daemon's log:\n{}", self.log());
        }
        procfs::signal(i32::try_from(child.id()).expect("a pid"), Signal::SIGTERM);
        if !blocks_until(STOP_DEADLINE, || child.try_wait().is_ok_and(|status| status.is_some())) {
            let _ = child.kill();
            let _ = child.wait();
        }
        // What a daemon that is broken leaves shall not outlive the story that found out.
        for process in Leftovers::runners(&self.data_dir()) {
            procfs::signal(process.pid, Signal::SIGKILL);
        }
    }
}
