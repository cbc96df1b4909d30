//! Starts and ends the daemon.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{BufRead as _, BufReader};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::LazyLock;
use std::time::Duration;

use nix::sys::signal::Signal;
use tempfile::TempDir;

use super::{Api, Leftovers, Session, loop_devices_of, runtime};
use crate::procfs;
use crate::wait::{DEADLINE, blocks_until, wait_until};

/// The longest time for a clean stop that has to end sessions.
const STOP_DEADLINE: Duration = Duration::from_secs(60);

static BINARY: LazyLock<PathBuf> = LazyLock::new(|| match std::env::var_os("COVE_BIN") {
    Some(path) => std::path::absolute(path).expect("COVE_BIN is a path"),
    None => build(),
});

/// The daemon's binary: the one that `COVE_BIN` names, or a release build made now.
pub fn cove_binary() -> &'static Path {
    assert!(BINARY.is_file(), "no cove at {}", BINARY.display());
    &BINARY
}

fn build() -> PathBuf {
    cargo_build(&["--release"]).join("release/cove")
}

fn cargo_build(arguments: &[&str]) -> PathBuf {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let built = Command::new("cargo")
        .args(["build", "--package", "orchestrator", "--bin", "cove", "--target-dir", "target/e2e"])
        .args(arguments)
        .current_dir(root)
        .status()
        .expect("cargo can be started");
    assert!(built.success(), "cargo build failed: {built}");
    Path::new(root).join("target/e2e")
}

/// The variable that names failpoints, at which a daemon dies or fails.
const FAILPOINTS: &str = "COVE_FAILPOINTS";

static FAULTY: LazyLock<(PathBuf, Vec<String>)> = LazyLock::new(|| {
    let named = ["COVE_FAULT_BIN", "COVE_BIN"].iter().filter_map(std::env::var_os);
    let mut candidates = named.map(|path| std::path::absolute(path).expect("a path"));
    let with_names = |path: PathBuf| Some((failpoints_of(&path)?, path));
    let (names, path) = candidates.find_map(with_names).unwrap_or_else(|| {
        // A debug build has failpoints.
        with_names(cargo_build(&[]).join("debug/cove")).expect("a debug build has failpoints")
    });
    (path, names)
});

/// A binary with failpoints: `COVE_FAULT_BIN`, or `COVE_BIN` if it has some, or a debug build made now.
pub fn fault_binary() -> &'static Path {
    &FAULTY.0
}

/// The names of its failpoints.
pub fn failpoints() -> &'static [String] {
    &FAULTY.1
}

/// The names of a binary's failpoints: it lists them when it gets a wrong one. `None` if it has none.
fn failpoints_of(binary: &Path) -> Option<Vec<String>> {
    let output = Command::new(binary).arg("serve").env(FAILPOINTS, "?").stdin(Stdio::null()).output().ok()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let (_, names) = said.split_once("the names are ")?;
    Some(names.split_whitespace().map(str::to_owned).collect())
}

pub struct Daemon {
    api: Api,
    child: Option<Child>,
    /// The story's directory. Absent after the next daemon took it over.
    directory: Option<TempDir>,
    builder: DaemonBuilder,
    /// The lines that the daemon printed to standard output at its start.
    pub banner: Vec<String>,
}

#[derive(Clone, Default)]
pub struct DaemonBuilder {
    arguments: Vec<String>,
    env: Vec<(String, String)>,
    config: Option<String>,
    user: Option<u32>,
    binary: Option<PathBuf>,
    data_dir: Option<PathBuf>,
    keeps_sessions: bool,
    hosts: Option<String>,
    shown: Option<PathBuf>,
    name_server: Option<IpAddr>,
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

    /// Sets the text of `cove.toml`.
    pub fn config(mut self, text: &str) -> Self {
        self.config = Some(text.to_owned());
        self
    }

    /// Keeps sessions when TERM stops the daemon, which is the daemon's default. The daemons of other stories destroy
    /// theirs.
    pub fn keeps_sessions(mut self) -> Self {
        self.keeps_sessions = true;
        self
    }

    /// Sets failpoints at which the daemon dies or fails. Only a build with failpoints accepts them: see `fault_binary`.
    pub fn failpoints(mut self, points: &str) -> Self {
        self.env.retain(|(name, _)| name != FAILPOINTS);
        if !points.is_empty() {
            self.env.push((FAILPOINTS.to_owned(), points.to_owned()));
        }
        self.binary = Some(fault_binary().to_owned());
        self
    }

    /// Puts the data directory at this path instead of beside the log.
    pub fn data_dir(mut self, path: &Path) -> Self {
        self.data_dir = Some(path.to_owned());
        self
    }

