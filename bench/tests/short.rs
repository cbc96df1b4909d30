//! Every benchmark runs with few samples and succeeds. The test does not look at the times.

use std::process::{Command, Stdio};

/// Runs one benchmark with few samples and checks that it succeeds and prints these parts of its table.
fn runs(name: &str, parts: &[&str]) {
    let mut bench = Command::new(env!("CARGO_BIN_EXE_bench"));
    let output = bench.args(["--short", name]).stdin(Stdio::null()).output().expect("bench can be started");
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "bench {name}: {}\n{stdout}\n{stderr}", output.status);
    for part in parts {
        assert!(stdout.contains(part), "bench {name} did not print {part:?}:\n{stdout}");
    }
}

#[test]
fn bench_runner_runs() {
    runs("runner", &["exec true, over the socket", "through the runner, every frame read", "peak RSS"]);
}

#[test]
fn bench_daemon_runs() {
    runs(
        "daemon",
        &["exec true, over the API", "create, to the first exec's answer", "32 MiB of output, over the API"],
    );
}

#[test]
fn bench_neighbours_runs() {
    runs("neighbours", &["fork", "zombie", "the worst p99 beside a bomb"]);
}

#[test]
fn bench_pool_runs() {
    runs("pool", &["claim, to the first exec's answer", "with a workspace"]);
}

#[test]
fn bench_snapshots_runs() {
    runs("snapshots", &["snapshots and forks"]);
}

#[test]
fn bench_network_runs() {
    // The benchmark checks every byte. On a host without an address but loopback it prints a skip.
    runs("network", &["the network"]);
}

#[test]
fn bench_docker_runs() {
    if e2e::daemon::engine().is_none() {
        return e2e::skipped("bench docker", "it needs a container engine: scripts/docker/test runs it");
    }
    runs("docker", &["exec true, over the API, docker", "docker exec C true", "32 MiB of output"]);
}

#[test]
fn an_unknown_benchmark_is_an_error() {
    let status = Command::new(env!("CARGO_BIN_EXE_bench")).arg("nonsense").stderr(Stdio::null()).status();
    assert!(!status.expect("bench can be started").success());
}
