//! A daemon that ends and starts again, as its clients see it.

use e2e::daemon::{Ability, Daemon, Leftovers, Session, is_local_only};
use e2e::procfs;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

/// The same session, at the running daemon.
fn again(daemon: &Daemon, session: &Session) -> Session {
    Session { api: daemon.api().clone(), id: session.id.clone() }
}

#[tokio::test]
async fn a_killed_daemon_comes_back_to_its_sessions_their_shells_and_what_runs_in_them() {
    let mut daemon = Daemon::start().await;
    let session = daemon
        .create(
            json!({ "labels": { "a": "b" }, "env": { "SECRET": "s3cret" }, "workspace_id": "w", "ttl_seconds": 600 }),
        )
        .await;
    session.sh("export KEPT=1; cd /tmp; f() { echo function; }; (sleep 1000) & echo started").await;
    let detached = session.ask(json!({ "cmd": "read -t 1000 < <(sleep 1000); echo never", "detach": true, "exec_id": "long", "timeout_ms": 0 }));
    assert_eq!(detached.await.status, 202);
    let before = session.view().await;
    let is_seen = Ability::RunnerOnHost.is_there("the same runner before and after");
    let runner = is_seen.then(|| procfs::process(daemon.runner_pid(&session)).expect("it runs"));
    let is_there = || runner.as_ref().is_none_or(procfs::is_alive);
    // A use is stored after a second at most.
    e2e::wait_until("the last use to be written down", e2e::DEADLINE, async || {
        let file = std::fs::read(daemon.data_dir().join("cove.db-wal")).unwrap_or_default();
        file.windows(4).any(|four| four == b"/tmp").then_some(())
    })
    .await;
    daemon.kill().await;
    assert!(is_there(), "a sandbox outlives its daemon");
    let database = std::fs::read(daemon.data_dir().join("cove.db-wal")).unwrap_or_default();
    assert!(!database.windows(6).any(|six| six == b"s3cret"), "variables are not written down");
    let daemon = daemon.start_again();
    let session = again(&daemon, &session);
    let after = session.view().await;
    for same in ["id", "image", "runtime", "status", "cwd", "workspace_id", "labels", "resources", "created_at"] {
        assert_eq!(after[same], before[same], "{same}");
    }
    assert!(is_there(), "it is the same sandbox");
    let execs = session.api.get(&session.path("/execs")).await.ok().to_string();
    assert!(execs.contains("long"), "{execs}");
    session.api.post(&session.path("/signal"), json!({ "signal": "INT", "exec_id": "long" })).await.ok();
    assert_eq!(session.sh("echo $KEPT $PWD $SECRET; f").await, "1 /tmp s3cret\nfunction\n");
    assert_eq!(session.sh("jobs -p | wc -l").await, "1\n", "an interrupt leaves jobs in the background alone");
    let conflict = daemon.delete("/v1/workspaces/w").await;
    assert_eq!(conflict.status, 409, "its workspace is in use: {}", conflict.text());
    session.destroy().await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_stream_that_the_daemons_death_cut_goes_on_where_it_was() {
    let mut daemon = Daemon::start().await;
    let session = daemon.session().await;
    let cmd = "for n in $(seq 1 400); do printf '%09d\\n' $n; read -t 0.01 < <(sleep 1); done";
    let mut stream = session.stream(json!({ "cmd": cmd, "exec_id": "long" })).await;
    let mut received = stream.until("chunk").await.bytes();
    daemon.kill().await;
    while let Ok(Some(event)) = stream.try_next().await {
        if event.name == "chunk" {
            received.extend(event.bytes());
        }
    }
    let daemon = daemon.start_again();
    let session = again(&daemon, &session);
    let from = u64::try_from(received.len()).expect("small");
    let mut stream = session.reattach("long", from).await;
    let done = loop {
        let event = stream.next().await.expect("a stream ends with an event");
        match event.name.as_str() {
            "chunk" => {
                assert_eq!(event.data["offset"], received.len());
                received.extend(event.bytes());
            }
            "done" => break event,
            _ => {}
        }
    };
    let expected: String = (1..=400).map(|n| format!("{n:09}\n")).collect();
    assert_eq!(String::from_utf8_lossy(&received), expected);
    assert_eq!(done.data["kind"], "exited", "{done:?}");
    daemon.stop().await;
}

#[tokio::test]
async fn sigterm_keeps_sessions_for_the_next_start_and_sigint_destroys_them() {
    let mut daemon = Daemon::builder().keeps_sessions().start().await;
    let session = daemon.session().await;
    session.sh("export KEPT=1; cd /tmp").await;
    let expires = session.view().await["expires_at"].clone();
    daemon.signal(Signal::SIGTERM);
    assert!(daemon.ended().await.success());
    let log = daemon.log();
    assert!(log.lines().any(|line| line.contains("stopped") && line.contains("sessions_kept=1")), "{log}");
    let mut daemon = daemon.start_again();
    let session = again(&daemon, &session);
    let view = session.view().await;
    assert_eq!((&view["cwd"], &view["expires_at"]), (&json!("/tmp"), &expires));
    assert_eq!(session.sh("echo $KEPT").await, "1\n");
    daemon.signal(Signal::SIGINT);
    assert!(daemon.ended().await.success());
    let left = Leftovers::of(&daemon.data_dir());
    assert!(left.is_empty(), "{left:?}");
    let daemon = daemon.start_again();
    assert_eq!(daemon.get(&session.path("")).await.json()["status"], "destroyed", "and it is remembered");
    daemon.stop().await;
}

#[tokio::test]
async fn what_ended_while_no_daemon_ran_is_told_as_a_crash() {
    let mut daemon = Daemon::start().await;
    let (session, other) = (daemon.session().await, daemon.session().await);
    let runner = procfs::process(daemon.runner_pid(&session)).expect("it runs");
    daemon.kill().await;
    procfs::signal(runner.pid, Signal::SIGKILL);
    e2e::wait_until("the runner's end", e2e::DEADLINE, async || (!procfs::is_alive(&runner)).then_some(())).await;
    let daemon = daemon.start_again();
    let view = again(&daemon, &session).view().await;
    assert_eq!(
        (view["status"].as_str(), view["reason"].as_str()),
        (Some("crashed"), Some("it was gone when the daemon came back"))
    );
    let refused = again(&daemon, &session).ask(json!({ "cmd": "true" })).await;
    assert_eq!(refused.status, 502, "{}", refused.text());
    assert_eq!(again(&daemon, &other).sh("echo well").await, "well\n");
    daemon.stop().await;
}

#[tokio::test]
async fn an_idempotency_key_means_the_same_session_after_a_restart() {
    let mut daemon = Daemon::start().await;
    let keyed = daemon.with_header("idempotency-key", "one");
    let first = keyed.create(json!({ "env": { "A": "1" } })).await;
    daemon.kill().await;
    let daemon = daemon.start_again();
    let keyed = daemon.with_header("idempotency-key", "one");
    assert_eq!(keyed.create(json!({ "env": { "A": "1" } })).await.id, first.id);
    let other = keyed.post("/v1/sessions", json!({ "env": { "A": "2" } })).await;
    assert_eq!(other.status, 409, "{}", other.text());
    daemon.stop().await;
}

#[tokio::test]
async fn what_another_daemon_has_is_never_touched() {
    if is_local_only("what_another_daemon_has_is_never_touched", "it looks at processes") {
        return;
    }
    let neighbour = Daemon::start().await;
    let theirs = neighbour.session().await;
    let mut daemon = Daemon::start().await;
    daemon.session().await;
    daemon.kill().await;
    let daemon = daemon.start_again();
    assert_eq!(daemon.get("/v1/sessions").await.ok().as_array().map(Vec::len), Some(1));
    assert_eq!(theirs.sh("echo well").await, "well\n");
    daemon.stop().await;
    neighbour.stop().await;
}

/// Tombstones of every kind are the same before and after a restart.
#[tokio::test]
async fn what_is_over_stays_over() {
    let mut daemon = Daemon::start().await;
    let (destroyed, crashed) = (daemon.session().await, daemon.session().await);
    let expired = daemon.create(json!({ "ttl_seconds": 1 })).await;
    destroyed.destroy().await;
    procfs::signal(daemon.runner_pid(&crashed), Signal::SIGKILL);
    let status =
        async |daemon: &Daemon, session: &Session| -> Value { again(daemon, session).view().await["status"].clone() };
    for (session, end) in [(&crashed, "crashed"), (&expired, "expired"), (&destroyed, "destroyed")] {
        e2e::wait_until(end, e2e::DEADLINE, async || (status(&daemon, session).await == end).then_some(())).await;
    }
    e2e::wait_until("nothing to be left", e2e::DEADLINE, async || {
        Leftovers::sandboxes(&daemon.data_dir()).is_empty().then_some(())
    })
    .await;
    daemon.kill().await;
    let daemon = daemon.start_again();
    for (session, end) in [(&crashed, "crashed"), (&expired, "expired"), (&destroyed, "destroyed")] {
        assert_eq!(status(&daemon, session).await, end);
    }
    daemon.stop().await;
}

#[tokio::test]
async fn what_ran_through_the_daemons_death_still_keeps_its_session() {
    let mut daemon = Daemon::start().await;
    let session = daemon.create(json!({ "ttl_seconds": 4 })).await;
    let busy = session.ask(json!({ "cmd": "sleep 1000", "detach": true, "timeout_ms": 0 })).await;
    assert_eq!(busy.status, 202, "{}", busy.text());
    daemon.kill().await;
    let daemon = daemon.start_again();
    // This session may be idle as long as the other one, and was created later.
    let idle = daemon.create(json!({ "ttl_seconds": 4 })).await;
    e2e::wait_until("the idle one to expire", e2e::DEADLINE, async || {
        (idle.view().await["status"] == "expired").then_some(())
    })
    .await;
    assert_eq!(again(&daemon, &session).view().await["status"], "running");
    daemon.stop().await;
}
