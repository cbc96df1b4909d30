//! The life of a session, from its create to every way in which it can end.

use std::time::{Duration, Instant};

use e2e::daemon::{Ability, Api, Daemon, Leftovers, Session, engine};
use e2e::{DEADLINE, is_root, procfs, skipped, wait_until};
use hyper::Method;
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use shared_protocol::ErrorCode::{
    Conflict, InvalidImage, InvalidRequest, LimitReached, SandboxLost, SessionExpired, SessionNotFound,
};

/// The limit of SPECIFICATION.md for a destroy, whatever runs in the session.
const DESTROYED_WITHIN: Duration = Duration::from_secs(1);
/// The limit for a container engine, which takes longer on a busy machine.
const DESTROYED_BY_ENGINE_WITHIN: Duration = Duration::from_secs(10);

fn destroyed_within() -> Duration {
    if Ability::OwnRemoval.is_there("a second for a destroy") { DESTROYED_WITHIN } else { DESTROYED_BY_ENGINE_WITHIN }
}

async fn until_status(session: &Session, status: &str) -> Value {
    wait_until(&format!("the session is {status}"), DEADLINE, async || {
        let view = session.view().await;
        (view["status"] == status).then_some(view)
    })
    .await
}

fn ids(list: &Value) -> Vec<&str> {
    list.as_array().expect("a list").iter().map(|view| view["id"].as_str().expect("an id")).collect()
}

#[tokio::test]
async fn a_session_is_created_seen_and_destroyed() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let view = session.view().await;
    assert_eq!(view["status"], "running");
    assert_eq!(view["image"], "base");
    assert_eq!(view["runtime"], if engine().is_some() { "docker" } else { "local" });
    assert_eq!(view["cwd"], "/workspace");
    assert_eq!(view["network"], "none");
    assert_eq!(view["writable_root"], false);
    assert_eq!(view["acquire_source"], "cold");
    assert_eq!(view["labels"], json!({}));
    // Half of the memory where files are in memory.
    let disk_mb = view["resources"]["disk_mb"].as_u64().expect("a number");
    assert!([1024, 10 << 10].contains(&disk_mb), "{disk_mb}");
    assert_eq!(view["resources"], json!({ "cpus": 1.0, "memory_mb": 2048, "pids": 256, "disk_mb": disk_mb }));
    let id = session.id.as_bytes();
    assert!(id.len() == 12 && id[8] == b'-' && session.id.replace('-', "").bytes().all(|b| b.is_ascii_hexdigit()));
    assert_eq!(ids(&daemon.get("/v1/sessions").await.ok()), [session.id.as_str()]);

    assert_eq!(daemon.delete(&session.path("")).await.ok(), json!({ "ok": true }));
    assert_eq!(daemon.delete(&session.path("")).await.ok(), json!({ "ok": true }));
    assert_eq!(session.view().await["status"], "destroyed");
    assert_eq!(session.ask(json!({ "cmd": "true" })).await.refused(), SessionNotFound);
    assert_eq!(daemon.get("/v1/sessions").await.ok(), json!([]));
    assert_eq!(ids(&daemon.get("/v1/sessions?status=destroyed").await.ok()), [session.id.as_str()]);
    assert!(Leftovers::of(&daemon.data_dir()).directories.is_empty());
    daemon.stop().await;
}

#[tokio::test]
async fn a_create_without_a_body_has_the_defaults() {
    let daemon = Daemon::start().await;
    let answer = daemon.send(hyper::Method::POST, "/v1/sessions", "").await;
    assert_eq!((answer.status, answer.json()["status"].as_str()), (201, Some("running")));
    daemon.stop().await;
}

#[tokio::test]
async fn sessions_are_found_by_their_labels() {
    let daemon = Daemon::start().await;
    let one = daemon.create(json!({ "labels": { "job": "a", "who": "x y" } })).await;
    let other = daemon.create(json!({ "labels": { "job": "b", "who": "x y" } })).await;
    let list = async |query: &str| {
        let mut list: Vec<String> =
            ids(&daemon.get(&format!("/v1/sessions?{query}")).await.ok()).into_iter().map(str::to_owned).collect();
        list.sort();
        list
    };
    let mut both = vec![one.id.clone(), other.id.clone()];
    both.sort();
    assert_eq!(list("label=job=a").await, [one.id.as_str()]);
    assert_eq!(list("label=who=x%20y").await, both);
    assert_eq!(list("label=who=x+y&label=job=b").await, [other.id.as_str()]);
    assert_eq!(list("label=job=c").await, Vec::<String>::new());
    assert_eq!(list("status=running").await, both);
    assert_eq!(list("status=crashed&status=expired").await, Vec::<String>::new());
    daemon.stop().await;
}