    /// Starts the daemon as an ordinary user. Only root can do this.
    pub fn as_user(mut self, uid: u32) -> Self {
        self.user = Some(uid);
        self
    }

    /// Gives the daemon a file `/etc/hosts` of its own, so that these names have these addresses. Only root can do this.
    pub fn hosts(mut self, names: &[(&str, IpAddr)]) -> Self {
        self.hosts = Some(hosts_file(names));
        self
    }

    /// Gives the daemon a `/opt` of its own with this directory in it, at `/opt/shown`. Sandboxes see it. Only root can do this.
    pub fn shows_in_opt(mut self, directory: &Path) -> Self {
        self.shown = Some(directory.to_owned());
        self
    }

    /// The name server that the daemon asks for names that are not in its hosts file. It needs `hosts`.
    pub fn name_server(mut self, address: IpAddr) -> Self {
        self.name_server = Some(address);
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
        let mut words: Vec<OsString> = Vec::new();
        if let Some(hosts) = &self.hosts {
            std::fs::write(directory.join(HOSTS), hosts).expect("our own directory");
            let resolver = self.name_server.map(|address| format!("nameserver {address}\n"));
            let resolver = resolver.unwrap_or_else(|| std::fs::read_to_string(RESOLV_CONF).unwrap_or_default());
            std::fs::write(directory.join("resolv.conf"), resolver).expect("our own directory");
            words.extend(with_hosts(&directory.join(HOSTS)));
        }
        if let Some(shown) = &self.shown {
            words.extend(with_opt(shown));
        }
        match self.user {
            None => words.push(self.binary.as_deref().unwrap_or_else(|| cove_binary()).into()),
            Some(user) => {
                let user = user.to_string();
                // This is a copy, because the original may be in somebody's home directory.
                let copy = directory.join("cove");
                std::fs::copy(cove_binary(), &copy).expect("a copy of the binary");
                words.extend(["setpriv", "--reuid", &user, "--regid", &user, "--clear-groups", "--"].map(Into::into));
                words.push(copy.into());
            }
        }
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        command.args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]).arg(self.data_dir_in(directory));
        command.args(&self.arguments);
        // The variables of the tester's own shell must not configure this daemon.
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("COVE_")) {
            command.env_remove(name);
        }
        command.env("HOME", directory).current_dir("/").envs(runtime::variables());
        if !self.keeps_sessions {
            command.env("COVE_SESSIONS_ON_STOP", "destroy");
        }
        if let Some(text) = &self.config {
            let path = directory.join("cove.toml");
            std::fs::write(&path, text).expect("our own directory");
            command.arg("--config").arg(path);
        }
        command.envs(self.env.iter().cloned()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        command
    }

    fn data_dir_in(&self, directory: &Path) -> PathBuf {
        self.data_dir.clone().unwrap_or_else(|| directory.join("data"))
    }

    /// Starts the daemon in the story's directory. The data directory is `data` in it, unless another one was named.
    pub fn start_in(self, directory: TempDir) -> Daemon {
        let data_dir = self.data_dir_in(directory.path());
        let mut child = self.command(directory.path()).spawn().expect("the daemon can be started");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let first = lines.next().and_then(Result::ok).unwrap_or_default();
        let Some(address) = first.strip_prefix("listening on http://").and_then(|a| a.parse::<SocketAddr>().ok())
        else {
            let log = std::fs::read_to_string(directory.path().join("log")).unwrap_or_default();
            panic!("the first line is {first:?}\n{log}");
        };
        // The rest is short and comes at once. A thread continues to read, so that the daemon never blocks.
        let (send, receive) = std::sync::mpsc::channel();
        std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| send.send(line)));
        let mut banner = vec![first];
        while let Ok(line) = receive.recv_timeout(Duration::from_millis(200)) {
            banner.push(line);
        }
        let key = std::fs::read_to_string(data_dir.join("api-key")).map(|key| key.trim().to_owned()).ok();
        let api = Api { address, key, headers: Vec::new(), patience: DEADLINE };
        Daemon { api, child: Some(child), directory: Some(directory), builder: self, banner }
    }
}

/// The daemon's own `/etc/hosts` in the story's directory.
const HOSTS: &str = "hosts";
const RESOLV_CONF: &str = "/etc/resolv.conf";

fn hosts_file(names: &[(&str, IpAddr)]) -> String {
    names.iter().map(|(name, address)| format!("{address} {name}\n")).collect()
}

/// The words before a command that give it another `/etc/hosts`.
fn with_hosts(file: &Path) -> Vec<OsString> {
    let script =
        "mount --bind \"$0\" /etc/hosts && mount --bind \"${0%/*}/resolv.conf\" /etc/resolv.conf && exec \"$@\"";
    let mut words = ["unshare", "--mount", "--propagation", "slave", "sh", "-c", script].map(Into::into).to_vec();
    words.push(file.into());
    words
}

