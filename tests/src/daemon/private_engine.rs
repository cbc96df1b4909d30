//! A story's own container engine, which can be stopped, killed and started again: no other story uses it.
//!
//! It has the runtimes and one image of the engine that the stories run on. Dropping it removes everything that it started
//! and mounted.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::runtime::Engine;
use crate::procfs;
use crate::wait::{blocks_until, wait_until};

/// The smallest image of the stories. It has no runner, so it gets the embedded one.
const IMAGE: &str = "debian:bookworm-slim";

/// The longest wait for an engine to answer, or to end with its containers.
const ENGINE_DEADLINE: Duration = Duration::from_secs(120);

pub struct PrivateEngine {
    directory: TempDir,
    child: Option<Child>,
    is_podman: bool,
    pub engine: Engine,
}

impl PrivateEngine {
    /// Starts an engine. With `live_restore`, containers keep running while the engine is gone; Podman's containers always
    /// do.
    pub async fn start(original: &Engine, live_restore: bool) -> Self {
        let directory = tempfile::Builder::new().prefix("cove-engine-").tempdir().expect("a temporary directory");
        let socket = directory.path().join("docker.sock").display().to_string();
        let config = json!({ "live-restore": live_restore, "runtimes": original.own_runtimes() });
        std::fs::write(directory.path().join("daemon.json"), config.to_string()).expect("our own directory");
        let engine = Engine { socket, image: IMAGE.into(), ..original.clone() };
        let mut made = Self { directory, child: None, is_podman: original.is_podman(), engine };
        made.start_again().await;
        let archive = made.directory.path().join("image.tar").display().to_string();
        original.docker(&["save", "--output", &archive, IMAGE]);
        made.engine.docker(&["load", "--input", &archive]);
        made
    }

    pub async fn start_again(&mut self) {
        assert!(self.child.is_none(), "it still runs");
        let mut child = self.spawn();
        wait_until("the engine answers", ENGINE_DEADLINE, async || {
            // On a busy machine an engine gives up on its own helper; a service manager would start it again.
            if child.try_wait().expect("our own child").is_some() {
                child = self.spawn();
            }
            self.engine.answers().then_some(())
        })
        .await;
        self.child = Some(child);
    }

    fn spawn(&self) -> Child {
        let path = |name: &str| self.directory.path().join(name);
        let log = std::fs::OpenOptions::new().create(true).append(true).open(path("log")).expect("our own directory");
        let mut command = if self.is_podman { self.podman() } else { self.dockerd() };
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().expect("the engine is installed")
    }

    fn podman(&self) -> Command {
        let mut command = Command::new("podman");
        command.current_dir(self.directory.path());
        for (flag, name) in [("--root", "data"), ("--runroot", "exec"), ("--tmpdir", "tmp")] {
            command.arg(flag).arg(self.directory.path().join(name));
        }
        command.args(["--cgroup-manager", "cgroupfs", "--events-backend", "file"]);
        if let Some(oci_runtime) = &self.engine.oci_runtime {
            command.args(["--runtime", oci_runtime]);
        }
        command.args(["system", "service", "--time", "0", &format!("unix://{}", self.engine.socket)]);
        command
    }

    fn dockerd(&self) -> Command {
        let path = |name: &str| self.directory.path().join(name);
        let mut command = Command::new("dockerd");
        for (flag, name) in
            [("--config-file", "daemon.json"), ("--data-root", "data"), ("--exec-root", "exec"), ("--pidfile", "pid")]
        {
            command.arg(flag).arg(path(name));
        }
        // `--bridge none` would remove the bridge of the engine that all other stories use.
        command.args(["--iptables=false", "--ip-masq=false", "--host", &format!("unix://{}", self.engine.socket)]);
        command
    }