#[tokio::test]
async fn a_repeated_create_gives_the_same_session() {
    let daemon = Daemon::start().await;
    let api = daemon.with_header("idempotency-key", "once");
    let body = json!({ "labels": { "n": "1" } });
    let (first, second) = tokio::join!(api.post("/v1/sessions", body.clone()), api.post("/v1/sessions", body.clone()));
    let third = api.post("/v1/sessions", body).await;
    assert_eq!([first.status, second.status, third.status], [201; 3]);
    assert_eq!(first.json()["id"], second.json()["id"]);
    assert_eq!(first.json()["id"], third.json()["id"]);
    assert_eq!(api.post("/v1/sessions", json!({ "labels": { "n": "2" } })).await.refused(), Conflict);
    assert_eq!(ids(&daemon.get("/v1/sessions").await.ok()).len(), 1);
    for bad in ["", "with space", &"x".repeat(256)] {
        let refused = daemon.with_header("idempotency-key", bad).post("/v1/sessions", json!({})).await;
        assert_eq!(refused.refused(), InvalidRequest, "{bad:?}");
    }
    daemon.stop().await;
}

#[tokio::test]
async fn there_are_never_more_sessions_than_allowed() {
    let daemon = Daemon::builder().config("[sessions]\nmax_sessions = 2\n").start().await;
    let creates = (0..6).map(|_| daemon.post("/v1/sessions", json!({})));
    let answers = futures_util::future::join_all(creates).await;
    let created: Vec<_> = answers.iter().filter(|answer| answer.status == 201).collect();
    assert_eq!(created.len(), 2);
    for answer in answers.iter().filter(|answer| answer.status != 201) {
        assert_eq!(answer.refused(), LimitReached);
        assert!(answer.json()["details"].is_object(), "{}", answer.text());
    }
    let id = created[0].json()["id"].as_str().expect("an id").to_owned();
    daemon.delete(&format!("/v1/sessions/{id}")).await.ok();
    daemon.session().await;
    assert_eq!(daemon.post("/v1/sessions", json!({})).await.refused(), LimitReached);
    daemon.stop().await;
}

