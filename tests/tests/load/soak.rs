//! Mixed use for a long time: the resources of the daemon, its database and a permanent session do not grow.
//!
//! The test runs in rounds. After each round, when everything in it has ended, it samples the figures, which then show what
//! was kept. It compares the medians of the first and the last third of the samples.

use std::time::{Duration, Instant};

use e2e::daemon::{Daemon, Leftovers, Session};
use e2e::{DEADLINE, LONG_DEADLINE, is_soak, procfs, wait_until};
use futures_util::future::LocalBoxFuture;
use futures_util::{FutureExt as _, StreamExt as _};
use hyper::Method;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

/// How long `scripts/test --soak` runs it, unless `COVE_SOAK_MINUTES` sets another time.
const SOAK_MINUTES: u64 = 60;
const SHORT: Duration = Duration::from_secs(30);
/// The number of sessions before the first sample. It is the number of ended sessions that the daemon remembers, because the
/// memory grows until it is reached. A short run uses as many as fill the database's log once and start all threads.
const REMEMBERED: usize = 4096;
const SHORT_REMEMBERED: usize = 400;
const MIN_ROUNDS: usize = 9;
const AT_ONCE: usize = 8;
const POOL: u64 = 2;
const FILE_BYTES: u64 = 1 << 20;

/// The figures of a sample, each with the most by which it may grow.
///
/// What leaks grows with every round, so a figure that comes and goes may have some room: threads for blocking work end after ten
/// seconds without work, and a launcher that has done its work is collected a moment later.
const FIGURES: [(&str, u64); 7] = [
    ("the daemon's memory, KiB", 8 << 10),
    ("the daemon's open files", 6),
    ("the daemon's threads", 7),
    ("the kept session's runner, KiB", 2 << 10),
    ("first processes, and children of the daemon", 1),
    ("the database, KiB", 512),
    ("files in the data directory", 4),
];
type Sample = [u64; FIGURES.len()];

fn count(entries: usize) -> u64 {
    u64::try_from(entries).expect("small")
}

fn sample(daemon: &Daemon, runner: i32) -> Sample {
    let pid = daemon.pid();
    let entries = |path: &str| count(std::fs::read_dir(path).expect("a process of ours").count());
    let processes = Leftovers::first_processes(&daemon.data_dir()) + procfs::children(pid).len();
    let database = ["cove.db", "cove.db-wal"].map(|name| std::fs::metadata(daemon.data_dir().join(name)));
    [
        procfs::status_kib(pid, "VmRSS"),
        entries(&format!("/proc/{pid}/fd")),
        entries(&format!("/proc/{pid}/task")),
        procfs::status_kib(runner, "VmRSS"),
        count(processes),
        database.iter().flatten().map(|file| file.len() >> 10).sum(),
        files_below(&daemon.data_dir()),
    ]
}

fn files_below(path: &std::path::Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(path) else { return 0 };
    let one = |entry: std::fs::DirEntry| {
        let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
        1 + if is_directory { files_below(&entry.path()) } else { 0 }
    };
    entries.flatten().map(one).sum()
}

fn cold() -> Value {
    json!({ "resources": { "memory_mb": 64, "disk_mb": 16, "pids": 32 } })
}

async fn commands(daemon: &Daemon) {
    let session = daemon.create(cold()).await;
    for n in 0..20 {
        assert_eq!(session.sh(&format!("export N={n}; cd /tmp; echo $N")).await, format!("{n}\n"));
    }
    assert_ne!(session.exec("exit 3").await["exit_code"], 0);
    let late = session.ask(json!({ "cmd": "sleep 100", "timeout_ms": 50 })).await.ok();
    assert_eq!(late["timed_out"], true, "{late}");
    session.destroy().await;
}

async fn claims(daemon: &Daemon) {
    let session = daemon.create(json!({ "env": { "TOKEN": "mine" } })).await;
    assert_eq!(session.sh("echo $TOKEN").await, "mine\n");
    session.destroy().await;
}

async fn streams(daemon: &Daemon) {
    let session = daemon.create(cold()).await;
    let whole = session.stream(json!({ "cmd": "head -c 1000000 /dev/zero | tr '\\0' x" })).await;
    assert_eq!(whole.finish().await.0.len(), 1_000_000);
    // The reader disconnects, and then the command ends too.
    let mut cut = session.stream(json!({ "cmd": "while :; do echo more; sleep 0.01; done", "timeout_ms": 0 })).await;
    cut.until("chunk").await;
    drop(cut);
    session.destroy().await;
}

async fn files(daemon: &Daemon) {
    let session = daemon.create(cold()).await;
    let put = daemon.put_pattern(&session.path("/files/file"), FILE_BYTES).await.expect("an answer");
    assert_eq!(put.status, 201, "{}", put.text());
    assert_eq!(count(session.get("file").await.body.len()), FILE_BYTES);
    daemon.get(&session.path("/fs/list?path=/workspace")).await.ok();
    assert_eq!(daemon.get(&session.path("/archive?path=/workspace")).await.status, 200);
    assert_eq!(session.get("nowhere").await.status, 404);
    session.destroy().await;
}

async fn pauses(daemon: &Daemon) {
    let session = daemon.create(cold()).await;
    session.sh("true").await;
    // A host that cannot freeze processes says so.
    let paused = session.change("pause").await;
    assert!(paused.status == 200 || paused.status == 400, "{} {}", paused.status, paused.text());
    assert_eq!(session.sh("echo woken").await, "woken\n");
    session.destroy().await;
}

