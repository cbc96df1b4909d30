//! A policy that changes while connections are open, and a daemon that ends while they are.

use e2e::daemon::{Ability, Event, EventStream, Session, engine};
use e2e::{DEADLINE, wait_until};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::{World, allow, decisions, give_client, prints, put, python, runs, view};

/// Opens a connection that stays open: it prints `open`, then what ends it.
fn holds(host: &str, port: u16, first: &str) -> String {
    format!(
        "c = dial('{host}', {port}); c.settimeout(None)
c.sendall({first})
some_of(c); print('open', flush=True)
print('ended', some_of(c), flush=True)"
    )
}

const DRIP: &str = "b'GET /drip HTTP/1.1\\r\\nHost: good.example.com\\r\\n\\r\\n'";

/// Runs code in a shell of its own, and waits for its first line.
async fn started(session: &Session, shell: &str, code: &str) -> EventStream {
    let cmd = format!("export PYTHONPATH=/workspace; {}", python(code));
    let made = session.api.post(&session.path("/shells"), json!({ "name": shell })).await;
    assert!(made.status < 300 || made.status == 404 || made.status == 409, "{}", made.text());
    let mut stream = session.stream(json!({ "cmd": cmd, "shell": shell })).await;
    let mut output = Vec::new();
    while !output.ends_with(b"open\n") {
        let event: Event = stream.next().await.expect("the stream goes on");
        output.extend(event.bytes());
        assert_ne!(event.name, "done", "{}", String::from_utf8_lossy(&output));
    }
    stream
}

#[tokio::test]
async fn a_new_policy_cuts_what_it_forbids_and_leaves_the_rest() {
    let Some(World { daemon, upstream }) = World::start("PUT and open connections").await else { return };
    let session = daemon
        .create(json!({ "network": allow(&["good.example.com", "evil.example.com:5432", "other.example.com:22"]) }))
        .await;
    give_client(&session).await;
    let good = started(&session, "a", &holds("good.example.com", 80, DRIP)).await;
    let evil = started(&session, "b", &holds("evil.example.com", 5432, "b'echo x'")).await;
    let other = started(&session, "c", &holds("other.example.com", 22, "b'echo x'")).await;
    wait_until("three connections", DEADLINE, async || (view(&session).await["connections"] == 3).then_some(())).await;
    put(&session, allow(&["good.example.com", "other.example.com:22"])).await;
    let (output, done) = evil.finish().await;
    assert!(String::from_utf8_lossy(&output).contains("ConnectionResetError"), "{output:?} {done:?}");
    wait_until("evil is closed", DEADLINE, async || (upstream.open_at(upstream.evil()) == 0).then_some(())).await;
    assert_eq!((upstream.open_at(upstream.good()), upstream.open_at(upstream.other())), (1, 1));
    let log = decisions(&session).await;
    let cut: Vec<&Value> = log.iter().filter(|one| one["verdict"] == "cut").collect();
    assert_eq!(cut.len(), 1, "{log:?}");
    assert_eq!((&cut[0]["host"], &cut[0]["reason"]), (&json!("evil.example.com"), &json!("policy_changed")));
    put(&session, json!("none")).await;
    for stream in [good, other] {
        let (output, _) = stream.finish().await;
        assert!(
            String::from_utf8_lossy(&output).contains("ConnectionResetError"),
            "{}",
            String::from_utf8_lossy(&output)
        );
    }
    daemon.stop().await;
}

/// A raw address that `full` allowed is not one that a rule for a name allows.
#[tokio::test]
async fn a_connection_to_an_address_is_cut_when_only_names_are_allowed() {
    let Some(World { daemon, upstream }) = World::start("from full to names").await else { return };
    for port in [80, 443] {
        let session = daemon.create(json!({ "network": "full" })).await;
        give_client(&session).await;
        let code = holds(&upstream.evil().to_string(), port, "b'echo x'");
        let stream = started(&session, "a", &code).await;
        put(&session, allow(&["good.example.com"])).await;
        // It either ends now, or it is still open after a later exec, which shows that it was not cut.
        let cut = wait_until("a decision", DEADLINE, async || {
            let log = decisions(&session).await;
            let cut = log.iter().any(|one| one["verdict"] == "cut");
            let probed = prints(&session, "print(1)").await == "1\n";
            (cut || probed).then_some(cut)
        });
        let is_cut = cut.await || decisions(&session).await.iter().any(|one| one["verdict"] == "cut");
        assert!(is_cut, "port {port}: a connection to {} is open under good.example.com", upstream.evil());
        stream.finish().await;
        session.destroy().await;
    }
    daemon.stop().await;
}