#[tokio::test]
async fn a_session_that_nobody_uses_expires() {
    let daemon = Daemon::start().await;
    let session = daemon.create(json!({ "ttl_seconds": 1 })).await;
    let idle = daemon.create(json!({ "ttl_seconds": 1000, "idle_seconds": 1 })).await;
    for session in [session, idle] {
        until_status(&session, "expired").await;
        assert_eq!(session.ask(json!({ "cmd": "true" })).await.refused(), SessionExpired);
        assert_eq!(session.get("x").await.refused(), SessionExpired);
    }
    assert_eq!(daemon.get("/v1/sessions").await.ok(), json!([]));
    let data_dir = daemon.data_dir();
    wait_until("nothing is left", DEADLINE, async || Leftovers::of(&data_dir).directories.is_empty().then_some(()))
        .await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_command_in_flight_holds_the_expiry_off() {
    let daemon = Daemon::start().await;
    let session = daemon.create(json!({ "ttl_seconds": 1 })).await;
    let start = Instant::now();
    assert_eq!(session.sh("sleep 3; echo done").await, "done\n");
    assert!(start.elapsed() > Duration::from_secs(3));
    assert_eq!(session.sh("echo again").await, "again\n");
    until_status(&session, "expired").await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_stream_holds_the_expiry_off_too() {
    let daemon = Daemon::start().await;
    let session = daemon.create(json!({ "ttl_seconds": 1 })).await;
    let mut stream = session.stream(json!({ "cmd": "sleep 3; echo done" })).await;
    stream.until("chunk").await;
    assert_eq!(session.view().await["status"], "running");
    daemon.stop().await;
}

#[tokio::test]
async fn a_sandbox_killed_from_outside_is_said_to_be_lost() {
    if !is_root() {
        return skipped("killing a sandbox from outside", "needs root");
    }
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let mut stream = session.stream(json!({ "cmd": "echo begun; sleep 1000" })).await;
    stream.until("chunk").await;
    let in_flight = {
        let session = session.clone();
        tokio::spawn(async move { session.ask(json!({ "cmd": "echo queued; sleep 1000" })).await })
    };
    wait_until("the second command is queued", DEADLINE, async || {
        let execs = daemon.get(&session.path("/execs")).await.ok();
        (execs.as_array().map(Vec::len) == Some(2)).then_some(())
    })
    .await;
    procfs::signal(daemon.runner_pid(&session), Signal::SIGKILL);
    assert_eq!(in_flight.await.expect("an answer").refused(), SandboxLost);
    let last = stream.until("error").await;
    assert_eq!(last.data["error_code"], "SANDBOX_LOST", "{last:?}");
    let view = until_status(&session, "crashed").await;
    assert!(view["reason"].as_str().is_some_and(|reason| !reason.is_empty()), "{view}");
    assert_eq!(session.ask(json!({ "cmd": "true" })).await.refused(), SandboxLost);
    assert_eq!(session.get("x").await.refused(), SandboxLost);
    assert_eq!(session.put("x", "y").await.refused(), SandboxLost);
    session.destroy().await;
    let data_dir = daemon.data_dir();
    wait_until("nothing is left", DEADLINE, async || Leftovers::of(&data_dir).directories.is_empty().then_some(()))
        .await;
    daemon.session().await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_session_is_gone_within_a_second_however_stubborn_its_processes() {
    let daemon = Daemon::start().await;
    let ways = [
        ("ignoring every signal", "(trap '' TERM INT HUP QUIT; while :; do sleep 1000; done) & echo ok"),
        ("stopped", "sleep 1000 & kill -STOP $!; echo ok"),
        ("forking", "(while :; do (setsid sleep 1000 &) ; sleep 0.01; done) & echo ok"),
        ("a session of its own", "setsid nohup bash -c 'trap \"\" TERM HUP; sleep 1000' >/dev/null 2>&1 & echo ok"),
        ("many", "for i in $(seq 100); do sleep 1000 & done; echo ok"),
        ("busy", "for i in 1 2 3; do (while :; do :; done) & done; echo ok"),
        ("in vfork", "python3 -c 'import subprocess; subprocess.Popen([\"sleep\", \"1000\"])'; echo ok"),
        ("writing", "(while :; do dd if=/dev/zero of=/tmp/x bs=1M count=20 conv=fsync 2>/dev/null; done) & echo ok"),
    ];
    for (name, cmd) in ways {
        let session = daemon.session().await;
        assert_eq!(session.sh(cmd).await, "ok\n");
        let mut foreground = session.stream(json!({ "cmd": "echo begun; trap '' TERM; sleep 1000" })).await;
        foreground.until("chunk").await;
        let start = Instant::now();
        session.destroy().await;
        let took = start.elapsed();
        println!("{name}: destroyed in {took:?}");
        assert!(took < destroyed_within(), "{name}: {took:?}");
        let last = foreground.until("error").await;
        assert_eq!(last.data["error_code"], "SESSION_NOT_FOUND", "{last:?}");
        let left = Leftovers::of(&daemon.data_dir());
        assert!(left.directories.is_empty() && left.processes.is_empty(), "{name}: {left:?}");
    }
    daemon.stop().await;
}

#[tokio::test]
async fn a_create_that_cannot_be_leaves_nothing_and_takes_no_place() {
    let daemon = Daemon::builder().config("[sessions]\nmax_sessions = 1\n").start().await;
    for image in ["no-such-image", "", "../../etc", "/", "host\u{0}"] {
        assert_eq!(daemon.post("/v1/sessions", json!({ "image": image })).await.refused(), InvalidImage, "{image:?}");
    }
    let refused = [
        json!({ "runtime": "no-such-runtime" }),
        json!({ "ttl_seconds": 0 }),
        json!({ "ttl_seconds": 9_999_999_999_u64 }),
        json!({ "idle_seconds": 0 }),
        json!({ "resources": { "cpus": 0 } }),
        json!({ "resources": { "cpus": 1e9 } }),
        json!({ "resources": { "memory_mb": 1 } }),
        json!({ "resources": { "memory_mb": 1_u64 << 40 } }),
        json!({ "resources": { "pids": 1 } }),
        json!({ "resources": { "disk_mb": 0 } }),
        json!({ "resources": { "disk": 1 } }),
        json!({ "env": { "A=B": "x" } }),
        json!({ "env": { "": "x" } }),
        json!({ "env": { "A": "x\u{0}" } }),
        json!({ "env": { "A": "x".repeat(1 << 20) } }),
        json!({ "labels": { "": "x" } }),
        json!({ "labels": { "a": "x\n" } }),
        json!({ "workspace_id": "../x" }),
        json!({ "workspace_id": "" }),
        json!({ "network": "bridge" }),
    ];
    for request in refused {
        let answer = daemon.post("/v1/sessions", request.clone()).await;
        let shown: String = request.to_string().chars().take(80).collect();
        assert_eq!(answer.refused(), InvalidRequest, "{shown}: {}", answer.text());
    }
    assert_eq!(daemon.get("/v1/sessions").await.ok(), json!([]));
    assert_eq!(daemon.get("/v1/workspaces").await.ok()["workspaces"], json!([]));
    assert!(Leftovers::of(&daemon.data_dir()).directories.is_empty());
    daemon.session().await;
    daemon.stop().await;
}

#[tokio::test]
async fn the_variables_of_a_session_are_in_every_shell_and_run() {
    let daemon = Daemon::start().await;
    let value = "a b\n'c' \"d\" $e \\ü";
    let session = daemon.create(json!({ "env": { "MINE": value, "EMPTY": "" } })).await;
    assert_eq!(session.sh("printf '%s' \"$MINE\"").await, value);
    assert_eq!(session.sh("echo ${EMPTY-unset}.").await, ".\n");
    let printed = session.run(&["printenv", "MINE"]).await;
    assert_eq!(printed["stdout"], format!("{value}\n"));
    daemon.post(&session.path("/shells"), json!({ "name": "second" })).await.ok();
    let reply = session.ask(json!({ "cmd": "printf '%s' \"$MINE\"", "shell": "second" })).await.ok();
    assert_eq!(reply["output"], value);
    assert!(!session.sh("env").await.contains("COVE_"), "the machinery's own variables are seen");
    daemon.stop().await;
}

#[tokio::test]
async fn the_state_of_a_shell_stays_from_command_to_command() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    session.sh("cd /tmp; export A=1; f() { echo f$A; }; alias g='echo g'; sleep 1000 &").await;
    assert_eq!(session.sh("pwd; f; g; jobs -p | wc -l").await, "/tmp\nf1\ng\n1\n");
    assert_eq!(session.view().await["cwd"], "/tmp");
    let reply = session.exec("exit 7").await;
    assert_eq!((&reply["exit_code"], &reply["shell_restarted"]), (&json!(7), &json!(true)), "{reply}");
    assert_eq!(session.sh("pwd; f").await, "/tmp\nf1\n");
    daemon.stop().await;
}

/// After `exec` bash is gone and never reads its last lines. The runner sees nothing else while the program runs.
#[tokio::test]
async fn a_program_in_the_shells_place_leaves_the_rest_of_the_session_answering() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let cmd = "cd /tmp; exec bash -c 'echo begun; exec sleep 1000'";
    let mut stream = session.stream(json!({ "cmd": cmd, "exec_id": "sleeper" })).await;
    stream.until("chunk").await;
    let run = session.run(&["echo", "beside"]).await;
    assert_eq!(run["stdout"], "beside\n", "{run}");
    assert_eq!(daemon.get(&session.path("/shells")).await.ok()[0]["state"], "busy");
    daemon.post(&session.path("/signal"), json!({ "signal": "TERM", "exec_id": "sleeper" })).await.ok();
    let (_, done) = stream.finish().await;
    assert_eq!((&done.data["exit_code"], &done.data["shell_restarted"]), (&json!(143), &json!(true)), "{done:?}");
    assert_eq!(session.sh("echo a new shell").await, "a new shell\n");
    daemon.stop().await;
}

#[tokio::test]
async fn a_session_tells_what_it_uses() {
    let daemon = Daemon::start().await;
    let session = daemon.create(json!({ "resources": { "memory_mb": 128 } })).await;
    // This waits for the shell, which a new session may still be starting.
    session.sh("true").await;
    let stats = daemon.get(&session.path("/stats")).await.ok();
    if is_root() {
        assert_eq!(stats["memory_limit"], 128 << 20, "{stats}");
    }
    assert!(stats["pids"].as_u64() >= Some(2), "{stats}");
    session.sh("i=0; while ((i < 200000)); do ((i++)); done; head -c 10M /dev/zero > /workspace/x").await;
    let later = daemon.get(&session.path("/stats")).await.ok();
    assert!(later["cpu_usage_usec"].as_u64() > stats["cpu_usage_usec"].as_u64(), "{stats} {later}");
    assert!(later["disk_bytes"].as_u64().is_none_or(|bytes| bytes >= 10 << 20), "{later}");
    daemon.stop().await;
}

#[tokio::test]
async fn a_client_that_goes_away_during_a_create_leaves_no_session() {
    let daemon = Daemon::start().await;
    for _ in 0..5 {
        let creating = daemon.open(hyper::Method::POST, "/v1/sessions", "{}");
        // The time is long enough to send the request, and too short for an answer.
        let _ = tokio::time::timeout(Duration::from_millis(5), creating).await;
    }
    wait_until("no session is left", DEADLINE, async || {
        let list = daemon.get("/v1/sessions").await.ok();
        let left = Leftovers::of(&daemon.data_dir());
        (list == json!([]) && left.directories.is_empty()).then_some(())
    })
    .await;
    daemon.stop().await;
}

#[tokio::test]
async fn figures_tell_of_sessions_commands_and_errors() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    session.sh("echo counted").await;
    daemon.get("/v1/sessions/nonsense").await;
    let figures = daemon.get("/metrics").await.text();
    for word in ["running", "SESSION_NOT_FOUND", "cove_exec_seconds", "cove_sent_total", "# EOF"] {
        assert!(figures.contains(word), "no {word} in {figures}");
    }
    assert_eq!(daemon.get("/readyz").await.status, 200);
    daemon.stop().await;
}

