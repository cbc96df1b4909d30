//! Paused sessions: everything in them stands still, and the next request that needs the sandbox wakes them.

use std::time::{Duration, Instant};

use e2e::daemon::{Ability, Cove, Daemon, Session, is_local_only};
use e2e::{DEADLINE, is_root, skipped, wait_until};
use serde_json::{Value, json};
use shared_protocol::ErrorCode::{Conflict, InvalidRequest, SessionNotFound};

/// Counts in the background, in a file that the host sees.
const COUNTING: &str = "(n=0; while true; do n=$((n+1)); echo $n > count; done) > /dev/null 2>&1 &";

fn can_pause(story: &str) -> bool {
    if !is_root() {
        skipped(story, "an ordinary user has no freezer here");
    }
    is_root()
}

async fn pause(session: &Session) -> Value {
    session.change("pause").await.ok()
}

/// Workspaces as directories, so that the host sees what is in them.
const DIRECTORIES: &str = "[workspaces]\nstorage = \"directory\"\n";

/// The count that a job writes to the workspace `w`, read on the host without the daemon.
fn count(daemon: &Daemon) -> u64 {
    // The file is empty between its truncation and the write.
    let text = std::fs::read_to_string(daemon.data_dir().join("workspaces/w/count")).unwrap_or_default();
    text.trim().parse().unwrap_or(0)
}

async fn goes_on(daemon: &Daemon, from: u64) {
    wait_until("it counts", DEADLINE, async || (count(daemon) > from).then_some(())).await;
}

/// The CPU time of all processes of a session.
async fn cpu(session: &Session) -> u64 {
    session.api.get(&session.path("/stats")).await.ok()["cpu_usage_usec"].as_u64().expect("a number")
}

async fn status(session: &Session) -> String {
    session.view().await["status"].as_str().expect("a status").to_owned()
}

#[tokio::test]
async fn what_runs_in_the_background_stands_still_while_paused_and_goes_on_after() {
    if !can_pause("what_runs_in_the_background_stands_still_while_paused_and_goes_on_after") {
        return;
    }
    let daemon = Daemon::builder().config(DIRECTORIES).start().await;
    let session = daemon.create(json!({ "workspace_id": "w" })).await;
    session.sh(COUNTING).await;
    goes_on(&daemon, 0).await;
    assert_eq!(pause(&session).await["status"], "paused");
    let (before, used) = (count(&daemon), cpu(&session).await);
    // Another session gets the CPU time that this one would have used, and its work measures the time.
    let other = daemon.session().await;
    for _ in 0..20 {
        other.sh("for i in $(seq 2000); do :; done").await;
    }
    assert_eq!(count(&daemon), before, "it went on while it was paused");
    if Ability::StillAccounts.is_there("no cpu time while paused") {
        assert_eq!(cpu(&session).await, used, "it used the cpu while it was paused");
    }
    assert_eq!(status(&session).await, "paused", "looking at it woke it");
    let listed = daemon.get("/v1/sessions?status=paused").await.ok();
    assert_eq!(listed[0]["id"], session.id.as_str());
    let metrics = daemon.get("/metrics").await.text();
    assert!(metrics.contains("cove_sessions{status=\"paused\"} 1"), "{metrics}");
    let woken = session.change("resume").await.ok();
    assert_eq!(woken["status"], "running");
    goes_on(&daemon, before).await;
    session.destroy().await;
    daemon.stop().await;
}

#[tokio::test]
async fn the_next_request_wakes_a_session_with_all_it_remembers() {
    if !can_pause("the_next_request_wakes_a_session_with_all_it_remembers") {
        return;
    }
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    session.sh("cd /tmp; X=kept; f() { echo $X from $PWD; }").await;
    for _ in 0..10 {
        pause(&session).await;
        assert_eq!(session.sh("f").await, "kept from /tmp\n");
        assert_eq!(status(&session).await, "running");
    }
    pause(&session).await;
    session.put("note", "written").await.ok();
    assert_eq!(status(&session).await, "running", "a file wakes it too");
    pause(&session).await;
    let cove = Cove::of(&daemon);
    let listed = cove.run(&["ps"]).await.ok();
    assert!(listed.contains("paused"), "{listed}");
    for (command, after) in [("resume", "running"), ("pause", "paused")] {
        assert_eq!(cove.run(&[command, &session.id]).await.ok().trim(), session.id);
        assert_eq!(status(&session).await, after);
    }
    daemon.stop().await;
}

#[tokio::test]
async fn a_command_that_somebody_waits_for_is_not_paused_and_a_detached_one_is() {
    if !can_pause("a_command_that_somebody_waits_for_is_not_paused_and_a_detached_one_is") {
        return;
    }
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let waiting = {
        let session = session.clone();
        tokio::spawn(async move { session.sh("until [ -e go ]; do :; done; echo done").await })
    };
    wait_until("it runs", DEADLINE, async || (session.run(&["ls"]).await["exit_code"] == 0).then_some(())).await;
    wait_until("it is refused", DEADLINE, async || {
        let answer = session.change("pause").await;
        // Before the command has arrived, nothing prevents the pause.
        (answer.status == 409).then(|| assert_eq!(answer.refused(), Conflict))
    })
    .await;
    session.run(&["touch", "/workspace/go"]).await;
    assert_eq!(waiting.await.expect("it ends"), "done\n");

    let detached = session.ask(
        json!({ "cmd": "for i in 1 2 3; do echo $i; done; until [ -e now ]; do :; done; echo end", "detach": true }),
    );
    let exec_id = detached.await.json()["exec_id"].as_str().expect("an id").to_owned();
    let mut follower = session.reattach(&exec_id, 0).await;
    follower.until("chunk").await;
    drop(follower);
    wait_until("it is paused", DEADLINE, async || {
        let answer = session.change("pause").await;
        (answer.status == 200).then_some(())
    })
    .await;
    session.run(&["touch", "/workspace/now"]).await;
    let (output, end) = session.reattach(&exec_id, 0).await.finish().await;
    assert_eq!((String::from_utf8_lossy(&output).as_ref(), &end.data["exit_code"]), ("1\n2\n3\nend\n", &json!(0)));
    daemon.stop().await;
}

