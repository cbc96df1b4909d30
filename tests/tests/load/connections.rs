//! Clients that stay connected: idle connections, and streams with output.

use std::time::{Duration, Instant};

use e2e::daemon::Daemon;
use e2e::{procfs, skipped};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const IDLE_CONNECTIONS: usize = 5000;
const SESSIONS: usize = 20;
const STREAMS_EACH: usize = 25;
/// The open files that the test itself needs, with a few more.
const MIN_FILES: u64 = 6000;
const PINGS: usize = 500;

/// The limit of SPECIFICATION.md.
const MAX_DAEMON_KIB: u64 = 300 << 10;

/// Opens a connection and uses it once, as a client that keeps it.
async fn used(daemon: &Daemon) -> TcpStream {
    let mut stream = TcpStream::connect(daemon.address).await.expect("the daemon takes it");
    let request = format!("GET /healthz HTTP/1.1\r\nhost: {}\r\n\r\n", daemon.address);
    stream.write_all(request.as_bytes()).await.expect("it is open");
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).await.expect("an answer");
    assert_eq!(&answer, b"HTTP/1.1 200");
    stream
}

#[tokio::test]
async fn thousands_of_connections_and_hundreds_of_streams_leave_the_daemon_quick_and_small() {
    let _alone = crate::alone().await;
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).expect("there is a limit");
    if most < MIN_FILES {
        return skipped("thousands of connections", &format!("{most} open files are allowed, {MIN_FILES} are needed"));
    }
    setrlimit(Resource::RLIMIT_NOFILE, most, most).expect("up to the hard limit");
    // All of them come from one address.
    let config = format!("[server]\nmax_connections_per_client = {MIN_FILES}\n");
    let daemon = Daemon::builder().config(&config).start().await;
    let mut idle = Vec::with_capacity(IDLE_CONNECTIONS);
    for _ in 0..IDLE_CONNECTIONS {
        idle.push(used(&daemon).await);
    }

    let resources = json!({ "memory_mb": 64, "disk_mb": 16, "pids": 32 });
    let mut streams = tokio::task::JoinSet::new();
    for _ in 0..SESSIONS {
        let session = daemon.create(json!({ "resources": resources })).await;
        let cmd = "i=0; until [ -e stop ]; do echo $((i++)); read -t 0.1 < <(sleep 1); done; echo end";
        let begun = session.ask(json!({ "cmd": cmd, "detach": true, "exec_id": "ticks", "timeout_ms": 0 })).await;
        assert_eq!(begun.status, 202, "{}", begun.text());
        for _ in 0..STREAMS_EACH {
            let mut stream = session.reattach("ticks", 0).await;
            // Each stream has begun before the next is opened.
            let first = stream.until("chunk").await;
            assert_eq!(first.data["offset"], 0);
            streams.spawn(async move {
                let mut output = first.bytes();
                while let Some(event) = stream.next().await {
                    match event.name.as_str() {
                        "chunk" => {
                            assert_eq!(event.data["offset"], output.len());
                            output.extend(event.bytes());
                        }
                        "done" => return String::from_utf8(output).expect("numbers"),
                        _ => {}
                    }
                }
                panic!("a stream ended without its end");
            });
        }
    }

    let mut times = Vec::with_capacity(PINGS);
    for _ in 0..PINGS {
        let start = Instant::now();
        assert_eq!(daemon.get("/healthz").await.status, 200);
        times.push(start.elapsed());
    }
    times.sort();
    let p99: Duration = times[PINGS * 99 / 100];
    let used = procfs::status_kib(daemon.pid(), "VmRSS");
    let open = SESSIONS * STREAMS_EACH;
    println!("{IDLE_CONNECTIONS} idle connections, {open} streams: /healthz p99 {p99:?}, the daemon uses {used} KiB");
    assert!(used < MAX_DAEMON_KIB, "{used} KiB");

    let sessions = daemon.get("/v1/sessions").await.ok();
    for session in sessions.as_array().expect("a list") {
        let path = format!("/v1/sessions/{}/files/stop", session["id"].as_str().expect("an id"));
        assert_eq!(daemon.api().send(hyper::Method::PUT, &path, "").await.status, 201);
    }
    for output in streams.join_all().await {
        let mut lines = output.lines();
        assert_eq!(lines.next_back(), Some("end"));
        assert!(lines.enumerate().all(|(n, line)| line == n.to_string()), "a tick is missing: {output:?}");
    }
    // No connection was closed to make room.
    for stream in &mut idle {
        let mut rest = vec![0; 4096];
        loop {
            match stream.try_read(&mut rest) {
                Ok(0) => panic!("an idle connection was closed"),
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
        }
    }
    daemon.stop().await;
}