#[tokio::test]
async fn a_session_is_changed_at_once_and_stays_so_after_a_restart() {
    let mut daemon = Daemon::start().await;
    let session = daemon.create(json!({ "labels": { "a": "1" }, "ttl_seconds": 600 })).await;
    let change = async |api: &Api, body: Value| api.send(Method::PATCH, &session.path(""), body.to_string()).await;
    let before = session.view().await;
    for bad in [
        json!({ "ttl_seconds": 0 }),
        json!({ "idle_seconds": 1_u64 << 60 }),
        json!({ "labels": { "a=b": "c" } }),
        json!({ "labels": { "x": "y".repeat(2000) }, "ttl_seconds": 60 }),
        json!({ "image": "other" }),
    ] {
        assert_eq!(change(&daemon, bad).await.refused(), InvalidRequest);
    }
    assert_eq!(session.view().await, before, "a change that is refused changes nothing");
    let changed = change(&daemon, json!({ "ttl_seconds": 3600, "labels": { "b": "2" } })).await.ok();
    assert_eq!(changed["labels"], json!({ "b": "2" }));
    // Times are written so that later ones sort later.
    assert!(changed["expires_at"].as_str() > before["expires_at"].as_str(), "{changed}");
    assert_eq!(ids(&daemon.get("/v1/sessions?label=b%3D2").await.ok()), [session.id.as_str()]);
    assert_eq!(daemon.get("/v1/sessions?label=a%3D1").await.ok(), json!([]));
    if session.change("pause").await.status == 200 {
        assert_eq!(change(&daemon, json!({ "idle_seconds": 3000 })).await.ok()["status"], "paused");
    } else {
        skipped("a change of a paused session", "there is no freezer here");
    }
    daemon.kill().await;
    let daemon = daemon.start_again();
    let view = daemon.get(&session.path("")).await.ok();
    assert_eq!(view["labels"], json!({ "b": "2" }));
    assert!(view["expires_at"].as_str() > before["expires_at"].as_str(), "{view}");
    change(&daemon, json!({ "ttl_seconds": 1 })).await.ok();
    wait_until("the session has expired", DEADLINE, async || {
        (daemon.get(&session.path("")).await.ok()["status"] == "expired").then_some(())
    })
    .await;
    assert_eq!(change(&daemon, json!({ "ttl_seconds": 60 })).await.refused(), SessionExpired);
    let unknown = daemon.send(Method::PATCH, "/v1/sessions/00000000-000", "{}").await;
    assert_eq!(unknown.refused(), SessionNotFound);
    daemon.stop().await;
}
