//! The host fails the daemon or its sandboxes: each failure ends as docs/concepts/recovery.md describes.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use e2e::daemon::{Ability, Daemon, Leftovers, Session, is_local_only, lacks};
use e2e::{DEADLINE, is_root, procfs, skipped, wait_until};
use nix::sys::signal::Signal;
use serde_json::json;
use shared_protocol::ErrorCode;

use crate::agreed;

/// A story's own file system, in memory.
struct Disk {
    path: PathBuf,
    _folder: tempfile::TempDir,
}

impl Disk {
    fn new(megabytes: u32) -> Self {
        let folder = tempfile::Builder::new().prefix("cove-disk-").tempdir().expect("a temporary directory");
        let path = folder.path().join("disk");
        std::fs::create_dir(&path).expect("our own directory");
        mount(&["-t", "tmpfs", "-o", &format!("size={megabytes}m,mode=700"), "tmpfs"], &path);
        Self { path, _folder: folder }
    }

    /// Refuses writes through files that are opened from now on; open files stay writable.
    fn make_read_only(&self) {
        mount(&["--bind", &self.path.to_string_lossy()], &self.path);
        mount(&["-o", "remount,bind,ro"], &self.path);
    }

    fn make_writable(&self) {
        let unmounted = Command::new("umount").arg(&self.path).status().expect("umount is installed");
        assert!(unmounted.success(), "{unmounted}");
    }

    /// Takes all free space, until the file is removed.
    fn fill(&self) -> PathBuf {
        let path = self.path.join("filler");
        let mut file = std::fs::File::create(&path).expect("our own file");
        let block = vec![1u8; 4096];
        while std::io::Write::write_all(&mut file, &block).is_ok() {}
        path
    }
}

fn mount(arguments: &[&str], path: &Path) {
    let mounted = Command::new("mount").args(arguments).arg(path).status().expect("mount is installed");
    assert!(mounted.success(), "mount {arguments:?}: {mounted}");
}

impl Drop for Disk {
    fn drop(&mut self) {
        // A story that fails while the disk is read-only leaves two mounts.
        for _ in 0..2 {
            let _ = Command::new("umount").arg("-l").arg(&self.path).stderr(std::process::Stdio::null()).status();
        }
    }
}

fn cannot_mount(story: &str) -> bool {
    if !is_root() {
        skipped(story, "only root can mount a file system");
    }
    !is_root() || is_local_only(story, "it is about the daemon's disk")
}

#[tokio::test]
async fn a_full_disk_fails_creates_and_nothing_else() {
    let _alone = crate::alone().await;
    if cannot_mount("a_full_disk_fails_creates_and_nothing_else") {
        return;
    }
    let disk = Disk::new(24);
    let daemon = Daemon::builder().data_dir(&disk.path.join("data")).start().await;
    let (used, ended) = (daemon.session().await, daemon.session().await);
    let filler = disk.fill();
    let refused = daemon.post("/v1/sessions", json!({})).await;
    assert_eq!(refused.refused(), ErrorCode::InternalError);
    let said = refused.text();
    assert!(said.contains("full") || said.contains("No space left"), "{said}");
    assert_eq!(agreed(&daemon).await.len(), 2, "nothing is left of it");
    assert_eq!(used.sh("echo well").await, "well\n");
    ended.destroy().await;
    // An end that cannot be stored yet is carried out anyway.
    assert_eq!(Leftovers::sandboxes(&daemon.data_dir()).len(), 1);
    std::fs::remove_file(filler).expect("our own file");
    assert_eq!(daemon.session().await.sh("echo well").await, "well\n");
    assert_eq!(agreed(&daemon).await.len(), 2, "and is written down now");
    assert_eq!(daemon.get("/readyz").await.status, 200);
    daemon.stop().await;
}

#[tokio::test]
async fn a_disk_that_cannot_be_written_fails_creates_and_no_daemon_starts_on_it() {
    let _alone = crate::alone().await;
    if cannot_mount("a_disk_that_cannot_be_written_fails_creates_and_no_daemon_starts_on_it") {
        return;
    }
    let disk = Disk::new(64);
    let mut daemon = Daemon::builder().data_dir(&disk.path.join("data")).start().await;
    let session = daemon.session().await;
    disk.make_read_only();
    let refused = daemon.post("/v1/sessions", json!({})).await;
    assert_eq!(refused.refused(), ErrorCode::InternalError);
    assert!(refused.text().contains("Read-only"), "{}", refused.text());
    assert_eq!(session.sh("echo well").await, "well\n");
    daemon.kill().await;
    let (status, said) = daemon.start_in_vain().await;
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("cannot write in the data directory"), "{said}");
    disk.make_writable();
    let daemon = daemon.start_again();
    let session = Session { api: daemon.api().clone(), ..session };
    assert_eq!(session.sh("echo well").await, "well\n");
    daemon.stop().await;
}

