//! The daemon dies at each step of a snapshot, a fork, a stop and a start. What was acknowledged is there afterwards, and nothing else.

use e2e::daemon::{Daemon, Session, engine, snapshots_of};
use e2e::{DEADLINE, is_root, is_soak, skipped, wait_until};
use hyper::Method;
use serde_json::{Value, json};

use crate::{agreed, reachable};

const TIMES: usize = 1;
const SOAK_TIMES: usize = 20;

/// On docker, a start copies the kept files into a new container.
const FILLED: &str = "docker.restore.filled";

fn small() -> Value {
    json!({ "resources": { "memory_mb": 64, "disk_mb": 32, "pids": 32 } })
}

fn has_disks(story: &str) -> bool {
    let has_btrfs = std::fs::read_to_string("/proc/filesystems").unwrap_or_default().contains("btrfs");
    let is_there = engine().is_some() || (is_root() && has_btrfs);
    if !is_there {
        skipped(story, "sessions keep their files in memory here");
    }
    is_there
}

/// What the names of the runtime's own failpoints begin with.
fn own(rest: &str) -> String {
    format!("{}.{rest}", if engine().is_some() { "docker" } else { "local" })
}

fn times() -> usize {
    if is_soak() { SOAK_TIMES } else { TIMES }
}

/// The failpoints with one of these prefixes.
fn points(prefixes: &[&str]) -> Vec<&'static String> {
    let found: Vec<_> = reachable().filter(|name| prefixes.iter().any(|prefix| name.starts_with(prefix))).collect();
    assert!(!found.is_empty(), "{prefixes:?}");
    found
}

fn again(daemon: &Daemon, session: &Session) -> Session {
    Session { api: daemon.api().clone(), id: session.id.clone() }
}

async fn listed(daemon: &Daemon) -> Vec<String> {
    let listed = daemon.get("/v1/snapshots").await.ok();
    let ids = listed["snapshots"].as_array().expect("a list").iter();
    ids.map(|view| view["id"].as_str().expect("an id").to_owned()).collect()
}

/// What there is of snapshots in the data directory and the engine, and in the database.
fn stored(daemon: &Daemon) -> (Vec<String>, Vec<String>) {
    let places = snapshots_of(&daemon.data_dir());
    let database = rusqlite::Connection::open(daemon.data_dir().join("cove.db")).expect("a database");
    let mut statement = database.prepare("SELECT id FROM snapshots ORDER BY id").expect("a table of snapshots");
    let rows = statement.query_map((), |row| row.get(0)).expect("rows").collect::<Result<_, _>>().expect("ids");
    (places, rows)
}

/// Checks that list, database and disk have the same snapshots, and that a session can be made from each.
async fn snapshots_agree(daemon: &Daemon, name: &str) -> Vec<String> {
    let mut ids = listed(daemon).await;
    for id in &ids {
        let copy = daemon.create(json!({ "snapshot": id })).await;
        assert_eq!(copy.sh("cat /workspace/file; echo $X").await, "content\n1\n", "after {name}");
        copy.destroy().await;
    }
    ids.sort();
    assert_eq!(stored(daemon), (ids.clone(), ids.clone()), "after {name}");
    ids
}

async fn prepared(daemon: &Daemon) -> Session {
    let session = daemon.create(small()).await;
    session.sh("echo content > /workspace/file; X=1; cd /tmp").await;
    session
}

/// Lets a new daemon go on where another one died.
fn mended(mut daemon: Daemon) -> Daemon {
    daemon.rebuild(|builder| builder.failpoints(""));
    daemon.start_again()
}

#[tokio::test]
async fn a_death_at_any_step_of_a_snapshot_leaves_all_of_it_or_nothing() {
    if !has_disks("a_death_at_any_step_of_a_snapshot_leaves_all_of_it_or_nothing") {
        return;
    }
    let _alone = crate::alone().await;
    let on_removal = ["snapshot.forgotten".to_owned(), own("snapshot.removed")];
    for _ in 0..times() {
        for name in points(&["snapshot.", &own("snapshot.")]) {
            let mut daemon = Daemon::builder().failpoints(&format!("{name}=abort")).start().await;
            let session = prepared(&daemon).await;
            let made = daemon.try_send(Method::POST, &session.path("/snapshots"), "{}").await;
            if on_removal.contains(name) {
                let id = made.expect("it is made").ok()["id"].as_str().expect("an id").to_owned();
                let removed = daemon.try_send(Method::DELETE, &format!("/v1/snapshots/{id}"), "").await;
                assert!(removed.is_err(), "{name} was not reached");
            } else {
                assert!(made.is_err(), "{name} was not reached");
            }
            daemon.ended().await;
            let daemon = mended(daemon);
            assert_eq!(agreed(&daemon).await.len(), 1, "after {name}");
            // A daemon that died while the session was frozen left it frozen.
            assert_eq!(
                again(&daemon, &session).sh("cat /workspace/file; echo $X; pwd").await,
                "content\n1\n/tmp\n",
                "after {name}"
            );
            let there = snapshots_agree(&daemon, name).await;
            assert_eq!(there.len(), usize::from(name == "snapshot.ready"), "after {name}: {there:?}");
            for id in there {
                daemon.delete(&format!("/v1/snapshots/{id}")).await.ok();
            }
            println!("{name}: well");
            daemon.stop().await;
        }
    }
}

