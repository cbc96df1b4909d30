//! What becomes of connections: those of clients that leave, of sessions that end, of sessions that sleep.

use e2e::daemon::Daemon;
use e2e::http::Lines;
use e2e::{DEADLINE, wait_until};
use futures_util::future::join_all;
use hyper::Method;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{Site, send};

/// The number of open descriptors of a process.
fn descriptors(pid: i32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).expect("our own process").count()
}

/// How many streams of events the server holds open.
async fn held(site: &Site) -> String {
    site.get("/held").await.text()
}

#[tokio::test]
async fn two_hundred_requests_at_once_are_all_answered() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let site = Site::start(&session).await;
    let path = site.path("/events");
    let streams = join_all((0..200).map(|_| daemon.open(Method::GET, &path, ""))).await;
    let mut open: Vec<Lines> =
        streams.into_iter().map(|stream| Lines::new(stream.expect("an answer").into_body())).collect();
    for lines in &mut open {
        assert_eq!(&lines.next().await.expect("the stream holds").expect("an event")[..], b"data: 0");
    }
    assert_eq!(held(&site).await, "200");
    // Other calls are not in their way.
    assert_eq!(session.sh("echo beside").await, "beside\n");
    daemon.stop().await;
}

#[tokio::test]
async fn a_client_that_goes_away_leaves_no_socket() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let site = Site::start(&session).await;
    let pids = super::pids(&daemon, &session);
    assert_eq!(held(&site).await, "0");
    let before: Vec<usize> = pids.iter().map(|pid| descriptors(*pid)).collect();
    let mut streams = Vec::new();
    for _ in 0..20 {
        streams.push(daemon.open(Method::GET, &site.path("/events"), "").await.expect("an answer"));
    }
    // WebSockets and bare connections, cut without a word.
    for (path, upgrade) in [("/echo", "websocket"), ("/connect", "cove-tcp")] {
        let mut stream = TcpStream::connect(daemon.address).await.expect("the daemon listens");
        let request = format!(
            "GET {} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\nconnection: upgrade\r\nupgrade: {upgrade}\r\n\
             sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
            site.path(path),
            daemon.address,
            daemon.key.as_deref().expect("a key"),
        );
        stream.write_all(request.as_bytes()).await.expect("it is sent");
        let mut head = [0; 12];
        stream.read_exact(&mut head).await.expect("an answer");
        assert_eq!(&head, b"HTTP/1.1 101");
    }
    assert_eq!(held(&site).await, "20");
    drop(streams);
    wait_until("the server sees that its clients are gone", DEADLINE, async || {
        (held(&site).await == "0").then_some(())
    })
    .await;
    // A few connections are kept for the next request.
    const KEPT: usize = 12;
    wait_until("no socket is left", DEADLINE, async || {
        pids.iter().zip(&before).all(|(pid, before)| descriptors(*pid) <= before + KEPT).then_some(())
    })
    .await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_session_that_ends_cuts_its_connections() {
    let daemon = Daemon::start().await;
    let (mine, other) = (daemon.session().await, daemon.session().await);
    let (site, stays) = (Site::start(&mine).await, Site::start(&other).await);
    let open = async |site: &Site| {
        let answer = daemon.open(Method::GET, &site.path("/events"), "").await.expect("an answer");
        let mut lines = Lines::new(answer.into_body());
        lines.next().await.expect("the stream holds").expect("an event");
        lines
    };
    let (mut cut, mut kept) = (open(&site).await, open(&stays).await);
    mine.destroy().await;
    let rest = async { while let Ok(Some(_)) = cut.next().await {} };
    tokio::time::timeout(DEADLINE, rest).await.expect("the connection is cut");
    // The control: the other session's connection goes on.
    send(&daemon, "POST", &stays.path("/go"), "").await;
    let line = async {
        loop {
            let line = kept.next().await.expect("the stream holds").expect("it goes on");
            if !line.is_empty() {
                return line;
            }
        }
    };
    assert_eq!(&tokio::time::timeout(DEADLINE, line).await.expect("an event")[..], b"data: 1");
    daemon.stop().await;
}

#[tokio::test]
async fn a_request_wakes_a_paused_session() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let site = Site::start(&session).await;
    let link = site.link(3600).await;
    let browser = link.opened().await;
    for by_link in [false, true] {
        session.change("pause").await.ok();
        assert_eq!(session.view().await["status"], "paused");
        // A link that is wrong, or is only made, does not wake it.
        assert_eq!(link.api.get("/").await.status, 401);
        site.link(60).await;
        assert_eq!(session.view().await["status"], "paused");
        let answer = if by_link { browser.get("/").await } else { site.get("/").await };
        assert_eq!(answer.text(), "<h1>hello from the sandbox</h1>");
        assert_eq!(session.view().await["status"], "running");
    }
    daemon.stop().await;
}