/// Under `full` everything passes at once. What a later policy must know about a connection was noted nevertheless.
#[tokio::test]
async fn from_full_to_names_keeps_what_provably_is_one_of_them() {
    let Some(World { daemon, upstream }) = World::start("full and names").await else { return };
    let session = daemon.create(json!({ "network": "full" })).await;
    give_client(&session).await;
    let tls = |host: &str, name: &str| holds(host, 443, &format!("hello('{name}')"));
    let kept = [
        ("a", tls("good.example.com", "good.example.com")),
        ("b", holds("other.example.com", 5432, "b'\\0binary'")),
        ("c", holds("other.example.com", 443, "hello('good.example.com')")),
    ];
    let cut = [
        ("d", tls("evil.example.com", "evil.example.com")),
        ("e", tls("good.example.com", "evil.example.com")),
        // A later request could have named another host.
        ("f", holds("good.example.com", 80, DRIP)),
        // It has not said all that is to be known.
        ("g", holds("good.example.com", 22, "b''")),
    ];
    let mut streams = Vec::new();
    for (shell, code) in kept.iter().chain(&cut) {
        streams.push(started(&session, shell, code).await);
    }
    let later = streams.split_off(kept.len());
    let open = async |count: u64| {
        wait_until("connections", DEADLINE, async || (view(&session).await["connections"] == count).then_some(())).await
    };
    open(7).await;
    let rules = ["good.example.com", "good.example.com:22", "other.example.com", "other.example.com:5432"];
    put(&session, allow(&rules)).await;
    for stream in later {
        let (output, _) = stream.finish().await;
        let output = String::from_utf8_lossy(&output);
        assert!(output.contains("ConnectionResetError"), "{output}");
    }
    open(3).await;
    assert_eq!((upstream.open_at(upstream.good()), upstream.open_at(upstream.other())), (1, 2));
    put(&session, json!("none")).await;
    for stream in streams {
        stream.finish().await;
    }
    daemon.stop().await;
}

/// The policy that counts is the one at the time of the first bytes, not the one of the connection's begin.
#[tokio::test]
async fn a_connection_that_has_not_spoken_yet_falls_under_the_new_policy() {
    let Some(World { daemon, upstream }) = World::start("a silent connection").await else { return };
    let session = daemon.create(json!({ "network": allow(&["good.example.com"]) })).await;
    give_client(&session).await;
    let code = "c = dial('good.example.com', 80); print('open', flush=True)
import os, time
while not os.path.exists('/tmp/go'): time.sleep(0.01)
try:
    c.sendall(b'GET /LATE HTTP/1.1\\r\\nHost: good.example.com\\r\\n\\r\\n')
except OSError as error: print(error)
shown(some_of(c))";
    let stream = started(&session, "a", code).await;
    wait_until("a connection", DEADLINE, async || (view(&session).await["connections"] == 1).then_some(())).await;
    put(&session, json!("none")).await;
    session.sh("touch /tmp/go").await;
    let (output, _) = stream.finish().await;
    assert!(!upstream.saw("LATE"), "a request left after the policy forbade it: {}", String::from_utf8_lossy(&output));
    // A client of a proxy is told that there is a connection before it speaks, so there is one; but nothing passed.
    let is_early = !Ability::EveryDial.is_there("a server that sees no connection");
    assert!(upstream.seen().iter().all(|seen| is_early && seen.bytes.is_empty()), "{:?}", upstream.seen());
    daemon.stop().await;
}

