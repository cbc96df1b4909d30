//! Starts the binary with what a story asks for (another user, limits, a cgroup, a pid namespace), and ends it with
//! everything that it started.

use std::collections::HashSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::binary::runner_binary;
use crate::procfs::{self, Process};
use crate::wait::{blocks_until, wait_until};

/// A variable of all processes of one launch, with which processes are found that left the process tree.
const MARKER: &str = "COVE_E2E_LAUNCH";

/// The longest wait for killed processes to be gone.
const CLEANUP_DEADLINE: Duration = Duration::from_secs(10);

static LAUNCHES: AtomicU32 = AtomicU32::new(0);

#[derive(Debug, Clone, Default)]
pub(crate) struct Launch {
    pub(crate) pid1: bool,
    pub(crate) user: Option<u32>,
    /// The binary, if it is not the usual one.
    pub(crate) binary: Option<PathBuf>,
    pub(crate) limits: Vec<String>,
    pub(crate) cgroup: Option<PathBuf>,
    /// Whether descriptor 9 stays open across exec, as with a careless parent.
    pub(crate) stray_descriptor: bool,
    pub(crate) env: Vec<(String, String)>,
}

/// A started binary. Dropping it kills it and everything that it started.
#[derive(Debug)]
pub(crate) struct Launched {
    child: Child,
    /// The pid of the binary in the tests' pid namespace.
    pub(crate) pid: i32,
    marker: String,
    ended: Option<ExitStatus>,
    /// Every process that was seen below it, to look for after the process tree is gone.
    known: HashSet<Process>,
}

impl Launch {
    fn binary(&self) -> &Path {
        self.binary.as_deref().unwrap_or_else(|| runner_binary())
    }

    /// The wrappers in their order: each executes the next.
    fn argv(&self) -> Vec<String> {
        let mut argv: Vec<String> = Vec::new();
        let mut wrap = |words: &[&str]| argv.extend(words.iter().map(|w| (*w).to_owned()));
        if let Some(cgroup) = &self.cgroup {
            let enter = format!("echo $$ >{}/cgroup.procs && exec \"$@\"", cgroup.display());
            wrap(&["sh", "-c", &enter, "sh"]);
        }
        if self.stray_descriptor {
            wrap(&["sh", "-c", "exec 9</etc/passwd && exec \"$@\"", "sh"]);
        }
        if self.pid1 {
            // The parent-death signal is a safety net of the tests: a killed test program leaves nothing behind.
            wrap(&["setpriv", "--pdeathsig", "KILL", "--"]);
            wrap(&["unshare", "--pid", "--fork", "--mount", "--mount-proc", "--kill-child", "--"]);
        }
        if !self.limits.is_empty() {
            wrap(&["prlimit"]);
            self.limits.iter().for_each(|limit| wrap(&[limit]));
            wrap(&["--"]);
        }
        if let Some(user) = self.user {
            let user = user.to_string();
            wrap(&["setpriv", "--reuid", &user, "--regid", &user, "--clear-groups", "--"]);
        }
        if !self.pid1 {
            wrap(&["setpriv", "--pdeathsig", "TERM", "--"]);
        }
        argv.push(self.binary().to_string_lossy().into_owned());
        argv
    }

    pub(crate) async fn start(&self, args: &[String], stdout: File, stderr: File) -> Launched {
        let marker = format!("{}-{}", std::process::id(), LAUNCHES.fetch_add(1, Ordering::Relaxed));
        let argv = self.argv();
        let mut command = Command::new(&argv[0]);
        command.args(&argv[1..]).args(args).env_clear();
        command.env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin").env("LANG", "C.UTF-8");
        command.envs(self.env.iter().cloned()).env(MARKER, &marker);
        command.stdin(Stdio::null()).stdout(stdout).stderr(stderr);
        let mut child = command.spawn().unwrap_or_else(|e| panic!("{argv:?}: {e}"));
        let outer = i32::try_from(child.id()).expect("a pid");
        let is_binary = |pid: i32| std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == self.binary());
        let pid = wait_until("the binary is executed", CLEANUP_DEADLINE, async || {
            let candidates = std::iter::once(outer).chain(procfs::children(outer).into_iter().map(|p| p.pid));
            // `unshare` forks, so the binary is its child; a binary that has already ended has no `exe`.
            let ended = child.try_wait().expect("our own child").is_some();
            candidates.into_iter().find(|pid| is_binary(*pid)).or(ended.then_some(outer))
        })
        .await;
        Launched { child, pid, marker, ended: None, known: HashSet::new() }
    }
}

impl Launched {
    /// How the binary ended. `None` while it runs.
    pub(crate) fn try_wait(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().expect("our own child");
        }
        self.ended
    }

    pub(crate) async fn wait(&mut self, deadline: Duration) -> ExitStatus {
        wait_until("the binary ends", deadline, async || self.try_wait()).await
    }

    /// Signals the binary itself, not its wrappers.
    pub(crate) fn signal(&mut self, signal: Signal) {
        self.look();
        if self.try_wait().is_none() {
            procfs::signal(self.pid, signal);
        }
    }

    fn look(&mut self) {
        if self.ended.is_none() {
            self.known.extend(procfs::descendants(self.pid));
        }
        self.known.extend(procfs::with_variable(MARKER, &self.marker));
    }

    /// The live processes among all that were ever seen below the binary, without the binary and its wrappers.
    pub(crate) fn left(&mut self) -> Vec<Process> {
        self.look();
        let own = [self.pid, i32::try_from(self.child.id()).expect("a pid")];
        self.known.iter().filter(|p| !own.contains(&p.pid) && procfs::is_alive(p)).cloned().collect()
    }
}

impl Drop for Launched {
    fn drop(&mut self) {
        self.look();
        if self.try_wait().is_none() {
            procfs::signal(self.pid, Signal::SIGKILL);
        }
        let gone = blocks_until(CLEANUP_DEADLINE, || {
            self.left().iter().for_each(|p| procfs::signal(p.pid, Signal::SIGKILL));
            self.try_wait().is_some() && self.left().is_empty()
        });
        if !gone && !std::thread::panicking() {
            panic!("processes outlived the test: {:?}", self.left());
        }
    }
}

/// Makes an empty file, with a second handle for reading it.
pub(crate) fn log_file(path: &Path) -> File {
    File::create(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}
