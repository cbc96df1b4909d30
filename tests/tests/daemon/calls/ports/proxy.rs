//! HTTP, server-sent events and WebSockets through the daemon.

use e2e::daemon::{Daemon, Pattern};
use e2e::http::Lines;
use e2e::{LONG_DEADLINE, procfs};
use futures_util::{SinkExt as _, StreamExt as _};
use http_body_util::BodyExt as _;
use hyper::Method;
use serde_json::json;
use shared_protocol::ErrorCode;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;

use super::{PORT, Site, header, send, serve};

/// 200 MB, and a few bytes that are no whole block.
const BIG: u64 = 200_000_123;

/// What the daemon's memory may grow by while it carries that.
const MAX_GROWTH_KIB: u64 = 32 << 10;

#[tokio::test]
async fn what_listens_is_listed_with_its_program() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    // The daemon itself listens in the sandbox, for connections to the network. That is not a server of the session's.
    assert_eq!(daemon.get(&session.path("/ports")).await.ok()["ports"], json!([]));
    let own = daemon.get(&session.path("/ports/1/")).await.error();
    assert!(own.error_code == ErrorCode::PortClosed && own.message.contains("own"), "{own}");
    Site::start(&session).await;
    Site::start_at(&session, 3001, "::1").await;
    let list = daemon.get(&session.path("/ports")).await.ok();
    let views: Vec<_> = list["ports"].as_array().expect("a list").iter().collect();
    assert_eq!(views.len(), 2, "{list}");
    for (view, (port, address)) in views.iter().zip([(3000, "127.0.0.1"), (3001, "::1")]) {
        assert_eq!((&view["port"], &view["address"]), (&json!(port), &json!(address)), "{list}");
        let program = view["program"].as_str().unwrap_or_default();
        assert!(program.starts_with("python3") && view["pid"].as_u64().is_some(), "{list}");
    }
    daemon.stop().await;
}

#[tokio::test]
async fn a_server_is_reached_below_the_sessions_path_with_any_method() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let site = Site::start(&session).await;
    let hello = site.get("/").await;
    assert_eq!((hello.status, hello.header("content-type")), (200, "text/html"));
    assert_eq!(hello.text(), "<h1>hello from the sandbox</h1>");
    // A page from a sandbox cannot act as a page of the daemon.
    assert_eq!(hello.header("content-security-policy"), "sandbox");
    for method in ["GET", "POST", "PUT", "DELETE", "OPTIONS", "PROPFIND"] {
        let seen = send(&daemon, method, &site.path("/seen?a=%2F&b=//c"), "body").await.ok();
        assert_eq!((&seen["method"], &seen["path"]), (&json!(method), &json!("/seen?a=%2F&b=//c")));
        assert_eq!(seen["body"], "body", "{seen}");
    }
    let head = daemon.send(Method::HEAD, &site.path("/"), "").await;
    assert_eq!((head.status, head.header("content-length"), head.text().as_str()), (200, "31", ""));
    assert_eq!(site.get("/nowhere").await.status, 404);
    // The daemon's own routes below a port are the server's too, except for what they are for.
    for path in ["/url", "/connect"] {
        assert_eq!(site.seen(path).await["path"], path);
    }
    let bare = daemon.get(&site.path("")).await;
    assert_eq!((bare.status, bare.header("location")), (308, site.path("/").as_str()));
    daemon.stop().await;
}

#[tokio::test]
async fn the_server_sees_its_own_name_and_who_asks_but_not_the_key() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let site = Site::start(&session).await;
    let key = daemon.key.clone().expect("a key");
    let client = daemon
        .with_header("cookie", "theirs=1; cove_anything=secret")
        .with_header("x-forwarded-for", "203.0.113.9")
        .with_header("connection", "x-hop")
        .with_header("x-hop", "1");
    let seen = client.get(&site.path("/seen")).await.ok();
    // The control: the server does see what it is sent.
    assert_eq!(header(&seen, "cookie"), Some("theirs=1"));
    assert_eq!(header(&seen, "host"), Some("localhost:3000"));
    assert_eq!(header(&seen, "x-forwarded-for"), Some("127.0.0.1"));
    assert_eq!(header(&seen, "x-forwarded-proto"), Some("http"));
    assert_eq!(header(&seen, "x-forwarded-host"), Some(daemon.address.to_string().as_str()));
    assert_eq!(header(&seen, "x-forwarded-prefix"), Some(site.path("").as_str()));
    assert_eq!((header(&seen, "x-hop"), header(&seen, "authorization")), (None, None), "{seen}");
    assert!(!seen.to_string().contains(&key), "the API key is inside: {seen}");
    daemon.stop().await;
}

#[tokio::test]
async fn redirects_and_cookies_stay_below_the_sessions_path() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let site = Site::start(&session).await;
    for (to, expected) in [
        ("/seen", site.path("/seen")),
        ("http://localhost:3000/seen?x", site.path("/seen?x")),
        ("http://127.0.0.1:3000/", site.path("/")),
        ("seen", "seen".to_owned()),
        ("https://example.com/x", "https://example.com/x".to_owned()),
    ] {
        let answer = site.get(&format!("/redirect?to={}", to.replace('?', "%3F"))).await;
        assert_eq!((answer.status, answer.header("location")), (302, expected.as_str()), "{to}");
    }
    let answer = site.get("/cookie").await;
    let cookies: Vec<&str> = answer.headers.get_all("set-cookie").iter().filter_map(|v| v.to_str().ok()).collect();
    let path = site.path("/");
    assert_eq!(cookies, [format!("plain=1; Path={path}"), format!("tossed=2; Path={path}")]);
    daemon.stop().await;
}