/// A half-closed connection whose answer is still to come.
#[tokio::test]
async fn a_new_policy_that_still_allows_a_half_closed_connection_leaves_it() {
    let Some(World { daemon, upstream: _upstream }) = World::start("PUT and a half-closed connection").await else {
        return;
    };
    let session = daemon.create(json!({ "network": allow(&["good.example.com"]) })).await;
    give_client(&session).await;
    let code = "c = dial('good.example.com', 80); c.settimeout(None)
c.sendall(b'GET /bytes/60000000 HTTP/1.1\\r\\nHost: good.example.com\\r\\n\\r\\n'); c.shutdown(socket.SHUT_WR)
first = c.recv(1); print('open', flush=True)
import os, time
while not os.path.exists('/tmp/go'): time.sleep(0.01)
total = 1
try:
    while total < 60000000:
        piece = c.recv(1 << 20)
        if not piece: break
        total += len(piece)
except OSError as error: print(type(error).__name__)
print('got', total >= 60000000)";
    let stream = started(&session, "a", code).await;
    put(&session, allow(&["good.example.com", "other.example.com"])).await;
    session.sh("touch /tmp/go").await;
    let (output, _) = stream.finish().await;
    assert!(String::from_utf8_lossy(&output).contains("got True"), "{}", String::from_utf8_lossy(&output));
    daemon.stop().await;
}