#[tokio::test]
async fn a_runner_that_is_stopped_can_be_destroyed_and_holds_nobody_up() {
    let _alone = crate::alone().await;
    let daemon = Daemon::start().await;
    let (stopped, other) = (daemon.session().await, daemon.session().await);
    stopped.sh("true").await;
    procfs::signal(daemon.runner_pid(&stopped), Signal::SIGSTOP);
    let asking = tokio::spawn({
        let stopped = stopped.clone();
        async move { stopped.ask(json!({ "cmd": "echo never" })).await }
    });
    assert_eq!(other.sh("echo well").await, "well\n");
    assert_eq!(stopped.view().await["status"], "running");
    let start = Instant::now();
    stopped.destroy().await;
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    assert_eq!(asking.await.expect("an answer").refused(), ErrorCode::SessionNotFound);
    daemon.stop().await;
}

#[tokio::test]
async fn a_stopped_runner_is_taken_over_and_goes_on_when_it_does() {
    let _alone = crate::alone().await;
    let mut daemon = Daemon::start().await;
    let session = daemon.session().await;
    let runner = daemon.runner_pid(&session);
    procfs::signal(runner, Signal::SIGSTOP);
    daemon.kill().await;
    let daemon = daemon.start_again();
    let session = Session { api: daemon.api().clone(), ..session };
    procfs::signal(runner, Signal::SIGCONT);
    assert_eq!(session.sh("echo well").await, "well\n");
    daemon.stop().await;
}

#[tokio::test]
async fn a_runner_that_a_signal_has_stopped_is_continued_by_the_next_request() {
    let _alone = crate::alone().await;
    let story = "a_runner_that_a_signal_has_stopped_is_continued_by_the_next_request";
    if lacks(story, Ability::RunnerOnHost) {
        return;
    }
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    procfs::signal(daemon.runner_pid(&session), Signal::SIGSTOP);
    assert_eq!(session.sh("echo well").await, "well\n");
    assert_eq!(session.view().await["status"], "running");
    daemon.stop().await;
}

/// The runner is held by a debugger, so it cannot be continued.
#[tokio::test]
async fn a_runner_that_answers_nothing_is_a_crash_that_says_why_and_is_cleaned_up() {
    let _alone = crate::alone().await;
    let story = "a_runner_that_answers_nothing_is_a_crash_that_says_why_and_is_cleaned_up";
    if is_local_only(story, "the engine's own process is the runner's parent") {
        return;
    }
    if !is_root() {
        return skipped(story, "only root can stop a runner");
    }
    let daemon = Daemon::start().await;
    let (held, other) = (daemon.session().await, daemon.session().await);
    let mut stream = held.stream(json!({ "cmd": "echo begun; sleep 600" })).await;
    stream.until("chunk").await;
    let holding = hold(daemon.runner_pid(&held));
    let start = Instant::now();
    let answer = held.ask(json!({ "cmd": "echo never", "shell": "main" })).await;
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    assert!(answer.text().contains("did not answer"), "{}", answer.text());
    assert_eq!(answer.refused(), ErrorCode::SandboxLost);
    let view = held.view().await;
    assert_eq!(view["status"], "crashed", "{view}");
    assert!(view["reason"].as_str().is_some_and(|reason| reason.contains("stopped by a debugger")), "{view}");
    let last = format!("{:?}", stream.until("error").await);
    assert!(last.contains("did not answer"), "the stream ends too: {last}");
    assert_eq!(other.sh("echo well").await, "well\n");
    holding.join().expect("the debugger ends with the runner");
    wait_until("nothing to be left of it", DEADLINE, async || {
        (Leftovers::sandboxes(&daemon.data_dir()).len() == 1).then_some(())
    })
    .await;
    daemon.stop().await;
}