#[tokio::test]
async fn two_hundred_megabytes_go_up_and_down_exact_and_the_daemon_does_not_grow() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let site = Site::start(&session).await;
    let pids = super::pids(&daemon, &session);
    site.get("/").await;
    let before: Vec<u64> = pids.iter().map(|pid| procfs::status_kib(*pid, "VmRSS")).collect();
    let sent = daemon.send_pattern(Method::PUT, &site.path("/big"), BIG).await.expect("an answer").ok();
    assert_eq!(sent, json!({ "bytes": BIG, "exact": true }));
    let mut body = daemon
        .patient()
        .open(Method::GET, &site.path(&format!("/big?bytes={BIG}")), "")
        .await
        .expect("an answer")
        .into_body();
    let mut got = 0;
    while let Some(frame) = tokio::time::timeout(LONG_DEADLINE, body.frame()).await.expect("it goes on") {
        let Ok(bytes) = frame.expect("the body is whole").into_data() else { continue };
        assert!(Pattern::has(got, &bytes), "wrong bytes after {got}");
        got += bytes.len() as u64;
    }
    assert_eq!(got, BIG);
    for (pid, before) in pids.into_iter().zip(before) {
        let most = procfs::status_kib(pid, "VmHWM");
        assert!(most <= before + MAX_GROWTH_KIB, "{pid} grew from {before} to {most} KiB");
    }
    daemon.stop().await;
}

#[tokio::test]
async fn events_arrive_when_they_are_sent() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let site = Site::start(&session).await;
    let answer = daemon.open(Method::GET, &site.path("/events"), "").await.expect("an answer");
    assert_eq!(answer.headers()["content-type"], "text/event-stream");
    let mut lines = Lines::new(answer.into_body());
    // The server sends the next event only after the last one was seen.
    for number in 0..5 {
        let next = async {
            loop {
                let line = lines.next().await.expect("the stream holds").expect("it goes on");
                if !line.is_empty() {
                    return String::from_utf8_lossy(&line).into_owned();
                }
            }
        };
        let line = tokio::time::timeout(e2e::DEADLINE, next).await.expect("an event at once");
        assert_eq!(line, format!("data: {number}"));
        send(&daemon, "POST", &site.path("/go"), "").await;
    }
    daemon.stop().await;
}

#[tokio::test]
async fn a_web_socket_echoes_small_and_large_messages() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let site = Site::start(&session).await;
    let url = format!("ws://{}{}", daemon.address, site.path("/echo"));
    let mut request = url.into_client_request().expect("a URL");
    let key = daemon.key.clone().expect("a key");
    request.headers_mut().insert("authorization", format!("Bearer {key}").parse().expect("a header"));
    let stream = TcpStream::connect(daemon.address).await.expect("the daemon listens");
    let (mut socket, _) = tokio_tungstenite::client_async(request, stream).await.expect("an upgrade");
    for length in [0, 5, 125, 126, 70_000, 300_000] {
        let text = "é".repeat(length / 2) + if length % 2 == 1 { "x" } else { "" };
        socket.send(Message::text(text.clone())).await.expect("it is sent");
        let echo = tokio::time::timeout(e2e::DEADLINE, socket.next()).await.expect("in time");
        assert_eq!(echo.expect("open").expect("a message"), Message::text(text));
    }
    socket.close(None).await.expect("it closes");
    while let Some(Ok(_)) = socket.next().await {}
    daemon.stop().await;
}

#[tokio::test]
async fn a_server_on_the_ipv6_loopback_is_reached() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let site = Site::start_at(&session, PORT, "::1").await;
    assert_eq!(site.get("/").await.text(), "<h1>hello from the sandbox</h1>");
    daemon.stop().await;
}

#[tokio::test]
async fn a_server_that_is_not_up_yet_is_a_page_that_reloads_or_an_error() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let path = session.path("/ports/3000/");
    let error = daemon.get(&path).await;
    assert_eq!(error.refused(), ErrorCode::PortClosed);
    assert_eq!(error.header("retry-after"), "2");
    let browser = daemon.with_header("accept", "text/html,*/*;q=0.8");
    let page = browser.get(&path).await;
    assert_eq!((page.status, page.header("content-type")), (502, "text/html; charset=utf-8"));
    assert!(page.text().contains("http-equiv=\"refresh\""), "{}", page.text());
    // A server that speaks something else.
    serve(
        &session,
        "python3 -c 'import socket; s = socket.create_server((\"127.0.0.1\", 3001))
while True: c, _ = s.accept(); c.recv(9); c.send(b\"hi there\"); c.close()'",
        3001,
    )
    .await;
    assert_eq!(daemon.get(&session.path("/ports/3001/")).await.refused(), ErrorCode::PortClosed);
    // Once it is up, it answers.
    Site::start(&session).await;
    assert_eq!(browser.get(&path).await.status, 200);
    daemon.stop().await;
}