#[tokio::test]
async fn a_step_of_a_snapshot_that_fails_leaves_nothing_and_the_session_goes_on() {
    if !has_disks("a_step_of_a_snapshot_that_fails_leaves_nothing_and_the_session_goes_on") {
        return;
    }
    let _alone = crate::alone().await;
    for name in points(&[&own("snapshot.")]).into_iter().filter(|name| **name != own("snapshot.removed")) {
        let daemon = Daemon::builder().failpoints(&format!("{name}=error@1")).start().await;
        let session = prepared(&daemon).await;
        for call in ["/snapshots", "/fork"] {
            let refused = daemon.post(&session.path(call), json!({})).await;
            if call == "/snapshots" {
                assert_eq!(refused.status, 500, "{name}: {}", refused.text());
                assert!(refused.text().contains(name.as_str()), "the cause is told: {}", refused.text());
            }
            assert_eq!(session.sh("cat /workspace/file; echo $X").await, "content\n1\n", "after {name}");
            wait_until("nothing to be left", DEADLINE, async || (stored(&daemon) == (vec![], vec![])).then_some(()))
                .await;
        }
        daemon.post(&session.path("/snapshots"), json!({})).await.ok();
        snapshots_agree(&daemon, name).await;
        daemon.stop().await;
    }
}

#[tokio::test]
async fn a_death_during_a_fork_leaves_no_copy_and_no_snapshot() {
    if !has_disks("a_death_during_a_fork_leaves_no_copy_and_no_snapshot") {
        return;
    }
    let _alone = crate::alone().await;
    for name in [
        "snapshot.made",
        "snapshot.ready",
        "snapshot.forgotten",
        "create.intended",
        if engine().is_some() { "docker.restore.image" } else { "local.create.disk" },
        "create.running",
    ] {
        let turn = match name {
            "docker.restore.image" => "@2",
            _ if name.contains("create.") => "@3",
            _ => "",
        };
        let mut daemon = Daemon::builder().failpoints(&format!("{name}=abort{turn}")).start().await;
        let session = prepared(&daemon).await;
        let forked = daemon.try_send(Method::POST, &session.path("/fork"), json!({ "count": 3 }).to_string()).await;
        daemon.ended().await;
        let daemon = mended(daemon);
        let there = agreed(&daemon).await;
        assert!(there.contains(&session.id), "after {name}");
        // An answer that never came acknowledged nothing: copies that ran already may be there.
        assert!(forked.is_ok() || there.len() <= 4, "after {name}: {there:?}");
        assert_eq!(snapshots_agree(&daemon, name).await, Vec::<String>::new(), "after {name}");
        assert_eq!(again(&daemon, &session).sh("cat /workspace/file").await, "content\n");
        daemon.stop().await;
    }
}

/// On docker, a copy has a name of its own for its image.
#[tokio::test]
async fn a_death_while_a_copy_gives_its_image_back_leaves_nothing_of_the_copy() {
    let story = "a_death_while_a_copy_gives_its_image_back_leaves_nothing_of_the_copy";
    if engine().is_none() {
        skipped(story, "only docker has images to give back");
        return;
    }
    let _alone = crate::alone().await;
    let mut daemon = Daemon::builder().failpoints("docker.restore.released=abort").start().await;
    let session = prepared(&daemon).await;
    let snapshot = daemon.post(&session.path("/snapshots"), json!({})).await.ok()["id"].clone();
    let copy = daemon.create(json!({ "snapshot": snapshot })).await;
    let destroyed = daemon.try_send(Method::DELETE, &format!("/v1/sessions/{}", copy.id), "").await;
    assert!(destroyed.is_err(), "the failpoint was not reached");
    daemon.ended().await;
    let daemon = mended(daemon);
    assert_eq!(agreed(&daemon).await.into_iter().collect::<Vec<_>>(), [session.id]);
    assert_eq!(json!(snapshots_agree(&daemon, story).await), json!([snapshot]));
    daemon.stop().await;
}

