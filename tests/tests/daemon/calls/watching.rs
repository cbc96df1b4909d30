//! A watch through the daemon: it says when it is ready, tells what changes, survives pauses and snapshots, and leaves nothing.

use e2e::daemon::{Ability, Cove, Daemon, Event, EventStream, Session, finished};
use e2e::http::Lines;
use e2e::{DEADLINE, is_root, procfs, skipped, wait_until};
use hyper::Method;
use serde_json::{Value, json};
use shared_protocol::ErrorCode::{FileNotFound, InvalidRequest, LimitReached, SessionNotFound};

/// The most watches of a session, as docs/reference/api.md says.
const MAX_WATCHES: usize = 16;

async fn watch(session: &Session, query: &str) -> EventStream {
    let path = session.path(&format!("/fs/watch?{query}"));
    let mut stream = session.api.events(Method::GET, &path, Value::Null).await;
    let ready = stream.next().await.expect("an event");
    assert_eq!((ready.name.as_str(), &ready.data), ("ready", &json!({ "truncated": false })));
    stream
}

/// The changes until this path is told.
async fn until(stream: &mut EventStream, path: &str) -> Vec<Value> {
    let mut changes = Vec::new();
    loop {
        let Event { name, data, .. } = stream.next().await.expect("an event");
        assert_eq!(name, "change", "{data}");
        if data["path"] == path {
            return changes;
        }
        changes.push(data);
    }
}

/// The process of each watch of a session.
fn helpers(daemon: &Daemon, session: &Session) -> usize {
    let children = procfs::children(daemon.runner_pid(session));
    children.into_iter().filter(|process| process.name == "runner-files").count()
}

#[tokio::test]
async fn what_changes_in_a_session_is_told() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    session.sh("mkdir -p src/old; echo x > src/old/f").await;
    let mut stream = watch(&session, "path=src&recursive=1").await;
    session.sh("mv src/old src/new; echo y >> src/new/f; mkdir -p src/a/b/c; touch src/a/b/c/f; rm src/new/f; touch src/end").await;
    let changes = until(&mut stream, "src/end").await;
    for expected in [
        json!({ "kind": "moved", "path": "src/new", "from": "src/old", "is_dir": true }),
        json!({ "kind": "modified", "path": "src/new/f", "is_dir": false }),
        json!({ "kind": "created", "path": "src/a", "is_dir": true }),
        json!({ "kind": "created", "path": "src/a/b/c/f", "is_dir": false }),
        json!({ "kind": "deleted", "path": "src/new/f", "is_dir": false }),
    ] {
        assert!(changes.contains(&expected), "{expected} is not in {changes:?}");
    }
    // What the API writes is told as well, by its name alone.
    session.put("src/api.txt", "x").await.ok();
    let changes = until(&mut stream, "src/api.txt").await;
    assert!(!changes.iter().any(|change| change.to_string().contains(".cove-")), "{changes:?}");
    session.sh("rm -r src").await;
    let ended = stream.until("ended").await;
    assert_eq!(ended.data, json!({ "reason": "deleted" }));
    assert_eq!(stream.next().await, None);
    daemon.stop().await;
}

#[tokio::test]
async fn a_watch_without_a_path_is_of_the_workspace_and_can_be_lines() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let api = daemon.with_header("accept", "application/x-ndjson");
    let response = api.open(Method::GET, &session.path("/fs/watch"), "").await.expect("an answer");
    assert_eq!(response.headers()["content-type"], "application/x-ndjson");
    let mut lines = Lines::new(response.into_body());
    let mut next = async || -> Value {
        let line = tokio::time::timeout(DEADLINE, lines.next()).await.expect("a line in time");
        serde_json::from_slice(&line.expect("the connection holds").expect("a line")).expect("JSON")
    };
    assert_eq!(next().await, json!({ "event": "ready", "truncated": false }));
    session.sh("touch f").await;
    assert_eq!(next().await, json!({ "event": "change", "kind": "created", "path": "f", "is_dir": false }));
    daemon.stop().await;
}

#[tokio::test]
async fn what_cannot_be_watched_is_an_ordinary_error() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    session.sh("touch file").await;
    for (query, status, code) in [
        ("path=missing", 404, FileNotFound),
        ("path=file", 400, InvalidRequest),
        ("path=../../etc", 400, InvalidRequest),
        ("path=", 400, InvalidRequest),
        ("recursive=maybe", 400, InvalidRequest),
        ("depth=1", 400, InvalidRequest),
    ] {
        let answer = daemon.get(&session.path(&format!("/fs/watch?{query}"))).await;
        assert_eq!((answer.status, answer.refused()), (status, code), "{query}");
    }
    assert_eq!(daemon.get("/v1/sessions/none/fs/watch").await.refused(), SessionNotFound);
    daemon.stop().await;
}