    /// Sends the signal and waits for the engine's end.
    pub async fn stop(&mut self, signal: Signal) {
        let mut child = self.child.take().expect("it runs");
        procfs::signal(i32::try_from(child.id()).expect("a pid"), signal);
        wait_until("the engine's end", ENGINE_DEADLINE, async || child.try_wait().expect("our own child")).await;
        // A killed engine leaves its helper for a moment, and both files forever.
        wait_until("the end of its containerd", ENGINE_DEADLINE, async || {
            (!self.processes().iter().any(|process| process.name == "containerd")).then_some(())
        })
        .await;
        let _ = std::fs::remove_file(self.directory.path().join("pid"));
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    /// All processes whose command line names the engine's directory: its containerd and the shims of its containers.
    fn processes(&self) -> Vec<procfs::Process> {
        let needle = self.directory.path().as_os_str().as_encoded_bytes();
        let is_its = |process: &procfs::Process| {
            let line = std::fs::read(format!("/proc/{}/cmdline", process.pid)).unwrap_or_default();
            line.windows(needle.len()).any(|part| part == needle)
        };
        procfs::all().into_iter().filter(is_its).collect()
    }
}

impl Drop for PrivateEngine {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<_> = log.lines().rev().take(30).collect();
            eprintln!("-- the engine's log, the last first:\n{}", lines.join("\n"));
        }
        if let Some(mut child) = self.child.take() {
            let left = self.engine.try_docker(&["ps", "-aq"]).unwrap_or_default();
            for container in left.lines() {
                let _ = self.engine.try_docker(&["rm", "-f", container]);
            }
            procfs::signal(i32::try_from(child.id()).expect("a pid"), Signal::SIGTERM);
            if !blocks_until(ENGINE_DEADLINE, || child.try_wait().is_ok_and(|status| status.is_some())) {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
        for process in self.processes() {
            procfs::signal(process.pid, Signal::SIGKILL);
        }
        for mount in mounts_below(self.directory.path()).iter().rev() {
            let _ = Command::new("umount").arg("--lazy").arg(mount).status();
        }
    }
}

fn mounts_below(directory: &Path) -> Vec<PathBuf> {
    let text = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let places = text.lines().filter_map(|line| line.split(' ').nth(4).map(PathBuf::from));
    places.filter(|place| place.starts_with(directory)).collect()
}

impl Engine {
    pub fn answers(&self) -> bool {
        self.try_docker(&["version", "--format", "{{.Server.Version}}"]).is_some()
    }

    fn runtimes(&self) -> Value {
        serde_json::from_str(&self.docker(&["info", "--format", "{{json .Runtimes}}"])).expect("JSON")
    }

    /// What the engine reports about the runtime of the sandboxes.
    fn told(&self) -> Value {
        let default = || self.docker(&["info", "--format", "{{.DefaultRuntime}}"]);
        self.runtimes()[self.oci_runtime.clone().unwrap_or_else(default)].clone()
    }

    pub fn is_gvisor(&self) -> bool {
        self.told()["path"]
            .as_str()
            .is_some_and(|path| path.rsplit('/').next().is_some_and(|name| name.starts_with("runsc")))
    }

    pub fn is_podman(&self) -> bool {
        self.docker(&["version", "--format", "{{json .Server.Components}}"]).contains("Podman Engine")
    }

    fn has_argument(&self, argument: &str) -> bool {
        self.told()["runtimeArgs"].as_array().is_some_and(|all| all.iter().any(|one| one == argument))
    }

    /// Whether sandboxes can have a network. gVisor can be configured to have none.
    pub fn has_network(&self) -> bool {
        !self.has_argument("--network=none")
    }

    /// Whether a container's system call filter applies. gVisor applies it only if it is configured to.
    pub fn has_filter(&self) -> bool {
        !self.is_gvisor() || self.has_argument("--oci-seccomp")
    }

    /// The configured runtimes, in the form of `daemon.json`.
    fn own_runtimes(&self) -> Value {
        let told = self.runtimes();
        let is_built_in = |name: &str| name == "runc" || name.starts_with("io.containerd.");
        let own = told.as_object().expect("a table").iter().filter(|(name, _)| !is_built_in(name));
        own.map(|(name, told)| (name.clone(), json!({ "path": told["path"], "runtimeArgs": told["runtimeArgs"] })))
            .collect()
    }
}
