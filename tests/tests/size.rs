//! The runner is small, because it is in every sandbox.

use std::process::Command;
use std::time::Duration;

use e2e::{Runner, runner_binary, skipped, wait_until};

const MAX_BINARY_BYTES: u64 = 2 << 20;
const MAX_IDLE_RSS_KIB: u64 = 3 << 10;

fn readelf(argument: &str) -> Option<String> {
    let output = Command::new("readelf").args(["--wide", argument]).arg(runner_binary()).output().ok()?;
    String::from_utf8(output.stdout).ok()
}

fn is_musl() -> bool {
    runner_binary().to_string_lossy().contains("-musl")
}

#[test]
fn the_binary_is_at_most_two_mebibytes() {
    if !is_musl() {
        return skipped(
            "the_binary_is_at_most_two_mebibytes",
            "the figure is for musl; a static glibc alone is most of it",
        );
    }
    let bytes = std::fs::metadata(runner_binary()).unwrap().len();
    println!("{}: {bytes} bytes", runner_binary().display());
    assert!(bytes <= MAX_BINARY_BYTES, "{bytes} bytes");
}

#[test]
fn the_binary_is_static_and_stripped() {
    let (Some(headers), Some(sections)) = (readelf("--program-headers"), readelf("--sections")) else {
        return skipped("the_binary_is_static_and_stripped", "readelf is not installed");
    };
    assert!(headers.contains("LOAD") && !headers.contains("INTERP"), "{headers}");
    assert!(!sections.contains(".symtab") && !sections.contains(".debug_info"), "{sections}");
}

#[tokio::test]
async fn an_idle_runner_has_at_most_three_mebibytes() {
    if !is_musl() {
        return skipped("an_idle_runner_has_at_most_three_mebibytes", "the figure is for musl");
    }
    let runner = Runner::start().await;
    assert_eq!(runner.output_of("echo ok").await, "ok\n");
    wait_until("the shell rests", Duration::from_secs(5), async || {
        (runner.shell("main").await.state == shared_protocol::runner::ShellState::Idle).then_some(())
    })
    .await;
    let rss = runner.rss_kib();
    println!("idle: {rss} KiB");
    assert!(rss <= MAX_IDLE_RSS_KIB, "{rss} KiB");
}

#[tokio::test]
async fn a_thousand_commands_later_it_is_still_small() {
    let runner = Runner::start().await;
    for i in 0..1000 {
        runner.sh(&format!("echo {i}")).await;
    }
    let rss = runner.rss_kib();
    println!("after a thousand commands: {rss} KiB");
    assert!(rss <= 3 * MAX_IDLE_RSS_KIB, "{rss} KiB");
}
