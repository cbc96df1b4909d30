//! A serving runner: the real binary with its own workspace, scratch directory and socket.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::binary::runner_binary;
use crate::cgroup::MemoryCgroup;
use crate::client::Client;
use crate::http::Address;
use crate::launch::{Launch, Launched, log_file};
use crate::procfs::{self, Process};
use crate::wait::{DEADLINE, wait_until};

/// The user that commands run as if the tests, and so the runner, are root.
pub use shared_protocol::SANDBOX_USER;

/// The grace period of a shutdown: short, so that a test does not wait for the default of five seconds.
const GRACE_MS: u64 = 500;

pub struct Runner {
    client: Client,
    launched: Launched,
    directory: TempDir,
    scratch: TempDir,
}

#[derive(Default)]
pub struct Builder {
    launch: Launch,
    args: Vec<String>,
    token: Option<String>,
    socket_directory_is_open: bool,
}

impl std::ops::Deref for Runner {
    type Target = Client;
    fn deref(&self) -> &Client {
        &self.client
    }
}

impl Builder {
    /// Makes the runner PID 1 of its own pid and mount namespace. Only root can do this.
    pub fn as_pid1(mut self) -> Self {
        self.launch.pid1 = true;
        self
    }

    /// Starts the runner as this user instead of the tests' user.
    pub fn as_user(mut self, uid: u32) -> Self {
        self.launch.user = Some(uid);
        self
    }

    /// Sets a limit in the form of `prlimit`: `--nofile=64`.
    pub fn limit(mut self, limit: &str) -> Self {
        self.launch.limits.push(limit.to_owned());
        self
    }

    pub fn in_cgroup(mut self, cgroup: &MemoryCgroup) -> Self {
        self.launch.cgroup = Some(cgroup.path().to_owned());
        self
    }

    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.launch.env.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn arg(mut self, arg: &str) -> Self {
        self.args.push(arg.to_owned());
        self
    }

    /// Serves on TCP with this token instead of on a Unix socket.
    pub fn on_tcp(mut self, token: &str) -> Self {
        self.token = Some(token.to_owned());
        self
    }

    /// Opens the socket's directory to everyone, so that only the socket itself can refuse access.
    pub fn with_open_socket_directory(mut self) -> Self {
        self.socket_directory_is_open = true;
        self
    }

    /// Starts the runner with an open descriptor that it does not expect.
    pub fn with_stray_descriptor(mut self) -> Self {
        self.launch.stray_descriptor = true;
        self
    }

    pub async fn start(mut self) -> Runner {
        let directory = tempfile::Builder::new().prefix("cove-e2e-").tempdir().expect("a temporary directory");
        // The directory is in memory if possible, as the runner itself would choose: on a disk every command waits for it.
        let memory = Path::new("/dev/shm");
        let scratch_base = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let scratch =
            tempfile::Builder::new().prefix("cove-e2e-").tempdir_in(scratch_base).expect("a scratch directory");
        let at = |name: &str| directory.path().join(name);
        set_mode(directory.path(), 0o755);
        if self.launch.user.is_some() {
            // This is a copy, because the original may be in somebody's home directory.
            std::fs::copy(runner_binary(), at("runner")).expect("a copy of the binary");
            self.launch.binary = Some(at("runner"));
        }
        set_mode(scratch.path(), 0o755);
        give(scratch.path(), self.launch.user);
        let owner = self.launch.user.or(crate::is_root().then_some(SANDBOX_USER));
        let socket_mode = if self.socket_directory_is_open { 0o755 } else { 0o700 };
        // The sandbox user owns only the workspace; the runner's user owns the rest.
        make_directory(&at("workspace"), 0o755, owner);
        make_directory(&at("socket"), socket_mode, self.launch.user);
        let address = match &self.token {
            None => Address::Unix(at("socket/runner.sock")),
            Some(_) => Address::Tcp(free_address()),
        };
        let mut args = std::mem::take(&mut self.args);
        match &address {
            Address::Unix(socket) => args.push(format!("--socket={}", socket.display())),
            Address::Tcp(address) => args.push(format!("--listen={address}")),
        }
        if let Some(token) = &self.token {
            self.launch.env.push(("COVE_RUNNER_TOKEN".to_owned(), token.clone()));
        }
        args.push(format!("--workspace={}", at("workspace").display()));
        if !args.iter().any(|a| a.starts_with("--scratch")) {
            args.push(format!("--scratch={}", scratch.path().display()));
        }
        if !args.iter().any(|a| a.starts_with("--grace-ms")) {
            args.push(format!("--grace-ms={GRACE_MS}"));
        }
        let log = at("log");
        let file = log_file(&log);
        let launched = self.launch.start(&args, file.try_clone().expect("a second handle"), file).await;
        let client = Client { address, token: self.token, log };
        let mut runner = Runner { client, launched, directory, scratch };
        runner.wait_until_healthy().await;
        runner
    }
}

impl Runner {
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Starts a runner as a plain process of the tests' user.
    pub async fn start() -> Self {
        Self::builder().start().await
    }

    pub async fn start_as_pid1() -> Self {
        Self::builder().as_pid1().start().await
    }

    async fn wait_until_healthy(&mut self) {
        let client = self.client.clone();
        wait_until("the runner answers", DEADLINE, async || {
            if let Some(status) = self.launched.try_wait() {
                panic!("the runner ended at once ({status})\n{}", client.log_text());
            }
            client.try_health().await.ok()
        })
        .await;
    }

    /// A client that can be moved into a task.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// The pid of the runner as seen from outside; its health reports its own view.
    pub fn pid(&self) -> i32 {
        self.launched.pid
    }

    pub fn workspace(&self) -> PathBuf {
        self.directory.path().join("workspace")
    }

    pub fn scratch(&self) -> PathBuf {
        self.scratch.path().to_owned()
    }

    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("socket/runner.sock")
    }

    pub fn rss_kib(&self) -> u64 {
        procfs::status_kib(self.pid(), "VmRSS")
    }

    /// The runner's peak memory.
    pub fn peak_rss_kib(&self) -> u64 {
        procfs::status_kib(self.pid(), "VmHWM")
    }

    pub fn descendants(&self) -> Vec<Process> {
        procfs::descendants(self.pid())
    }

    /// Waits until a program with this name runs below the runner: it was executed, and has its terminal.
    pub async fn until_program(&self, name: &str) {
        wait_until(&format!("{name} runs"), DEADLINE, async || {
            self.descendants().iter().any(|p| p.name == name).then_some(())
        })
        .await;
    }

    /// Signals the runner itself, not its commands.
    pub fn signal_runner(&mut self, signal: Signal) {
        self.launched.signal(signal);
    }

    /// Waits until the runner has ended by itself.
    pub async fn ended(&mut self, deadline: Duration) -> ExitStatus {
        self.launched.wait(deadline).await
    }

    /// The processes that it started and that outlived it.
    pub fn left(&mut self) -> Vec<Process> {
        self.launched.left()
    }
}

fn make_directory(path: &Path, mode: u32, owner: Option<u32>) {
    std::fs::create_dir(path).expect("a new directory");
    set_mode(path, mode);
    give(path, owner);
}

fn give(path: &Path, owner: Option<u32>) {
    if let Some(owner) = owner {
        std::os::unix::fs::chown(path, Some(owner), Some(owner)).expect("given to the sandbox user");
    }
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("our own directory");
}

/// An address that was free a moment ago. The runner does not report its port, so it cannot use port 0.
fn free_address() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    listener.local_addr().expect("a bound listener")
}