/// Many connections begin while the policy changes all the time. When it forbids everything, nothing is open and nothing passes.
#[tokio::test]
async fn a_race_of_puts_against_connections_leaves_none_open() {
    let Some(World { daemon, upstream }) = World::start("a race of PUT").await else { return };
    let session = daemon.create(json!({ "network": allow(&["good.example.com"]) })).await;
    give_client(&session).await;
    let code = "import threading, os
address = resolve('good.example.com')[0]
print('open', flush=True)
held = []
def work():
    while not os.path.exists('/tmp/stop'):
        try:
            c = dial(address, 80); held.append(c)
            c.sendall(b'GET /drip HTTP/1.1\\r\\nHost: good.example.com\\r\\n\\r\\n'); c.settimeout(0.05); c.recv(1)
        except OSError: pass
        if len(held) > 300: held.clear()
threads = [threading.Thread(target=work) for _ in range(4)]
for t in threads: t.start()
for t in threads: t.join()
for c in held: c.close()";
    let stream = started(&session, "a", code).await;
    for _ in 0..15 {
        put(&session, allow(&["good.example.com"])).await;
        wait_until("a connection", DEADLINE, async || (upstream.open_at(upstream.good()) > 2).then_some(())).await;
        put(&session, json!("none")).await;
        wait_until("no connection", DEADLINE, async || (upstream.open_at(upstream.good()) == 0).then_some(())).await;
        // None comes later either: the programs go on to dial.
        prints(&session, "print(get('198.51.100.255'))").await;
        let before = upstream.seen().len();
        prints(&session, "print(get('198.51.100.255'))").await;
        assert_eq!(upstream.seen().len(), before, "a connection was opened under none");
    }
    session.sh("touch /tmp/stop").await;
    stream.finish().await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_policy_survives_a_killed_daemon_and_open_connections_do_not() {
    let Some(World { mut daemon, upstream }) = World::start_with("kill -9", |b| b.keeps_sessions()).await else {
        return;
    };
    let rules = json!({ "allow": ["good.example.com", "good.example.com:5432"], "deny": ["evil.example.com"] });
    let session = daemon.create(json!({ "network": "none" })).await;
    give_client(&session).await;
    put(&session, rules.clone()).await;
    let code = format!(
        "(export PYTHONPATH=/workspace; {} > /tmp/held 2>&1 &)",
        python(&holds("good.example.com", 5432, "b'echo x'"))
    );
    session.sh(&code).await;
    wait_until("a connection", DEADLINE, async || (upstream.open_at(upstream.good()) == 1).then_some(())).await;
    daemon.kill().await;
    wait_until("it is cut", DEADLINE, async || (upstream.open_at(upstream.good()) == 0).then_some(())).await;
    let daemon = daemon.start_again();
    let session = Session { api: daemon.api().clone(), ..session };
    wait_until("the program sees it", DEADLINE, async || {
        session.sh("cat /tmp/held").await.contains("ended").then_some(())
    })
    .await;
    let first = &decisions(&session).await[0];
    assert_eq!((&first["verdict"], &first["reason"]), (&json!("cut"), &json!("daemon_restarted")), "{first}");
    assert_eq!(view(&session).await["network"], rules);
    let output = prints(&session, "shown(get('good.example.com'))").await;
    assert!(output.contains("hello"), "{output}");
    let reply = runs(&session, "shown(get('evil.example.com'))").await;
    assert_eq!(reply["network_denied"], json!(["evil.example.com"]), "{reply}");
    session.destroy().await;
    daemon.stop().await;
}

#[tokio::test]
async fn nothing_gets_out_while_the_daemon_is_stopped_or_dead() {
    let Some(World { mut daemon, upstream }) = World::start_with("a dead daemon", |b| b.keeps_sessions()).await else {
        return;
    };
    let session = daemon.create(json!({ "network": "full" })).await;
    give_client(&session).await;
    assert!(prints(&session, "shown(get('good.example.com'))").await.contains("hello"), "the control");
    // Threads that try by address and by name, all the time. Questions without an answer take longer.
    let code = format!(
        "import os, threading
import client; client.PATIENCE = 0.2
def tries(host, file):
    i = 0
    while not os.path.exists('/tmp/stop'):
        i += 1
        try:
            c = dial(host, 5432); c.sendall(b'echo try %d.' % i); c.close()
        except OSError: pass
        open(file, 'w').write(str(i))
for host, file in [('{}', '/tmp/tries'), ('good.example.com', '/tmp/names')]: threading.Thread(target=tries, args=(host, file)).start()",
        upstream.good()
    );
    session.sh(&format!("(export PYTHONPATH=/workspace; {} > /tmp/out 2>&1 &)", python(&code))).await;
    upstream.until_saw("try 2.").await;
    // The files of a session can be read without the daemon: they lie on the host, or the engine shows them.
    let container = engine().map(|engine| (engine, engine.container(&session.id)));
    let runner = if container.is_none() { daemon.runner_pid(&session) } else { 0 };
    let tries = || {
        let text = match &container {
            Some((engine, container)) => engine.docker(&["exec", container, "cat", "/tmp/tries"]),
            None => std::fs::read_to_string(format!("/proc/{runner}/root/tmp/tries")).unwrap_or_default(),
        };
        text.parse::<u64>().unwrap_or(0)
    };
    daemon.signal(Signal::SIGSTOP);
    let stopped_at = tries();
    wait_until("more tries", DEADLINE, async || (tries() > stopped_at + 1).then_some(())).await;
    upstream.forget();
    let stopped_at = tries();
    wait_until("more tries", DEADLINE, async || (tries() > stopped_at + 2).then_some(())).await;
    assert!(upstream.seen().is_empty(), "the daemon stands still: {:?}", upstream.seen());
    daemon.signal(Signal::SIGCONT);
    upstream.until_saw("try").await;
    daemon.kill().await;
    let killed_at = tries();
    wait_until("more tries", DEADLINE, async || (tries() > killed_at + 1).then_some(())).await;
    upstream.forget();
    wait_until("more tries", DEADLINE, async || (tries() > killed_at + 5).then_some(())).await;
    assert!(upstream.seen().is_empty(), "the daemon is dead: {:?}", upstream.seen());
    let daemon = daemon.start_again();
    upstream.until_saw("try").await;
    let session = Session { api: daemon.api().clone(), ..session };
    session.sh("touch /tmp/stop").await;
    session.destroy().await;
    daemon.stop().await;
}

#[tokio::test]
async fn two_sessions_do_not_reach_each_other() {
    let Some(World { daemon, upstream }) = World::start("two sessions").await else { return };
    let (one, two) =
        (daemon.create(json!({ "network": "full" })).await, daemon.create(json!({ "network": "full" })).await);
    give_client(&one).await;
    give_client(&two).await;
    one.sh("(cd /tmp; python3 -m http.server --bind 0.0.0.0 8080 > /dev/null 2>&1 &)").await;
    wait_until("the server", DEADLINE, async || {
        (one.exec("curl -s -o /dev/null http://127.0.0.1:8080/").await["exit_code"] == 0).then_some(())
    })
    .await;
    let code = format!(
        "for host in ['127.0.0.1', '0.0.0.0', '::1', '{}', '192.0.2.53', '10.0.0.1']: print(host, b'SimpleHTTP' in get(host, 8080))",
        upstream.host()
    );
    assert!(prints(&one, "print(b'SimpleHTTP' in get('127.0.0.1', 8080))").await == "True\n", "the control");
    let output = prints(&two, &code).await;
    assert!(!output.contains("True"), "{output}");
    daemon.stop().await;
}
