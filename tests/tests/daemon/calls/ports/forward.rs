//! `cove ports` and `cove forward`.

use std::io::Read as _;
use std::net::SocketAddr;
use std::process::{Child, ChildStdout};

use e2e::daemon::{Cove, Daemon, Finished, Session, finished};
use e2e::{DEADLINE, procfs, wait_until};
use nix::sys::signal::Signal;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{Link, Site, serve};

/// A server that answers only after its client has ended its side: with the number of bytes that it got, in two pieces.
const COUNTER: &str = r#"
import socket, threading
def serve(c):
    n = 0
    while b := c.recv(65536): n += len(b)
    c.sendall(b"first %d " % n); c.sendall(b"second"); c.close()
s = socket.create_server(("127.0.0.1", 4000), backlog=512)
while True: threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()
"#;

/// A running `cove forward`. It is killed if the story fails.
struct Forwarding {
    child: Option<Child>,
    locals: Vec<SocketAddr>,
}

impl Forwarding {
    fn start(daemon: &Daemon, session: &Session, ports: &[&str]) -> Self {
        let mut arguments = vec!["forward", session.id.as_str()];
        arguments.extend(ports);
        let mut child = Cove::of(daemon).spawn(&arguments);
        let stdout = child.stdout.as_mut().expect("a pipe");
        let locals =
            ports.iter().map(|_| line(stdout).split(' ').next().and_then(|l| l.parse().ok()).expect("an address"));
        let locals = locals.collect();
        Self { child: Some(child), locals }
    }

    /// Ends it as a person does.
    async fn end(mut self) {
        let child = self.child.take().expect("it runs");
        procfs::signal(i32::try_from(child.id()).expect("a pid"), Signal::SIGINT);
        assert_eq!(finished(child).await.ok(), "");
    }

    /// Waits for it to end by itself.
    async fn ended(mut self) -> Finished {
        finished(self.child.take().expect("it runs")).await
    }
}

impl Drop for Forwarding {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// One line of a command that goes on: nothing after it is read.
fn line(stdout: &mut ChildStdout) -> String {
    let mut line = Vec::new();
    let mut byte = [0];
    while stdout.read(&mut byte).expect("a pipe") == 1 && byte[0] != b'\n' {
        line.push(byte[0]);
    }
    String::from_utf8(line).expect("text")
}

async fn exchange(local: SocketAddr, bytes: usize) -> String {
    let mut stream = TcpStream::connect(local).await.expect("it is forwarded");
    stream.write_all(&vec![7; bytes]).await.expect("it is sent");
    stream.shutdown().await.expect("our side ends");
    let mut answer = String::new();
    tokio::time::timeout(DEADLINE, stream.read_to_string(&mut answer)).await.expect("in time").expect("an answer");
    answer
}

#[tokio::test]
async fn ports_are_listed_and_linked_by_command() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    Site::start(&session).await;
    let cove = Cove::of(&daemon);
    let listed = cove.run(&["ports", &session.id]).await.ok();
    let mut lines = listed.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    assert_eq!(lines.next().expect("a head"), ["PORT", "ADDRESS", "REACHABLE", "PID", "PROGRAM"]);
    let first = lines.next().expect("a line");
    assert_eq!((&first[..3], &first[4][..7]), (&["3000", "127.0.0.1", "yes"][..], "python3"), "{listed}");
    let link = cove.run(&["ports", &session.id, "--link", "3000", "--ttl", "5m"]).await.ok();
    let link = Link::parse(&session, link.trim());
    assert_eq!(link.opened().await.get("/").await.status, 200);
    assert_eq!(cove.run(&["ports", "nobody"]).await.code, 1);
    daemon.stop().await;
}

#[tokio::test]
async fn each_side_of_a_forwarded_connection_may_end_first() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    session.put("counter.py", COUNTER).await.ok();
    serve(&session, "python3 counter.py", 4000).await;
    Site::start(&session).await;
    let forwarding = Forwarding::start(&daemon, &session, &["0:4000", "0:3000"]);
    // The server answers only once it has seen the end of what was sent.
    for bytes in [0, 1, 5_000_000] {
        assert_eq!(exchange(forwarding.locals[0], bytes).await, format!("first {bytes} second"));
    }
    // An HTTP server that closes first.
    let mut stream = TcpStream::connect(forwarding.locals[1]).await.expect("it is forwarded");
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").await.expect("it is sent");
    let mut answer = String::new();
    tokio::time::timeout(DEADLINE, stream.read_to_string(&mut answer)).await.expect("in time").expect("an answer");
    assert!(answer.ends_with("hello from the sandbox</h1>"), "{answer}");
    forwarding.end().await;
    daemon.stop().await;
}

