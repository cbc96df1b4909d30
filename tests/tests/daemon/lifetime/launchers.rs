//! The launcher that waits for the next create, on `local`.

use e2e::daemon::{Daemon, is_local_only};
use e2e::procfs::{self, Process};
use e2e::{DEADLINE, wait_until};
use nix::sys::signal::Signal;

/// The launchers among the daemon's children.
fn launchers(daemon: &Daemon) -> Vec<Process> {
    let is_launcher = |process: &Process| {
        let arguments = std::fs::read(format!("/proc/{}/cmdline", process.pid)).unwrap_or_default();
        arguments.split(|byte| *byte == 0).any(|word| word == b"__launch-sandbox")
    };
    procfs::children(daemon.pid()).into_iter().filter(is_launcher).collect()
}

async fn waiting(daemon: &Daemon) -> Process {
    wait_until("a launcher that waits", DEADLINE, async || launchers(daemon).pop()).await
}

#[tokio::test]
async fn one_launcher_waits_and_is_used_by_the_next_create() {
    if is_local_only("one_launcher_waits_and_is_used_by_the_next_create", "the engine starts containers") {
        return;
    }
    let daemon = Daemon::start().await;
    daemon.session().await.sh("true").await;
    let first = waiting(&daemon).await;
    daemon.session().await.sh("true").await;
    wait_until("the launcher that waited has ended", DEADLINE, async || (!procfs::is_alive(&first)).then_some(()))
        .await;
    let second = waiting(&daemon).await;
    assert_ne!(first.pid, second.pid);
    assert_eq!(launchers(&daemon).len(), 1, "one is enough");
    daemon.stop().await;
    assert!(!procfs::is_alive(&second), "it ends with the daemon");
}

#[tokio::test]
async fn a_launcher_that_was_killed_while_it_waited_costs_no_create() {
    if is_local_only("a_launcher_that_was_killed_while_it_waited_costs_no_create", "the engine starts containers") {
        return;
    }
    let daemon = Daemon::start().await;
    daemon.session().await.sh("true").await;
    let launcher = waiting(&daemon).await;
    procfs::signal(launcher.pid, Signal::SIGKILL);
    assert_eq!(daemon.session().await.sh("echo made").await, "made\n");
    daemon.stop().await;
}

#[tokio::test]
async fn a_launcher_that_waits_ends_with_a_killed_daemon() {
    if is_local_only("a_launcher_that_waits_ends_with_a_killed_daemon", "the engine starts containers") {
        return;
    }
    let mut daemon = Daemon::start().await;
    daemon.session().await.sh("true").await;
    let launcher = waiting(&daemon).await;
    daemon.kill().await;
    wait_until("the launcher has ended", DEADLINE, async || (!procfs::is_alive(&launcher)).then_some(())).await;
    daemon.start_again().stop().await;
}

/// A session does not see the socket by which the daemon reaches its runner, although its launcher had the session's network already.
#[tokio::test]
async fn the_runners_socket_is_not_in_the_network_of_its_session() {
    if is_local_only("the_runners_socket_is_not_in_the_network_of_its_session", "the engine starts containers") {
        return;
    }
    let daemon = Daemon::start().await;
    // The first is made by a launcher of its own, the second by the one that waited.
    for _ in 0..2 {
        let session = daemon.session().await;
        assert_eq!(session.sh("grep -c / /proc/net/unix || true").await, "0\n");
    }
    daemon.stop().await;
}
