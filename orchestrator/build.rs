//! Builds a static runner and passes its path to `include_bytes!`, so that one binary is the whole installation.
//!
//! If `COVE_RUNNER_BIN` names a runner that is already built, as in an image build or in the tests, that one is used.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for input in
        ["runner", "shared-protocol", "proc-files", "tar-unpack", "scripts/build-runner", "Cargo.toml", "Cargo.lock"]
    {
        println!("cargo::rerun-if-changed={}", root.join(input).display());
    }
    for variable in ["COVE_RUNNER_BIN", "COVE_RUNNER_TARGET"] {
        println!("cargo::rerun-if-env-changed={variable}");
    }
    let binary = match std::env::var_os("COVE_RUNNER_BIN") {
        Some(path) => {
            println!("cargo::rerun-if-changed={}", Path::new(&path).display());
            PathBuf::from(path)
        }
        // Cargo does not watch this file: it is newer than the start of this script, so the script would run a second time.
        None => build(&root),
    };
    let bytes = std::fs::read(&binary).unwrap_or_else(|e| fail(&format!("cannot read {}: {e}", binary.display())));
    let copy = PathBuf::from(std::env::var_os("OUT_DIR").unwrap_or_else(|| fail("OUT_DIR is not set"))).join("runner");
    std::fs::write(&copy, &bytes).unwrap_or_else(|e| fail(&format!("cannot write {}: {e}", copy.display())));
    println!("cargo::rustc-env=COVE_EMBEDDED_RUNNER={}", copy.display());
    println!("cargo::rustc-env=COVE_EMBEDDED_RUNNER_LIBC={}", libc_of(&binary, &bytes));
}

fn build(root: &Path) -> PathBuf {
    let script = root.join("scripts/build-runner");
    let output =
        Command::new(&script).output().unwrap_or_else(|e| fail(&format!("cannot run {}: {e}", script.display())));
    let errors = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        fail(&format!("the runner did not build:\n{errors}"));
    }
    for line in errors.lines().filter_map(|line| line.strip_prefix("build-runner: warning: ")) {
        println!("cargo::warning={line}");
    }
    let stdout = String::from_utf8_lossy(&output.stdout);
    PathBuf::from(stdout.lines().last().unwrap_or_else(|| fail("scripts/build-runner printed no path")))
}

/// The libc of a runner: known from the path if this script built it, otherwise from a text that glibc leaves in every
/// static binary.
fn libc_of(path: &Path, bytes: &[u8]) -> &'static str {
    let path = path.to_string_lossy();
    if path.contains("-musl/") {
        "musl"
    } else if bytes.windows(10).any(|window| window == b"GNU C Libr") {
        "gnu"
    } else {
        "musl"
    }
}

fn fail(message: &str) -> ! {
    eprintln!("{message}");
    std::process::exit(1)
}
