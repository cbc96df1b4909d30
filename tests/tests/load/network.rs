//! Egress under load: much data, many connections, and sides that are slow.

use std::net::IpAddr;

use e2e::daemon::{Daemon, Session, Upstream, is_local_only};
use e2e::{LONG_DEADLINE, procfs, wait_until};
use serde_json::{Value, json};

const MIB: usize = 1 << 20;
/// The bytes of the bulk story, each way.
const BULK: usize = 1024 * MIB;
/// Fewer than the default limit of connections.
const AT_ONCE: usize = 1000;
const SESSIONS: usize = 200;
const EACH: usize = 5;
/// The number of sandboxes that are created at the same time.
const CREATED_AT_ONCE: usize = 8;
/// The most by which the daemon may grow for one connection whose side is slow, and for the noise of measuring.
const MAX_GROWTH_KIB: u64 = 24 << 10;

async fn world(story: &str) -> Option<(Daemon, Upstream)> {
    if is_local_only(story, "the daemon carries the same for containers, and they take longer") {
        return None;
    }
    let upstream = Upstream::start(story)?;
    let names = [("localhost", IpAddr::from([127, 0, 0, 1])), ("good.example.com", upstream.good().into())];
    Some((Daemon::builder().hosts(&names).start().await, upstream))
}

async fn python(session: &Session, code: &str) -> Value {
    let quoted = format!("'{}'", code.replace('\'', "'\\''"));
    let request = json!({ "cmd": format!("python3 -c {quoted}"), "timeout_ms": 280_000 });
    session.api.patient().post(&session.path("/exec"), request).await.ok()
}

async fn prints(session: &Session, code: &str) -> String {
    let reply = python(session, code).await;
    assert_eq!(reply["exit_code"], 0, "{reply}");
    reply["output"].as_str().expect("text").trim().to_owned()
}

