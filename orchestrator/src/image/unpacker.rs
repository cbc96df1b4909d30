//! Starts the process that unpacks, and hears what it did. This process reads no archive itself.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::unpack::{Report, SUBCOMMAND, Task};
use crate::failpoint;

/// Starts the process, with its root at `root`.
pub fn start(root: &Path, task: &Task, input: Stdio) -> io::Result<Child> {
    let task = serde_json::to_string(task)?;
    Command::new("/proc/self/exe").arg(SUBCOMMAND).arg(root).arg(task).stdin(input).stdout(Stdio::piped()).spawn()
}

/// Waits for the process. The error is what it said.
pub fn finish(mut child: Child) -> Result<Report, String> {
    finish_child(&mut child)
}

/// The same as `finish`, for a process that its owner keeps.
pub fn finish_child(child: &mut Child) -> Result<Report, String> {
    let waiting = |e: io::Error| format!("waiting for the process that unpacks: {e}");
    drop(child.stdin.take());
    let mut said = String::new();
    if let Some(mut stdout) = child.stdout.take() {
        stdout.read_to_string(&mut said).map_err(waiting)?;
    }
    let status = child.wait().map_err(waiting)?;
    let said = said.trim().to_owned();
    match status.success() {
        true => serde_json::from_str(&said).map_err(|e| format!("the process that unpacks was not understood: {e}")),
        false if said.is_empty() => Err(format!("the process that unpacks ended with {status}")),
        false => Err(said),
    }
}

/// Runs a task from its start to its end. It blocks.
pub fn run(root: &Path, task: &Task, input: Option<File>) -> Result<Report, String> {
    let input = input.map_or_else(Stdio::null, Stdio::from);
    let child = start(root, task, input).map_err(|e| format!("starting the process that unpacks: {e}"))?;
    failpoint::pass("image.unpack.started");
    finish(child)
}