#[tokio::test]
async fn two_hundred_connections_at_once_are_all_carried() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    session.put("counter.py", COUNTER).await.ok();
    serve(&session, "python3 counter.py", 4000).await;
    let forwarding = Forwarding::start(&daemon, &session, &["0:4000"]);
    let local = forwarding.locals[0];
    // All are open before the first one ends.
    let mut open = Vec::new();
    for number in 0..200 {
        let mut stream = TcpStream::connect(local).await.expect("it is forwarded");
        stream.write_all(&vec![1; number]).await.expect("it is sent");
        open.push(stream);
    }
    for (number, stream) in open.iter_mut().enumerate() {
        stream.shutdown().await.expect("our side ends");
        let mut answer = String::new();
        tokio::time::timeout(DEADLINE, stream.read_to_string(&mut answer)).await.expect("in time").expect("an answer");
        assert_eq!(answer, format!("first {number} second"));
    }
    forwarding.end().await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_forward_says_what_is_wrong_and_ends_with_the_session() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let cove = Cove::of(&daemon);
    assert_eq!(cove.run(&["forward", "nobody", "3000"]).await.code, 1);
    assert_eq!(cove.run(&["forward", &session.id, "0"]).await.code, 2);
    let forwarding = Forwarding::start(&daemon, &session, &["0:4000"]);
    // Nothing listens yet: the connection closes, and the command goes on.
    assert_eq!(exchange_or_nothing(forwarding.locals[0]).await, "");
    session.put("counter.py", COUNTER).await.ok();
    serve(&session, "python3 counter.py", 4000).await;
    assert_eq!(exchange(forwarding.locals[0], 3).await, "first 3 second");
    session.destroy().await;
    assert_eq!(exchange_or_nothing(forwarding.locals[0]).await, "");
    let ended = forwarding.ended().await;
    assert_eq!(ended.code, 1, "{ended:?}");
    assert!(ended.stderr.contains("nothing listens on port 4000"), "{ended:?}");
    daemon.stop().await;
}

/// What a server answers to nothing; a connection that is reset counts as no answer.
async fn exchange_or_nothing(local: SocketAddr) -> String {
    let mut stream = TcpStream::connect(local).await.expect("it is forwarded");
    let mut answer = String::new();
    let read = tokio::time::timeout(DEADLINE, stream.read_to_string(&mut answer)).await.expect("in time");
    drop(read);
    answer
}

#[tokio::test]
async fn a_forwarded_connection_keeps_its_session_from_expiring() {
    let daemon = Daemon::start().await;
    let session = daemon.create(serde_json::json!({ "ttl_seconds": 2 })).await;
    session.put("counter.py", COUNTER).await.ok();
    serve(&session, "python3 counter.py", 4000).await;
    let forwarding = Forwarding::start(&daemon, &session, &["0:4000"]);
    let mut stream = TcpStream::connect(forwarding.locals[0]).await.expect("it is forwarded");
    stream.write_all(b"x").await.expect("it is sent");
    // The control: a session that was created later, and has no connection, expires meanwhile.
    let idle = daemon.create(serde_json::json!({ "ttl_seconds": 2 })).await;
    expired(&idle).await;
    stream.write_all(b"y").await.expect("it is sent");
    stream.shutdown().await.expect("our side ends");
    let mut answer = String::new();
    tokio::time::timeout(DEADLINE, stream.read_to_string(&mut answer)).await.expect("in time").expect("an answer");
    assert_eq!(answer, "first 2 second");
    expired(&session).await;
    forwarding.end().await;
    daemon.stop().await;
}

async fn expired(session: &Session) {
    wait_until("the session expires", DEADLINE, async || {
        (session.api.get(&session.path("")).await.json()["status"] == "expired").then_some(())
    })
    .await;
}
