//! A data directory that does not answer delays only the sessions that need it.

use std::path::PathBuf;
use std::time::Duration;

use e2e::daemon::{Answer, Api, Daemon, Session, engine, is_local_only};
use e2e::{DEADLINE, LONG_DEADLINE, is_root, skipped, wait_until};
use futures_util::future::Either;
use hyper::Method;
use nix::sys::stat::Mode;
use serde_json::{Value, json};
use tokio::time::timeout;

/// More than the daemon's threads for requests on a host with two cores.
const STUCK: usize = 8;
/// The longest time for an answer that needs no disk, on a host under full load.
const PROMPT: Duration = Duration::from_secs(10);

/// A disk that is stuck at one failpoint until it is released.
struct StuckDisk {
    gate: PathBuf,
    _folder: tempfile::TempDir,
}

impl StuckDisk {
    fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("cove-stuck-").tempdir().expect("a temporary directory");
        let gate = folder.path().join("gate");
        nix::unistd::mkfifo(&gate, Mode::S_IRUSR | Mode::S_IWUSR).expect("a named pipe");
        Self { gate, _folder: folder }
    }

    fn failpoint(&self, name: &str) -> String {
        format!("{name}=wait:{}", self.gate.display())
    }

    /// Releases all waiting threads, and later ones too while the value lives.
    fn release(&self) -> std::fs::File {
        // Opening for both directions waits for nobody.
        std::fs::File::options().read(true).write(true).open(&self.gate).expect("our own pipe")
    }
}

fn small(workspace: Option<&str>) -> Value {
    json!({ "resources": { "memory_mb": 64, "disk_mb": 16, "pids": 32 }, "workspace_id": workspace })
}

fn create(api: &Api, request: &Value) -> tokio::task::JoinHandle<Answer> {
    let (api, request) = (api.clone(), request.to_string());
    tokio::spawn(async move { api.try_send(Method::POST, "/v1/sessions", request).await.expect("an answer") })
}

/// The answer of a create that was stuck.
async fn answer(create: tokio::task::JoinHandle<Answer>) -> Answer {
    timeout(LONG_DEADLINE, create).await.expect("it goes on").expect("a client does not fail")
}

async fn prompt<T>(what: &str, work: impl Future<Output = T>) -> T {
    timeout(PROMPT, work).await.unwrap_or_else(|_| panic!("{what} waited for the disk"))
}

async fn listed(daemon: &Daemon, status: &str) -> Vec<String> {
    let list = prompt("a listing", daemon.get(&format!("/v1/sessions?status={status}"))).await.ok();
    list.as_array().expect("a list").iter().map(|view| view["id"].as_str().expect("an id").to_owned()).collect()
}

#[tokio::test]
async fn creates_that_wait_for_a_workspaces_directory_hold_up_nobody_else() {
    let _alone = crate::alone().await;
    let disk = StuckDisk::new();
    let daemon = Daemon::builder().failpoints(&disk.failpoint("workspace.directory")).start().await;
    let running = daemon.create(small(None)).await;
    let stuck: Vec<_> = (0..STUCK).map(|_| create(daemon.api(), &small(Some("w")))).collect();
    wait_until("the creates to be under way", DEADLINE, async || {
        (listed(&daemon, "creating").await.len() == STUCK).then_some(())
    })
    .await;
    assert_eq!(prompt("an exec", running.sh("echo well")).await, "well\n");
    let other = prompt("a create without a workspace", daemon.create(small(None))).await;
    prompt("a destroy", other.destroy()).await;
    let unwanted = Session { api: daemon.api().clone(), id: listed(&daemon, "creating").await.remove(0) };
    prompt("a destroy of one that waits", unwanted.destroy()).await;
    assert_eq!(listed(&daemon, "creating").await.len(), STUCK - 1, "the others still wait");
    let _released = disk.release();
    let mut statuses = Vec::new();
    for create in stuck {
        statuses.push(answer(create).await.status);
    }
    statuses.sort_unstable();
    let mut expected = vec![201; STUCK - 1];
    expected.push(404);
    assert_eq!(statuses, expected);
    daemon.stop().await;
}

#[tokio::test]
async fn a_create_that_waits_for_its_image_holds_up_nobody_else_and_has_no_place_yet() {
    let _alone = crate::alone().await;
    if is_local_only("a stuck image", "an engine has its images by itself") {
        return;
    }
    let disk = StuckDisk::new();
    // Each create reads the image twice: to check, and to make the sandbox. The third read is the first one of the two
    // creates below.
    let point = format!("{}@3", disk.failpoint("local.image"));
    let daemon = Daemon::builder().failpoints(&point).start().await;
    let running = daemon.create(small(None)).await;
    let (one, other) = (create(daemon.api(), &small(None)), create(daemon.api(), &small(None)));
    let (made, stuck) = match prompt("the create beside it", futures_util::future::select(one, other)).await {
        Either::Left((made, stuck)) | Either::Right((made, stuck)) => (made.expect("a client does not fail"), stuck),
    };
    assert_eq!(made.ok()["status"], "running");
    assert_eq!(prompt("an exec", running.sh("echo well")).await, "well\n");
    assert_eq!((listed(&daemon, "running").await.len(), listed(&daemon, "creating").await.len()), (2, 0));
    assert!(!stuck.is_finished());
    let _released = disk.release();
    assert_eq!(answer(stuck).await.ok()["status"], "running");
    daemon.stop().await;
}

#[tokio::test]
async fn a_start_that_comes_during_a_stop_has_no_place_that_somebody_else_got_meanwhile() {
    let _alone = crate::alone().await;
    if !is_root() || engine().is_some() {
        return skipped("a start during a stop", "sessions cannot be stopped here");
    }
    let disk = StuckDisk::new();
    // One session fits.
    let daemon = Daemon::builder()
        .config("[sessions]\nmax_total_memory_mb = 100\n")
        .failpoints(&disk.failpoint("local.stop.ended"))
        .start()
        .await;
    let first = daemon.create(small(None)).await;
    let change = |what: &str| {
        let (api, path) = (first.api.clone(), first.path(&format!("/{what}")));
        tokio::spawn(async move { api.try_send(Method::POST, &path, "").await.expect("an answer") })
    };
    let stop = change("stop");
    wait_until("the stop to be under way", LONG_DEADLINE, async || {
        (listed(&daemon, "stopped").await.len() == 1).then_some(())
    })
    .await;
    let start = change("start");
    // Somebody else wants the place as soon as it is free, and gives up when it is taken again.
    let api = daemon.api().clone();
    let other = tokio::spawn(async move {
        loop {
            let created = api.post("/v1/sessions", small(None)).await.status;
            let running = api.get("/v1/sessions?status=running").await.ok();
            if created != 429 || running.as_array().is_some_and(|running| !running.is_empty()) {
                return created;
            }
        }
    });
    let _released = disk.release();
    let (stopped, started) = (answer(stop).await, answer(start).await);
    assert_eq!(stopped.status, 200, "{}", stopped.text());
    let other = timeout(LONG_DEADLINE, other).await.expect("an end").expect("a client does not fail");
    assert_ne!((started.status, other), (200, 201), "both have the one place");
    daemon.stop().await;
}