#[tokio::test]
async fn watches_of_a_session_are_limited_and_leave_nothing() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let mut watches = Vec::new();
    for _ in 0..MAX_WATCHES {
        watches.push(watch(&session, "path=.").await);
    }
    let refused = daemon.get(&session.path("/fs/watch")).await;
    assert_eq!((refused.status, refused.refused()), (429, LimitReached));
    session.put("f", "other calls work").await.ok();
    for stream in &mut watches {
        until(stream, "f").await;
    }
    drop(watches);
    if Ability::RunnerOnHost.is_there("the processes of watches") {
        wait_until("no process is left", DEADLINE, async || (helpers(&daemon, &session) == 0).then_some(())).await;
    }
    wait_until("all places are free", DEADLINE, async || {
        let answer = daemon.open(Method::GET, &session.path("/fs/watch"), "").await.expect("an answer");
        (answer.status() == 200).then_some(())
    })
    .await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_watch_neither_keeps_a_session_awake_nor_loses_a_change_while_it_is_paused() {
    if !is_root() {
        let name = "a_watch_neither_keeps_a_session_awake_nor_loses_a_change_while_it_is_paused";
        return skipped(name, "an ordinary user has no freezer here");
    }
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let mut stream = watch(&session, "path=.").await;
    assert_eq!(session.change("pause").await.ok()["status"], "paused");
    session.sh("touch woken").await;
    until(&mut stream, "woken").await;
    assert_eq!(session.change("pause").await.ok()["status"], "paused");
    // To begin one wakes the session.
    drop(watch(&session, "path=.").await);
    assert_eq!(session.view().await["status"], "running");
    daemon.stop().await;
}

#[tokio::test]
async fn a_snapshot_does_not_end_a_watch() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let mut stream = watch(&session, "path=.").await;
    let made = daemon.post(&session.path("/snapshots"), json!({})).await;
    if made.status != 201 {
        skipped("a_snapshot_does_not_end_a_watch", &format!("no snapshots here: {}", made.text()));
        return daemon.stop().await;
    }
    session.sh("touch after").await;
    until(&mut stream, "after").await;
    let path = format!("/v1/snapshots/{}", made.json()["id"].as_str().expect("an id"));
    daemon.delete(&path).await.ok();
    daemon.stop().await;
}

#[tokio::test]
async fn the_end_of_a_session_ends_its_watches_with_the_reason() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let mut stream = watch(&session, "path=.").await;
    session.destroy().await;
    let error = stream.until("error").await;
    assert_eq!(error.data["error_code"], "SESSION_NOT_FOUND", "{error:?}");
    assert_eq!(stream.next().await, None);
    daemon.stop().await;
}

#[tokio::test]
async fn a_daemon_that_ends_cuts_its_watches_and_the_next_one_can_watch_again() {
    let mut daemon = Daemon::builder().keeps_sessions().start().await;
    let session = daemon.session().await;
    let mut stream = watch(&session, "path=.").await;
    daemon.kill().await;
    while let Ok(Some(_)) = stream.try_next().await {}
    let daemon = daemon.start_again();
    let session = Session { api: daemon.api().clone(), id: session.id };
    let mut stream = watch(&session, "path=.").await;
    session.sh("touch f").await;
    until(&mut stream, "f").await;
    if Ability::RunnerOnHost.is_there("the processes of watches") {
        wait_until("one process is left", DEADLINE, async || (helpers(&daemon, &session) == 1).then_some(())).await;
    }
    session.destroy().await;
    daemon.stop().await;
}

#[tokio::test]
async fn cove_watch_prints_a_line_for_each_change() {
    use std::io::{BufRead as _, BufReader};
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    session.sh("mkdir d").await;
    let cove = Cove::of(&daemon);
    let mut plain = cove.spawn(&["watch", &session.id, "d"]);
    let mut said = BufReader::new(plain.stderr.take().expect("a pipe"));
    let mut line = String::new();
    said.read_line(&mut line).expect("a line");
    assert!(line.contains("watching d"), "{line}");
    plain.stderr = Some(said.into_inner());
    let mut lines = cove.spawn(&["watch", "-r", "--json", &session.id, "d"]);
    let mut printed = BufReader::new(lines.stdout.take().expect("a pipe"));
    let mut line = String::new();
    printed.read_line(&mut line).expect("a line");
    assert_eq!(line, "{\"event\":\"ready\",\"truncated\":false}\n");
    lines.stdout = Some(printed.into_inner());
    session.sh("ln -s x d/f; mv d/f d/g; rm -r d").await;
    let plain = finished(plain).await;
    let text = String::from_utf8_lossy(&plain.stdout).into_owned();
    assert_eq!((plain.code, text.as_str()), (0, "created  d/f\nmoved    d/f -> d/g\ndeleted  d/g\n"));
    assert!(plain.stderr.contains("d was deleted"), "{}", plain.stderr);
    let lines = finished(lines).await;
    let last = String::from_utf8_lossy(&lines.stdout).lines().last().map(str::to_owned);
    assert_eq!((lines.code, last.as_deref()), (0, Some(r#"{"event":"ended","reason":"deleted"}"#)));
    let missing = cove.run(&["watch", &session.id, "nothing"]).await;
    assert_eq!(missing.code, 1);
    assert!(missing.stderr.contains("no such file"), "{}", missing.stderr);
    daemon.stop().await;
}