/// Stops a process as a debugger does, until it is killed. Only the thread that stopped it hears of its end.
fn hold(pid: i32) -> std::thread::JoinHandle<()> {
    use nix::sys::wait::{WaitStatus, waitpid};
    let pid = nix::unistd::Pid::from_raw(pid);
    let (held, is_held) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        nix::sys::ptrace::seize(pid, nix::sys::ptrace::Options::empty()).expect("a debugger of the runner");
        nix::sys::ptrace::interrupt(pid).expect("a stopped runner");
        let mut status = waitpid(pid, None);
        held.send(()).expect("the story waits");
        while let Ok(WaitStatus::Stopped(..) | WaitStatus::PtraceEvent(..)) = status {
            status = waitpid(pid, None);
        }
    });
    is_held.recv().expect("the runner is held");
    thread
}

/// The control: a runner that gets little of a busy processor still answers.
#[tokio::test]
async fn a_runner_in_a_busy_sandbox_is_not_a_crash() {
    let _alone = crate::alone().await;
    let daemon = Daemon::start().await;
    let session = daemon.create(json!({ "resources": { "cpus": 0.2, "pids": 128 } })).await;
    let bomb = "for i in $(seq 60); do (while :; do :; done) & done; wait";
    session.ask(json!({ "cmd": bomb, "detach": true })).await.ok();
    // While this prints nothing, the runner is asked.
    let slept = session.run(&["sleep", "8"]).await;
    assert_eq!(slept["exit_code"], 0, "{slept}");
    assert_eq!(session.view().await["status"], "running");
    session.destroy().await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_session_whose_socket_was_removed_has_crashed() {
    let _alone = crate::alone().await;
    if is_local_only("a_session_whose_socket_was_removed_has_crashed", "it removes a local socket") {
        return;
    }
    let mut daemon = Daemon::start().await;
    let session = daemon.session().await;
    daemon.kill().await;
    let sandbox = daemon.data_dir().join("sandboxes").join(&session.id);
    std::fs::remove_file(sandbox.join("runner.sock")).expect("a socket");
    let daemon = daemon.start_again();
    let session = Session { api: daemon.api().clone(), ..session };
    assert_eq!(session.ask(json!({ "cmd": "true" })).await.refused(), ErrorCode::SandboxLost);
    wait_until("the crash to be seen", DEADLINE, async || (session.view().await["status"] == "crashed").then_some(()))
        .await;
    session.destroy().await;
    assert!(agreed(&daemon).await.is_empty());
    daemon.stop().await;
}

#[tokio::test]
async fn a_workspace_that_is_taken_away_under_a_session_takes_only_its_files() {
    let _alone = crate::alone().await;
    let mut daemon = Daemon::builder().config("[workspaces]\nstorage = \"directory\"\n").start().await;
    let session = daemon.create(json!({ "workspace_id": "w" })).await;
    session.sh("echo x > file").await;
    std::fs::remove_dir_all(daemon.data_dir().join("workspaces/w")).expect("our own directory");
    assert_eq!(session.sh("cd /tmp; echo well").await, "well\n");
    assert_ne!(session.exec("cat /workspace/file").await["exit_code"], 0);
    daemon.kill().await;
    let daemon = daemon.start_again();
    let session = Session { api: daemon.api().clone(), ..session };
    assert_eq!(session.sh("echo well").await, "well\n");
    assert_eq!(daemon.get("/v1/workspaces").await.ok()["workspaces"], json!([]), "it is not made again under it");
    session.destroy().await;
    let next = daemon.create(json!({ "workspace_id": "w" })).await;
    assert_eq!(next.sh("ls; echo new > file; cat file").await, "new\n");
    daemon.stop().await;
}

#[tokio::test]
async fn a_runner_that_is_killed_is_a_crash_that_is_cleaned_up() {
    let _alone = crate::alone().await;
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    procfs::signal(daemon.runner_pid(&session), Signal::SIGKILL);
    wait_until("the crash to be seen", DEADLINE, async || (session.view().await["status"] == "crashed").then_some(()))
        .await;
    assert_eq!(session.ask(json!({ "cmd": "true" })).await.refused(), ErrorCode::SandboxLost);
    wait_until("nothing to be left", DEADLINE, async || {
        Leftovers::sandboxes(&daemon.data_dir()).is_empty().then_some(())
    })
    .await;
    daemon.stop().await;
}
