//! Finds the runner binary for the stories: the one that `COVE_RUNNER_BIN` names, or the one that `scripts/build-runner`
//! makes.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

static BINARY: LazyLock<PathBuf> = LazyLock::new(|| match std::env::var_os("COVE_RUNNER_BIN") {
    Some(path) => std::path::absolute(path).expect("COVE_RUNNER_BIN is a path"),
    None => build(),
});

pub fn runner_binary() -> &'static Path {
    assert!(BINARY.is_file(), "no runner at {}", BINARY.display());
    &BINARY
}

/// Builds the runner. Cargo's lock makes a second test binary wait for the first.
fn build() -> PathBuf {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/build-runner");
    let built = Command::new(script).stderr(Stdio::inherit()).output().expect("scripts/build-runner can be started");
    assert!(built.status.success(), "scripts/build-runner failed: {}", built.status);
    let stdout = String::from_utf8(built.stdout).expect("a path in UTF-8");
    stdout.lines().last().expect("scripts/build-runner prints the binary's path").into()
}