#[tokio::test]
async fn a_paused_session_is_destroyed_at_once() {
    if !can_pause("a_paused_session_is_destroyed_at_once") {
        return;
    }
    let daemon = Daemon::builder().config(DIRECTORIES).start().await;
    let session = daemon.create(json!({ "workspace_id": "w" })).await;
    session.sh(COUNTING).await;
    pause(&session).await;
    let began = Instant::now();
    session.destroy().await;
    // An engine that waits for a frozen process to end needs ten seconds.
    let within = if Ability::OwnRemoval.is_there("a second for a destroy") { 1 } else { 8 };
    assert!(began.elapsed() < Duration::from_secs(within), "it took {:?}", began.elapsed());
    let gone = session.change("pause").await;
    assert_eq!(gone.refused(), SessionNotFound);
    let asleep = daemon.session().await;
    pause(&asleep).await;
    // A stop with paused sessions leaves nothing either.
    daemon.stop().await;
}

#[tokio::test]
async fn an_idle_session_falls_asleep_by_itself_and_expires_asleep() {
    if !can_pause("an_idle_session_falls_asleep_by_itself_and_expires_asleep") {
        return;
    }
    let daemon = Daemon::builder().config("[sessions]\ndefault_idle_pause_seconds = 1\n").start().await;
    let session = daemon.session().await;
    session.sh("X=kept").await;
    wait_until("it sleeps", DEADLINE, async || (status(&session).await == "paused").then_some(())).await;
    assert_eq!(session.sh("echo $X").await, "kept\n");
    let short = daemon.create(json!({ "idle_pause_seconds": 1, "ttl_seconds": 3 })).await;
    wait_until("it sleeps", DEADLINE, async || (status(&short).await == "paused").then_some(())).await;
    wait_until("it expires", DEADLINE, async || (status(&short).await == "expired").then_some(())).await;
    let awake = daemon.create(json!({ "idle_pause_seconds": 0 })).await;
    wait_until("the first sleeps again", DEADLINE, async || (status(&session).await == "paused").then_some(())).await;
    assert_eq!(status(&awake).await, "running");
    daemon.stop().await;
}

#[tokio::test]
async fn a_detached_command_keeps_its_session_until_it_ends() {
    let daemon = Daemon::start().await;
    let session = daemon.create(json!({ "ttl_seconds": 1 })).await;
    let cmd = "cd /tmp; until [ -e /workspace/go ]; do sleep 0.1; done";
    let answer = session.ask(json!({ "cmd": cmd, "detach": true })).await;
    assert_eq!(answer.status, 202, "{}", answer.text());
    // This session is created later and expires earlier.
    let other = daemon.create(json!({ "ttl_seconds": 1 })).await;
    wait_until("the idle one expires", DEADLINE, async || (status(&other).await == "expired").then_some(())).await;
    assert_eq!(status(&session).await, "running");
    session.put("go", "").await.ok();
    // The idle time counts from the command's end, and the directory that it changed to is visible.
    wait_until("its end is known", DEADLINE, async || (session.view().await["cwd"] == "/tmp").then_some(())).await;
    wait_until("it expires", DEADLINE, async || (status(&session).await == "expired").then_some(())).await;
    let metrics = daemon.get("/metrics").await.text();
    assert!(metrics.contains("cove_exec_seconds_count{kind=\"exited\"} 1"), "{metrics}");
    daemon.stop().await;
}

#[tokio::test]
async fn a_host_without_a_freezer_says_so_and_sessions_stay_awake() {
    let story = "a_host_without_a_freezer_says_so_and_sessions_stay_awake";
    if is_local_only(story, "engines freeze for everybody") {
        return;
    }
    if !is_root() {
        return skipped(story, "needs root to become somebody else");
    }
    if std::path::Path::new("/sys/fs/cgroup/cgroup.controllers").exists() {
        return skipped(story, "an ordinary user may have been given cgroups here");
    }
    let daemon = Daemon::builder().as_user(1000).start().await;
    let session = daemon.create(json!({ "idle_pause_seconds": 1, "ttl_seconds": 60 })).await;
    let refused = session.change("pause").await;
    let text = refused.text();
    assert_eq!(refused.refused(), InvalidRequest);
    assert!(text.contains("cannot be paused on this host"), "{text}");
    wait_until("it says so", DEADLINE, async || {
        daemon.log().contains("idle sessions are not paused here").then_some(())
    })
    .await;
    assert_eq!(status(&session).await, "running");
    assert_eq!(session.sh("echo alive").await, "alive\n");
    daemon.stop().await;
}