/// The block that the upstream repeats, and a connection to it.
const BLOCK: &str = "import socket
block = bytes((at * 7 + at // 251) % 251 for at in range(65536))
def dial(): return socket.create_connection(('good.example.com', 80), 60)
def head(c):
    data = b''
    while b'\\r\\n\\r\\n' not in data: data += c.recv(1)
";

#[tokio::test]
async fn much_data_passes_both_ways_exactly() {
    let _alone = crate::alone().await;
    for network in [json!({ "allow": ["good.example.com"] }), json!("full")] {
        let Some((daemon, _upstream)) = world("bulk data").await else { return };
        let session = daemon.create(json!({ "network": network })).await;
        let down = format!(
            "{BLOCK}
c = dial(); c.sendall(b'GET /bytes/{BULK} HTTP/1.1\\r\\nHost: good.example.com\\r\\n\\r\\n'); head(c)
c.settimeout(None)
left, is_exact, buffer = {BULK}, True, bytearray(65536)
while left:
    count = c.recv_into(buffer, 65536, socket.MSG_WAITALL)
    is_exact &= buffer == block
    if count < 65536: break
    left -= count
print(left, is_exact)"
        );
        assert_eq!(prints(&session, &down).await, "0 True", "{network}");
        let up = format!(
            "{BLOCK}
c = dial(); c.sendall(b'POST /count HTTP/1.1\\r\\nHost: good.example.com\\r\\nContent-Length: {BULK}\\r\\n\\r\\n')
for _ in range({BULK} // 65536): c.sendall(block)
head(c); print(c.recv(100).decode())"
        );
        assert_eq!(prints(&session, &up).await, format!("{BULK} exact"), "{network}");
        let view = daemon.get(&session.path("/network")).await.ok();
        let bulk = u64::try_from(BULK).expect("small");
        assert!(view["bytes_sent"].as_u64() > Some(bulk) && view["bytes_received"].as_u64() > Some(bulk), "{view}");
        let peak = procfs::status_kib(daemon.pid(), "VmHWM");
        println!("the daemon's peak after {} MiB each way under {network}: {} MiB", BULK / MIB, peak >> 10);
        session.destroy().await;
        daemon.stop().await;
    }
}

#[tokio::test]
async fn a_session_has_a_thousand_connections_at_once() {
    let _alone = crate::alone().await;
    let Some((daemon, upstream)) = world("a thousand connections").await else { return };
    let session = daemon.create(json!({ "network": { "allow": ["good.example.com"] } })).await;
    let before = procfs::status_kib(daemon.pid(), "VmRSS");
    let code = format!(
        "{BLOCK}
import resource
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE); resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
address = socket.getaddrinfo('good.example.com', 80)[0][4][0]
held = []
for i in range({AT_ONCE}):
    c = socket.create_connection((address, 80), 60); c.sendall(b'GET /n%d HTTP/1.1\\r\\nHost: good.example.com\\r\\n\\r\\n' % i); held.append(c)
answers = sum(b'hello' in c.recv(65536) for c in held)
for i, c in enumerate(held): c.sendall(b'GET /again%d HTTP/1.1\\r\\nHost: good.example.com\\r\\n\\r\\n' % i)
again = sum(b'hello' in c.recv(65536) for c in held)
print(answers, again)"
    );
    assert_eq!(prints(&session, &code).await, format!("{AT_ONCE} {AT_ONCE}"));
    assert_eq!(upstream.seen_at(upstream.good()).len(), AT_ONCE);
    let grown = procfs::status_kib(daemon.pid(), "VmHWM").saturating_sub(before);
    println!("{AT_ONCE} connections: the daemon grew by {grown} KiB at most");
    wait_until("all are closed", LONG_DEADLINE, async || {
        let view = daemon.get(&session.path("/network")).await.ok();
        (view["connections"] == 0).then_some(())
    })
    .await;
    session.destroy().await;
    daemon.stop().await;
}

#[tokio::test]
async fn many_sessions_have_connections_at_once() {
    let _alone = crate::alone().await;
    let Some((daemon, upstream)) = world("many sessions with connections").await else { return };
    let resources = json!({ "memory_mb": 64, "disk_mb": 16, "pids": 32 });
    let gate = std::sync::Arc::new(tokio::sync::Semaphore::new(CREATED_AT_ONCE));
    let mut creating = tokio::task::JoinSet::new();
    for _ in 0..SESSIONS {
        let (api, gate) = (daemon.api().patient(), gate.clone());
        let request = json!({ "network": { "allow": ["good.example.com"] }, "resources": resources });
        creating.spawn(async move {
            let _slot = gate.acquire_owned().await.expect("the gate stays open");
            api.create(request).await
        });
    }
    let sessions = creating.join_all().await;
    let mut work = tokio::task::JoinSet::new();
    for session in sessions.clone() {
        let code = format!(
            "{BLOCK}
held = []
for _ in range({EACH}):
    # At once: a program that says nothing for seconds is cut, and here hundreds share the processors.
    c = dial(); c.sendall(b'GET /drip HTTP/1.1\\r\\nHost: good.example.com\\r\\n\\r\\n'); held.append(c)
for c in held: head(c)
import os, time
while not os.path.exists('/workspace/stop'): time.sleep(0.05)
print(len(held))"
        );
        work.spawn(async move { prints(&session, &code).await });
    }
    wait_until("all connections", LONG_DEADLINE, async || {
        (upstream.open_at(upstream.good()) == SESSIONS * EACH).then_some(())
    })
    .await;
    println!(
        "{} connections of {SESSIONS} sessions: {} MiB",
        SESSIONS * EACH,
        procfs::status_kib(daemon.pid(), "VmRSS") >> 10
    );
    for session in &sessions {
        session.put("stop", "").await.ok();
    }
    while let Some(done) = work.join_next().await {
        assert_eq!(done.expect("no panic"), EACH.to_string());
    }
    for session in sessions {
        session.destroy().await;
    }
    daemon.stop().await;
}

/// A side that does not read stops the other side, and the daemon keeps nothing in between.
#[tokio::test]
async fn a_slow_side_does_not_grow_the_daemon() {
    let _alone = crate::alone().await;
    let Some((daemon, _upstream)) = world("slow sides").await else { return };
    let session = daemon.create(json!({ "network": { "allow": ["good.example.com"] } })).await;
    // The first exec takes what every exec takes.
    prints(&session, &format!("{BLOCK}c = dial(); c.sendall(b'GET /bytes/1000000 HTTP/1.1\\r\\nHost: good.example.com\\r\\n\\r\\n'); head(c); print(1)")).await;
    let before = procfs::status_kib(daemon.pid(), "VmRSS");
    // A program that does not read: ten downloads, each larger than all buffers.
    let code = format!(
        "{BLOCK}
held = []
for _ in range(10):
    c = dial(); c.sendall(b'GET /bytes/{BULK} HTTP/1.1\\r\\nHost: good.example.com\\r\\n\\r\\n'); head(c); held.append(c)
import time; time.sleep(1)
print(len(held))"
    );
    assert_eq!(prints(&session, &code).await, "10");
    // A server that does not read: the program's writes stop.
    let code = format!(
        "{BLOCK}
held, stopped = [], 0
for _ in range(10):
    c = dial(); c.sendall(b'GET /bytes/{BULK} HTTP/1.1\\r\\nHost: good.example.com\\r\\n\\r\\n'); c.settimeout(1); held.append(c)
    try:
        c.sendall(b'POST / HTTP/1.1\\r\\nHost: good.example.com\\r\\nContent-Length: {BULK}\\r\\n\\r\\n')
        for _ in range({BULK} // 65536): c.sendall(block)
    except TimeoutError: stopped += 1
print(stopped)"
    );
    assert_eq!(prints(&session, &code).await, "10");
    let peak = procfs::status_kib(daemon.pid(), "VmHWM");
    println!("before {before} KiB, at most {peak} KiB");
    assert!(peak < before + MAX_GROWTH_KIB, "the daemon grew from {before} to {peak} KiB");
    session.destroy().await;
    daemon.stop().await;
}