/// The words before a command that give it another `/opt`.
fn with_opt(directory: &Path) -> Vec<OsString> {
    let script = "mount -t tmpfs story /opt && mkdir /opt/shown && mount --bind \"$0\" /opt/shown && exec \"$@\"";
    let mut words = ["unshare", "--mount", "--propagation", "slave", "sh", "-c", script].map(Into::into).to_vec();
    words.push(directory.into());
    words
}

impl Daemon {
    /// Changes the addresses that names have for the daemon. It remembers what it has resolved for some time.
    pub fn set_hosts(&mut self, names: &[(&str, IpAddr)]) {
        self.builder.hosts = Some(hosts_file(names));
        // The same file, because it is mounted.
        std::fs::write(self.directory().join(HOSTS), hosts_file(names)).expect("our own directory");
    }

    /// A command outside of any sandbox for which names have the same addresses as for the daemon.
    pub fn outside(&self, program: &str) -> Command {
        let words = with_hosts(&self.directory().join(HOSTS));
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).arg(program);
        command
    }

    pub async fn start() -> Self {
        Self::builder().start().await
    }

    pub fn builder() -> DaemonBuilder {
        DaemonBuilder::default()
    }

    /// The pid of a session's runner on the host.
    pub fn runner_pid(&self, session: &Session) -> i32 {
        if let Some(engine) = runtime::engine() {
            let pid = engine.docker(&["inspect", "--format", "{{.State.Pid}}", &engine.container(&session.id)]);
            return pid.parse().expect("a pid");
        }
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
        self.builder.data_dir_in(self.directory())
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

    /// Waits for the daemon to end by itself.
    pub async fn ended(&mut self) -> ExitStatus {
        let child = self.child.as_mut().expect("it has not been stopped");
        let status =
            wait_until("the daemon's end", STOP_DEADLINE, async || child.try_wait().expect("our own child")).await;
        self.child = None;
        status
    }

    /// Stops the daemon and starts it again.
    pub async fn restart(mut self) -> Self {
        self.signal(Signal::SIGTERM);
        let status = self.ended().await;
        assert!(status.success(), "{status}\n{}", self.log());
        self.start_again()
    }

    /// Starts the same daemon again, however it ended.
    pub fn start_again(mut self) -> Self {
        assert!(self.child.is_none(), "it still runs");
        let directory = self.directory.take().expect("it has not been given away");
        self.builder.clone().start_in(directory)
    }

    /// Kills the daemon with KILL, as the kernel does when memory runs out.
    pub async fn kill(&mut self) {
        self.signal(Signal::SIGKILL);
        self.ended().await;
    }

    /// Changes the settings for the next start.
    pub fn rebuild(&mut self, change: impl FnOnce(DaemonBuilder) -> DaemonBuilder) {
        self.builder = change(std::mem::take(&mut self.builder));
    }

    /// Starts the daemon again in a state in which it cannot listen. Returns how it ended, and what it printed.
    pub async fn start_in_vain(&mut self) -> (ExitStatus, String) {
        assert!(self.child.is_none(), "it still runs");
        let before = self.log().len();
        self.child = Some(self.builder.command(self.directory()).spawn().expect("the daemon can be started"));
        let status = self.ended().await;
        (status, self.log().split_off(before))
    }

    /// Stops the daemon, and checks that nothing is left of it.
    pub async fn stop(mut self) {
        // At a terminal a person presses Ctrl-C; TERM would keep the sessions.
        self.signal(if self.builder.keeps_sessions { Signal::SIGINT } else { Signal::SIGTERM });
        let status = self.ended().await;
        assert!(status.success(), "{status}\n{}", self.log());
        let left = Leftovers::of(&self.data_dir());
        assert!(left.is_empty(), "the daemon left something: {left:?}\n{}", self.log());
        let devices = loop_devices_of(&self.data_dir());
        assert!(devices.is_empty(), "the daemon left {devices:?}\n{}", self.log());
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let Some(mut child) = self.child.take() else { return self.sweep() };
        if std::thread::panicking() {
            eprintln!("-- the daemon's log:\n{}", self.log());
        }
        let stop = if self.builder.keeps_sessions { Signal::SIGINT } else { Signal::SIGTERM };
        procfs::signal(i32::try_from(child.id()).expect("a pid"), stop);
        if !blocks_until(STOP_DEADLINE, || child.try_wait().is_ok_and(|status| status.is_some())) {
            let _ = child.kill();
            let _ = child.wait();
        }
        self.sweep();
    }
}

impl Daemon {
    fn sweep(&self) {
        if self.directory.is_some() {
            Leftovers::sweep(&self.data_dir());
        }
    }
}
