//! Stopped sessions: they have no processes, and everything else when they are started again.

use e2e::daemon::{Daemon, Leftovers, Session, loop_devices_of};
use e2e::{LONG_DEADLINE, skipped, wait_until};
use serde_json::json;
use shared_protocol::ErrorCode::{Conflict, LimitReached};

use super::disks::{has_disks, keeps_disks};

/// The session at the next daemon.
fn again(daemon: &Daemon, session: &Session) -> Session {
    Session { api: daemon.api().clone(), id: session.id.clone() }
}

#[tokio::test]
async fn a_stopped_session_starts_again_after_restarts_kills_and_a_restart_of_the_host() {
    if !keeps_disks("a_stopped_session_starts_again_after_restarts_kills_and_a_restart_of_the_host") {
        return;
    }
    let daemon = Daemon::builder().keeps_sessions().start().await;
    let request = json!({
        "env": { "GIVEN": "1" }, "labels": { "a": "b" }, "workspace_id": "w", "ttl_seconds": 900,
        "resources": { "memory_mb": 96, "disk_mb": 50 }, "network": { "allow": ["example.com"] },
    });
    let session = daemon.create(request).await;
    let before = session.view().await;
    session.sh("cd ~; echo home > file; echo w > /workspace/file; X=1; f() { echo f; }; nohup sleep 1000 >/dev/null 2>&1 &").await;
    let made = session.api.post(&session.path("/snapshots"), json!({})).await.ok();
    assert_eq!(session.change("stop").await.ok()["status"], "stopped");
    assert_eq!(Leftovers::first_processes(&daemon.data_dir()), 0, "it has no processes");
    assert_eq!(session.ask(json!({ "cmd": "true" })).await.refused(), Conflict);
    assert_eq!(session.change("stop").await.ok()["status"], "stopped", "a second stop changes nothing");
    let mut daemon = daemon.restart().await;
    let mut session = again(&daemon, &session);
    for round in 0..3 {
        let listed = daemon.get("/v1/sessions?status=stopped").await.ok();
        assert_eq!(listed[0]["id"], json!(session.id), "round {round}: {listed}");
        let started = session.change("start").await.ok();
        for fact in ["id", "status", "labels", "resources", "network", "owner", "workspace_id", "created_at"] {
            assert_eq!(started[fact], before[fact], "round {round}: {fact}");
        }
        let expected = format!("/home/sandbox\nhome\nw\n1 1 {round}\nf\n0\n");
        let seen = "pwd; cat file /workspace/file; echo $X $GIVEN ${ROUND-0}; f; pgrep -c sleep || true";
        assert_eq!(session.sh(seen).await, expected, "round {round}");
        session.sh(&format!("ROUND={}", round + 1)).await;
        session.change("stop").await.ok();
        daemon.kill().await;
        // No process and no mount uses the disks any more, as after a restart of the host.
        let data_dir = daemon.data_dir();
        wait_until("the device is free", LONG_DEADLINE, async || loop_devices_of(&data_dir).is_empty().then_some(()))
            .await;
        daemon = daemon.start_again();
        session = again(&daemon, &session);
    }
    let copy = daemon.create(json!({ "snapshot": made["id"] })).await;
    assert_eq!(copy.sh("cat file; f").await, "home\nf\n", "the snapshot is there as well");
    session.destroy().await;
    assert_eq!(daemon.get(&session.path("")).await.ok()["status"], "destroyed");
    daemon.stop().await;
}

#[tokio::test]
async fn a_stopped_session_gives_memory_back_and_needs_it_to_start() {
    if !keeps_disks("a_stopped_session_gives_memory_back_and_needs_it_to_start") {
        return;
    }
    let config = "[sessions]\nmax_total_memory_mb = 256\n";
    let mut daemon = Daemon::builder().config(config).keeps_sessions().start().await;
    let half = json!({ "resources": { "memory_mb": 128 } });
    let (first, second) = (daemon.create(half.clone()).await, daemon.create(half.clone()).await);
    assert_eq!(daemon.post("/v1/sessions", half.clone()).await.refused(), LimitReached);
    first.change("stop").await.ok();
    let third = daemon.create(half.clone()).await;
    let refused = first.change("start").await;
    assert_eq!(refused.refused(), LimitReached, "{}", refused.text());
    assert_eq!(first.view().await["status"], "stopped", "a refused start changes nothing");
    // The next daemon counts the same.
    daemon.kill().await;
    let daemon = daemon.start_again();
    let [first, second, third] = [&first, &second, &third].map(|session| again(&daemon, session));
    assert_eq!(first.change("start").await.refused(), LimitReached);
    second.destroy().await;
    assert_eq!(first.change("start").await.ok()["status"], "running");
    assert_eq!(daemon.post("/v1/sessions", half).await.refused(), LimitReached);
    third.destroy().await;
    daemon.stop().await;
}

#[tokio::test]
async fn requests_under_way_end_when_their_session_is_stopped() {
    if !keeps_disks("requests_under_way_end_when_their_session_is_stopped") {
        return;
    }
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    session.sh("X=before").await;
    let mut stream = session.stream(json!({ "cmd": "X=after; echo begun; sleep 1000", "timeout_ms": 1_000_000 })).await;
    while stream.next().await.expect("output").name != "chunk" {}
    session.change("stop").await.ok();
    let last = loop {
        let event = stream.next().await.expect("an end");
        if ["error", "done"].contains(&event.name.as_str()) {
            break event;
        }
    };
    assert_eq!((last.name.as_str(), &last.data["error_code"]), ("error", &json!("CONFLICT")), "{last:?}");
    session.change("start").await.ok();
    assert_eq!(session.sh("echo $X").await, "before\n", "a command that was cut off changes no shell");
    // A paused session can be stopped too.
    session.change("pause").await.ok();
    assert_eq!(session.change("stop").await.ok()["status"], "stopped");
    session.destroy().await;
    daemon.stop().await;
}

/// In a root that it may change, a program lays links, so that the next start mounts its own directory somewhere else.
#[tokio::test]
async fn no_link_in_a_kept_root_leads_a_mount_over_the_runners_files() {
    if !has_disks("no_link_in_a_kept_root_leads_a_mount_over_the_runners_files") {
        return;
    }
    let daemon = Daemon::start().await;
    let created = daemon.post("/v1/sessions", json!({ "writable_root": true })).await;
    if created.status == 400 {
        skipped("no_link_in_a_kept_root_leads_a_mount_over_the_runners_files", &created.text());
        return daemon.stop().await;
    }
    let id = created.ok()["id"].as_str().expect("an id").to_owned();
    let session = Session { api: daemon.api().clone(), id };
    session.sh("mkdir ~/state /x; touch ~/mine; ln -s /run/cove /x/sandbox; mv /home /old; ln -s /x /home").await;
    session.sh("mv /etc/ssl /opt/ssl && ln -s /opt/ssl /etc/ssl").await;
    session.change("stop").await.ok();
    session.change("start").await.ok();
    let tried =
        session.exec("cd /; ls -d /home/sandbox/mine /run/cove/mine; touch /run/cove/x /run/cove/state/x").await;
    assert_ne!(tried["exit_code"], 0, "{tried}");
    let output = tried["output"].as_str().expect("text");
    assert_eq!(output.matches("Permission denied").count(), 2, "{output}");
    assert!(!output.lines().any(|line| line.starts_with("/run/cove/mine")), "{output}");
    assert_eq!(session.sh("echo alive").await, "alive\n");
    daemon.stop().await;
}
