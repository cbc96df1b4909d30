//! Real clients: through the registries that this host's package managers use, through a mirror, and to hosts that are not allowed.
//! No registry's name stands here: the daemon, and the package managers' own configuration, tell them at run time.

mod apt;
mod containers;
mod forbidden;
mod git;
mod install;
mod mirror;
mod packages;

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use e2e::daemon::{Daemon, Session};
use serde_json::{Value, json};

/// A server of a story, in the upstream's network. It ends with the value.
struct Server(Child);

impl Server {
    /// Starts a server that prints `ready` when it listens.
    fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the server starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
        assert_eq!(line, "ready\n");
        Self(child)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// How long one client may take. Maven downloads its own plugins first.
const PATIENCE_MS: u64 = 240_000;

/// The tools that the daemon could find registries of, with their hosts.
async fn registries(daemon: &Daemon) -> BTreeMap<String, Vec<Value>> {
    let told = daemon.api().patient().get("/v1/network/packages").await.ok();
    let mut all: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for one in told["found"].as_array().expect("a list") {
        all.entry(one["tool"].as_str().expect("a name").to_owned()).or_default().push(one.clone());
    }
    all
}

async fn exec(session: &Session, cmd: &str) -> Value {
    let request = json!({ "cmd": cmd, "timeout_ms": PATIENCE_MS });
    session.api.patient().post(&session.path("/exec"), request).await.ok()
}

/// Whether a command exists in the sandbox. `pip` may be only a module of Python.
async fn has(session: &Session, program: &str) -> bool {
    session.exec(&format!("command -v {program} || python3 -m {program} --version")).await["exit_code"] == 0
}

/// The directory of a program of this host, without links, if sandboxes see it.
fn shown_directory(program: &str) -> Option<PathBuf> {
    let path = Command::new("sh").args(["-c", &format!("command -v {program}")]).output().ok()?;
    let path = Path::new(String::from_utf8_lossy(&path.stdout).trim()).canonicalize().ok()?;
    let is_shown = ["/usr", "/opt"].iter().any(|top| path.starts_with(top));
    path.parent().filter(|_| is_shown).map(Path::to_path_buf)
}
