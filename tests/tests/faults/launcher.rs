//! A launcher that is killed takes along a sandbox that the daemon has not recorded yet.

use e2e::daemon::{Daemon, is_local_only};
use e2e::procfs::{self, Process};
use e2e::{DEADLINE, LONG_DEADLINE, wait_until};
use hyper::Method;
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;

/// The launcher of the daemon's one sandbox, and the sandbox's first process.
fn launch(daemon: &Daemon) -> Option<(Process, Process)> {
    let is_launcher = |process: &Process| {
        let command = std::fs::read(format!("/proc/{}/cmdline", process.pid)).unwrap_or_default();
        String::from_utf8_lossy(&command).contains("__launch-sandbox")
    };
    let launcher = procfs::children(daemon.pid()).into_iter().find(is_launcher)?;
    let first = procfs::children(launcher.pid).into_iter().next()?;
    Some((launcher, first))
}

#[tokio::test]
async fn a_sandbox_that_is_not_recorded_ends_with_its_launcher() {
    let _alone = crate::alone().await;
    if is_local_only("a_sandbox_that_is_not_recorded_ends_with_its_launcher", "an engine has no launcher") {
        return;
    }
    let folder = tempfile::Builder::new().prefix("cove-gate-").tempdir().expect("a temporary directory");
    let gate = folder.path().join("gate");
    nix::unistd::mkfifo(&gate, Mode::S_IRUSR | Mode::S_IWUSR).expect("a named pipe");
    let daemon =
        Daemon::builder().failpoints(&format!("local.create.launched=wait:{}@1", gate.display())).start().await;
    let api = daemon.api().clone();
    let create =
        tokio::spawn(async move { api.try_send(Method::POST, "/v1/sessions", "{}").await.expect("an answer") });
    let (launcher, first) = wait_until("the launch", DEADLINE, async || launch(&daemon)).await;
    // The daemon waits at the gate. The first process has done all that it does before it is recorded when it waits too.
    wait_until("the first process to wait", DEADLINE, async || {
        procfs::process(first.pid).filter(|first| first.state == 'S').map(drop)
    })
    .await;
    procfs::signal(launcher.pid, Signal::SIGKILL);
    wait_until("the end of the first process", DEADLINE, async || (!procfs::is_alive(&first)).then_some(())).await;
    drop(std::fs::File::options().read(true).write(true).open(&gate).expect("our own pipe"));
    let answer =
        tokio::time::timeout(LONG_DEADLINE, create).await.expect("it goes on").expect("a client does not fail");
    assert!(answer.status >= 500, "{answer:?}");
    daemon.session().await.destroy().await;
    daemon.stop().await;
}