#[tokio::test]
async fn a_death_during_a_stop_or_a_start_loses_no_session() {
    if !has_disks("a_death_during_a_stop_or_a_start_loses_no_session") {
        return;
    }
    let _alone = crate::alone().await;
    let of_start = ["start.", &own("create."), "create.made", "create.running", FILLED];
    for _ in 0..times() {
        for name in
            points(&["stop.", &own("stop."), "start.", &own("create."), "create.made", "create.running", FILLED])
        {
            let is_start = of_start.iter().any(|prefix| name.starts_with(prefix));
            // The first create of the story must not be hit.
            let turn = if name.contains("create.") { "@2" } else { "" };
            let mut daemon = Daemon::builder().failpoints(&format!("{name}=abort{turn}")).start().await;
            let session = prepared(&daemon).await;
            let stopped = daemon.try_send(Method::POST, &session.path("/stop"), "").await;
            assert_eq!(stopped.is_ok(), is_start, "{name}: the stop");
            if is_start {
                let started = daemon.try_send(Method::POST, &session.path("/start"), "").await;
                assert!(started.is_err(), "{name} was not reached");
            }
            daemon.ended().await;
            let daemon = mended(daemon);
            let session = again(&daemon, &session);
            let status = session.view().await["status"].as_str().expect("a status").to_owned();
            // It runs if the death came before the stop was stored, or after the start was.
            let expected = match name.as_str() {
                "stop.saved" | "create.running" => "running",
                "local.stop.state" | "docker.stop.disk" | "docker.stop.image" | "docker.stop.state" => "running",
                _ => "stopped",
            };
            assert_eq!(status, expected, "after {name}");
            session.change("start").await.ok();
            assert_eq!(session.sh("cat /workspace/file; echo $X; pwd").await, "content\n1\n/tmp\n", "after {name}");
            agreed(&daemon).await;
            println!("{name}: well");
            daemon.stop().await;
        }
    }
}

#[tokio::test]
async fn a_start_that_fails_leaves_the_session_stopped() {
    if !has_disks("a_start_that_fails_leaves_the_session_stopped") {
        return;
    }
    let _alone = crate::alone().await;
    for name in points(&[&own("create."), FILLED]) {
        let turn = if name == FILLED { 1 } else { 2 };
        let daemon = Daemon::builder().failpoints(&format!("{name}=error@{turn}")).start().await;
        let session = prepared(&daemon).await;
        session.change("stop").await.ok();
        let refused = session.change("start").await;
        assert_eq!(refused.status, 500, "{name}: {}", refused.text());
        assert_eq!(session.view().await["status"], "stopped", "after {name}");
        session.change("start").await.ok();
        assert_eq!(session.sh("cat /workspace/file; echo $X; pwd").await, "content\n1\n/tmp\n", "after {name}");
        daemon.stop().await;
    }
}

#[tokio::test]
async fn a_death_while_snapshots_and_stopped_sessions_are_recovered_is_mended() {
    if !has_disks("a_death_while_snapshots_and_stopped_sessions_are_recovered_is_mended") {
        return;
    }
    let _alone = crate::alone().await;
    for name in ["recover.snapshot", "recover.stopped"] {
        let mut daemon = Daemon::builder().failpoints("snapshot.kept=abort@2").start().await;
        let session = prepared(&daemon).await;
        let kept = daemon.post(&session.path("/snapshots"), json!({})).await.ok()["id"].clone();
        let stopped = prepared(&daemon).await;
        stopped.change("stop").await.ok();
        assert!(daemon.try_send(Method::POST, &session.path("/snapshots"), "{}").await.is_err());
        daemon.ended().await;
        daemon.rebuild(|builder| builder.failpoints(&format!("{name}=abort")));
        let (status, _) = daemon.start_in_vain().await;
        assert_eq!(status.code(), None, "{name} was not reached");
        let daemon = mended(daemon);
        assert_eq!(json!(snapshots_agree(&daemon, name).await), json!([kept]));
        let stopped = again(&daemon, &stopped);
        stopped.change("start").await.ok();
        assert_eq!(stopped.sh("cat /workspace/file").await, "content\n");
        daemon.stop().await;
    }
}