async fn expires(daemon: &Daemon) {
    let mut short = cold();
    short["ttl_seconds"] = json!(1);
    let session = daemon.create(short).await;
    wait_until("it to expire", DEADLINE, async || (session.view().await["status"] == "expired").then_some(())).await;
}

async fn crashes(daemon: &Daemon) {
    let session = daemon.create(cold()).await;
    procfs::signal(daemon.runner_pid(&session), Signal::SIGKILL);
    wait_until("the crash to be seen", DEADLINE, async || (session.view().await["status"] == "crashed").then_some(()))
        .await;
}

async fn workspaces(daemon: &Daemon, round: usize) {
    let keyed = daemon.with_header("idempotency-key", &round.to_string());
    let mut request = cold();
    request["workspace_id"] = json!("soak");
    let (session, same) = (keyed.create(request.clone()).await, keyed.create(request).await);
    assert_eq!(session.id, same.id);
    session.sh("echo kept > file").await;
    session.destroy().await;
    daemon.delete("/v1/workspaces/soak").await.ok();
}

async fn shells(daemon: &Daemon, kept: &Session) {
    assert_eq!(daemon.post(&kept.path("/shells"), json!({ "name": "more" })).await.status, 201);
    assert_eq!(kept.ask(json!({ "cmd": "echo in it", "shell": "more" })).await.ok()["output"], "in it\n");
    daemon.delete(&kept.path("/shells/more")).await.ok();
    for n in 0..10 {
        assert_eq!(kept.sh(&format!("echo {n}")).await, format!("{n}\n"));
        assert_eq!(kept.run(&["echo", "beside"]).await["stdout"], "beside\n");
    }
}

async fn mistakes(daemon: &Daemon) {
    assert_eq!(daemon.get("/v1/sessions/00000000-000").await.status, 404);
    assert_eq!(daemon.post("/v1/sessions", json!({ "image": "../none" })).await.status, 400);
    assert_eq!(daemon.with_key(None).get("/v1/sessions").await.status, 401);
    assert_eq!(daemon.api().send(Method::POST, "/v1/sessions", "{").await.status, 400);
}

/// Waits until everything has ended except the permanent session and the pooled sandboxes.
async fn is_quiet(daemon: &Daemon) {
    wait_until("all to be over", LONG_DEADLINE, async || {
        let live = daemon.get("/v1/sessions?status=creating&status=running&status=paused&status=destroying").await.ok();
        let pools = daemon.get("/v1/pools").await.ok();
        let is_full = pools[0]["idle"] == POOL && pools[0]["starting"] == 0;
        let is_swept = count(Leftovers::sandboxes(&daemon.data_dir()).len()) == 1 + POOL;
        (live.as_array()?.len() == 1 && is_full && is_swept).then_some(())
    })
    .await;
}

fn median(samples: &[Sample], figure: usize) -> u64 {
    let mut values: Vec<u64> = samples.iter().map(|sample| sample[figure]).collect();
    values.sort_unstable();
    values[values.len() / 2]
}

#[tokio::test]
async fn a_daemon_in_mixed_use_does_not_grow() {
    let _alone = crate::alone().await;
    let minutes =
        std::env::var("COVE_SOAK_MINUTES").ok().map(|text| text.parse().expect("COVE_SOAK_MINUTES is a number"));
    let length =
        minutes.or(is_soak().then_some(SOAK_MINUTES)).map_or(SHORT, |minutes| Duration::from_secs(60 * minutes));
    let daemon = Daemon::builder().config(&format!("[pool]\nbase = {POOL}\n")).start().await;
    let kept = daemon.session().await;
    let runner = daemon.runner_pid(&kept);
    let before = if length > SHORT { REMEMBERED } else { SHORT_REMEMBERED };
    let ends = (0..before).map(|_| async { daemon.create(cold()).await.destroy().await });
    futures_util::stream::iter(ends).buffer_unordered(AT_ONCE).count().await;
    let (start, mut samples, mut shown) = (Instant::now(), Vec::new(), 0);
    while start.elapsed() < length || samples.len() < MIN_ROUNDS {
        let round: [LocalBoxFuture<()>; 10] = [
            commands(&daemon).boxed_local(),
            claims(&daemon).boxed_local(),
            streams(&daemon).boxed_local(),
            files(&daemon).boxed_local(),
            pauses(&daemon).boxed_local(),
            expires(&daemon).boxed_local(),
            crashes(&daemon).boxed_local(),
            workspaces(&daemon, samples.len()).boxed_local(),
            shells(&daemon, &kept).boxed_local(),
            mistakes(&daemon).boxed_local(),
        ];
        futures_util::future::join_all(round).await;
        is_quiet(&daemon).await;
        samples.push(sample(&daemon, runner));
        if start.elapsed().as_secs() / 60 >= shown {
            println!("{:?}, {} rounds: {:?}", start.elapsed(), samples.len(), samples.last());
            shown += 1;
        }
    }
    let third = samples.len() / 3;
    let (first, last) = (&samples[..third], &samples[samples.len() - third..]);
    let mut grown = Vec::new();
    for (figure, (name, slack)) in FIGURES.iter().enumerate() {
        let (before, after) = (median(first, figure), median(last, figure));
        println!("{name}: {before}, and in the end {after}; {slack} more are allowed");
        if after > before + slack {
            grown.push(name);
        }
    }
    assert!(grown.is_empty(), "{grown:?} grew within {} rounds: {samples:?}", samples.len());
    assert_eq!(kept.sh("echo well").await, "well\n");
    daemon.stop().await;
}
