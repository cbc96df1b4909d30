//! What is not allowed ends at once, and everybody is told what was missing: the program, and who reads the reply.

use e2e::{DEADLINE, wait_until};
use serde_json::{Value, json};

use super::{World, allow, decisions, give_client, prints, put, python, runs, view};

#[tokio::test]
async fn replies_and_streams_name_the_rule_that_is_missing() {
    let Some(World { daemon, upstream }) = World::start("network_denied").await else { return };
    let session = daemon.create(json!({ "network": allow(&["good.example.com"]) })).await;
    give_client(&session).await;
    let evil = upstream.evil();
    for (code, denied) in [
        ("shown(get('evil.example.com'))".to_owned(), json!(["evil.example.com"])),
        ("shown(send('good.example.com', 22, b'x'))".to_owned(), json!(["good.example.com:22"])),
        (format!("shown(send('{evil}', 22, b'x'))"), json!([format!("{evil}:22")])),
        ("shown(send('good.example.com', 443, hello('evil.example.com')))".to_owned(), json!(["evil.example.com"])),
        ("shown(get('good.example.com', name='evil.example.com'))".to_owned(), json!(["evil.example.com"])),
        ("shown(send('good.example.com', 443, b'SSH-2.0-x\\r\\n'))".to_owned(), json!(["good.example.com:443"])),
        ("shown(get('evil.example.com')); shown(get('other.example.com'))".to_owned(), json!(["evil.example.com", "other.example.com"])),
        (format!("shown(get('{evil}', name='good.example.com'))"), json!([format!("{evil}:80")])),
        ("shown(send('good.example.com', 80, b'CONNECT evil.example.com:443 HTTP/1.1\\r\\nHost: evil.example.com:443\\r\\n\\r\\n'))".to_owned(), json!(["evil.example.com:443"])),
        ("shown(send('good.example.com', 80, b'unfinished'))".to_owned(), json!(["good.example.com:80"])),
        ("shown(get('good.example.com'))".to_owned(), json!([])),
    ] {
        let list = |reply: &Value| reply.get("network_denied").cloned().unwrap_or_else(|| json!([]));
        let reply = runs(&session, &code).await;
        assert_eq!(list(&reply), denied, "exec: {code}: {reply}");
        let script = format!("from client import *\n{code}");
        let run = json!({ "argv": ["env", "PYTHONPATH=/workspace", "python3", "-c", script] });
        let reply = daemon.post(&session.path("/run"), run).await.ok();
        assert_eq!(list(&reply), denied, "run: {code}: {reply}");
        let stream = session.stream(json!({ "cmd": format!("export PYTHONPATH=/workspace; {}", python(&code)) })).await;
        let (_, done) = stream.finish().await;
        assert_eq!(list(&done.data), denied, "stream: {code}: {done:?}");
    }
    // What it names is a rule that works.
    put(&session, allow(&["good.example.com", "good.example.com:22"])).await;
    assert!(prints(&session, "shown(some_of(dial('good.example.com', 22)))").await.contains("SSH-2.0"));
    daemon.stop().await;
}

#[tokio::test]
async fn plain_http_is_told_why_and_everything_else_is_reset() {
    let Some(World { daemon, upstream }) = World::start("the page of a denial").await else { return };
    let session = daemon.create(json!({ "network": allow(&["good.example.com"]) })).await;
    give_client(&session).await;
    let evil = upstream.evil();
    let page = prints(&session, &format!("shown(get('{evil}', name='evil.example.com'))")).await;
    assert!(page.starts_with("HTTP/1.1 403"), "{page}");
    assert!(page.contains("evil.example.com"), "it names the rule: {page}");
    let page = prints(&session, &format!("shown(get('{evil}', 8080))")).await;
    assert!(page.starts_with("HTTP/1.1 403") && page.contains(":8080"), "{page}");
    let curl = session.exec(&format!("curl -sS -o /dev/null -w '%{{http_code}}' http://{evil}/")).await;
    assert_eq!(curl["output"], "403", "{curl}");
    // Outcomes, not timings: a reset comes from the daemon, and no limit of a program's patience.
    for (code, outcome) in [
        (format!("shown(send('{evil}', 443, hello('evil.example.com')))"), "ConnectionResetError"),
        ("shown(send('good.example.com', 443, hello('evil.example.com')))".to_owned(), "ConnectionResetError"),
        (format!("c = dial('{evil}', 22); shown(some_of(c))"), "ConnectionResetError"),
        (format!("c = dial('{evil}', 443); shown(some_of(c))"), "ConnectionResetError"),
        ("shown(send('good.example.com', 443, hello(None)))".to_owned(), "ConnectionResetError"),
        ("resolve('evil.example.com')".to_owned(), "Name or service not known"),
    ] {
        let reply = runs(&session, &code).await;
        let output = reply["output"].as_str().expect("text");
        assert!(output.contains(outcome), "{code}: {reply}");
    }
    assert!(upstream.seen_at(evil).is_empty(), "{:?}", upstream.seen());
    assert!(!upstream.saw("evil"), "{:?}", upstream.seen());
    daemon.stop().await;
}

#[tokio::test]
async fn a_connection_that_nobody_answers_is_reset_and_is_no_denial() {
    let Some(World { mut daemon, upstream }) = World::start("nobody answers").await else { return };
    let mut names = super::names(&upstream);
    names.push(("closed.example.com", upstream.good().into()));
    daemon.set_hosts(&names);
    let session = daemon.create(json!({ "network": allow(&["closed.example.com:9"]) })).await;
    give_client(&session).await;
    let reply = runs(&session, "shown(send('closed.example.com', 9, b'x'))").await;
    assert!(reply["output"].as_str().expect("text").contains("Error"), "{reply}");
    assert!(reply.get("network_denied").is_none_or(|denied| denied == &json!([])), "{reply}");
    let log = decisions(&session).await;
    let last = log.last().expect("a decision");
    assert_eq!((&last["verdict"], &last["reason"]), (&json!("failed"), &json!("unreachable")), "{last}");
    daemon.stop().await;
}

#[tokio::test]
async fn a_session_has_no_more_connections_than_its_limit() {
    let config = "[network]\nmax_connections = 3\n";
    let Some(World { daemon, upstream }) = World::start_with("a limit of connections", |b| b.config(config)).await
    else {
        return;
    };
    let session = daemon.create(json!({ "network": "full" })).await;
    give_client(&session).await;
    let code = "request = b'GET /drip HTTP/1.1\\r\\nHost: good.example.com\\r\\n\\r\\n'
held = []
for i in range(6):
    # A connection over the limit may be reset while it is made.
    try: c = dial('good.example.com', 80); held.append(c); c.sendall(request)
    except OSError: pass
print([b'200' in some_of(c) for c in held])
for c in held: c.close()";
    let output = prints(&session, code).await;
    assert_eq!(output.matches("True").count(), 3, "{output}");
    assert_eq!(upstream.seen_at(upstream.good()).len(), 3);
    let log = decisions(&session).await;
    assert_eq!(log.iter().filter(|one| one["reason"] == "connection_limit").count(), 3, "{log:?}");
    wait_until("all places are free again", DEADLINE, async || {
        (view(&session).await["connections"] == 0).then_some(())
    })
    .await;
    assert!(prints(&session, "shown(get('good.example.com'))").await.contains("hello"));
    daemon.stop().await;
}

/// The daemon's open files are for clients too.
#[tokio::test]
async fn all_sessions_together_have_no_more_connections_than_their_limit() {
    let config = "[network]\nmax_total_connections = 3\n";
    let Some(World { daemon, upstream }) = World::start_with("a limit for all", |b| b.config(config)).await else {
        return;
    };
    let sessions =
        [daemon.create(json!({ "network": "full" })).await, daemon.create(json!({ "network": "full" })).await];
    let code = "request = b'GET /drip HTTP/1.1\\r\\nHost: good.example.com\\r\\n\\r\\n'
held = []
for i in range(3):
    try: c = dial('good.example.com', 80); held.append(c); c.sendall(request)
    except OSError: pass
print([b'200' in some_of(c) for c in held].count(True), flush=True)
import time
while True: time.sleep(1)";
    for (session, reached) in sessions.iter().zip(["3", "0"]) {
        give_client(session).await;
        session
            .sh(&format!(": > /tmp/out; (export PYTHONPATH=/workspace; {} > /tmp/out 2>&1 &)", super::python(code)))
            .await;
        wait_until("an answer", DEADLINE, async || (session.sh("cat /tmp/out").await.trim() == reached).then_some(()))
            .await;
    }
    assert_eq!(upstream.open_at(upstream.good()), 3);
    let log = decisions(&sessions[1]).await;
    let limited = log.iter().filter(|one| one["reason"] == "daemon_connection_limit" && one["verdict"] == "cut");
    assert_eq!(limited.count(), 3, "{log:?}");
    sessions[0].destroy().await;
    wait_until("places are free again", DEADLINE, async || {
        prints(&sessions[1], "shown(get('good.example.com'))").await.contains("hello").then_some(())
    })
    .await;
    daemon.stop().await;
}

/// The limit is a limit: what is used up stays used up, also for new connections.
#[tokio::test]
async fn a_session_that_used_up_its_traffic_sends_and_receives_nothing_more() {
    let config = "[network]\nmax_total_bytes = 1000000\n";
    let Some(World { daemon, upstream }) = World::start_with("a limit of bytes", |b| b.config(config)).await else {
        return;
    };
    let session = daemon.create(json!({ "network": "full" })).await;
    give_client(&session).await;
    let code = "print(len(get('good.example.com', path='/bytes/400000')) > 400000, len(get('good.example.com', path='/bytes/4000000')))";
    let output = prints(&session, code).await;
    let (first, second) = output.trim().split_once(' ').expect("two");
    assert_eq!(first, "True");
    assert!(second.parse::<usize>().expect("a number") < 1_200_000, "{output}");
    let log = decisions(&session).await;
    assert!(log.iter().any(|one| one["verdict"] == "cut" && one["reason"] == "byte_limit"), "{log:?}");
    upstream.forget();
    let reply =
        runs(&session, "for i in range(20): send('good.example.com', 5432, b'echo SMUGGLED' + b'x' * 50000)").await;
    assert!(!upstream.saw("SMUGGLED"), "{} connections got through after the limit: {reply}", upstream.seen().len());
    daemon.stop().await;
}

#[tokio::test]
async fn a_session_is_no_faster_than_its_limit() {
    let config = "[network]\nmax_bytes_per_second = 1000000\n";
    let Some(World { daemon, upstream: _upstream }) = World::start_with("a limit of speed", |b| b.config(config)).await
    else {
        return;
    };
    let session = daemon.create(json!({ "network": "full" })).await;
    give_client(&session).await;
    let code = "import threading, time
start, got = time.time(), []
work = lambda: got.append(len(get('good.example.com', path='/bytes/1000000')))
threads = [threading.Thread(target=work) for _ in range(3)]
for t in threads: t.start()
for t in threads: t.join()
print(min(got) > 1000000, time.time() - start > 2.5)";
    assert_eq!(prints(&session, code).await, "True True\n", "three connections share one limit");
    daemon.stop().await;
}
