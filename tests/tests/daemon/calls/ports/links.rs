//! Links: what they open, and what they do not.

use e2e::daemon::{Api, Cove, Daemon};
use e2e::{DEADLINE, wait_until};
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::json;
use shared_protocol::ErrorCode;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;

use super::{Link, Site, header, send};

const HOUR: u64 = 3600;

#[tokio::test]
async fn a_link_opens_the_server_by_a_cookie_and_leaves_no_token() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let site = Site::start(&session).await;
    let link = site.link(HOUR).await;
    assert_eq!(link.authority, format!("3000-{}.localhost:{}", session.id, daemon.address.port()));
    let browser = link.opened().await;
    assert_eq!(browser.get("/").await.text(), "<h1>hello from the sandbox</h1>");
    let seen = browser.get("/seen?x=1").await.ok();
    assert_eq!(seen["path"], "/seen?x=1");
    assert_eq!(header(&seen, "host"), Some("localhost:3000"));
    assert_eq!(header(&seen, "x-forwarded-host"), Some(link.authority.as_str()));
    assert!(!seen.to_string().contains(&link.token), "the token is inside: {seen}");
    // Other parameters of the first address stay, also for another method, which is not redirected.
    let entrance = link.api.get(&format!("/seen?a=1&cove_token={}&b", link.token)).await;
    assert_eq!(entrance.header("location"), "/seen?a=1&b");
    let posted = send(&link.api, "POST", &format!("/seen?cove_token={}&c", link.token), "body").await.ok();
    assert_eq!((&posted["path"], &posted["body"]), (&json!("/seen?c"), &json!("body")));
    assert!(!posted.to_string().contains(&link.token), "{posted}");
    // A path cannot lead to another host.
    let entrance = link.api.get(&format!("//evil.example/?cove_token={}", link.token)).await;
    assert_eq!(entrance.header("location"), "/.//evil.example/");
    // What the server sets is for its own host, and it cannot set the daemon's cookie.
    let answer = browser.get("/cookie").await;
    let cookies: Vec<&str> = answer.headers.get_all("set-cookie").iter().filter_map(|v| v.to_str().ok()).collect();
    assert_eq!(cookies, ["plain=1; Path=/", "tossed=2; Path=/"]);
    let log = daemon.log();
    assert!(log.contains("preview request") && !log.contains(&link.token), "{log}");
    assert!(!log.contains("cove_token"), "{log}");
    daemon.stop().await;
}

#[tokio::test]
async fn a_token_opens_its_port_of_its_session_and_nothing_else() {
    let daemon = Daemon::start().await;
    let (mine, other) = (daemon.session().await, daemon.session().await);
    Site::start(&mine).await;
    Site::start_at(&mine, 3001, "127.0.0.1").await;
    Site::start(&other).await;
    let link = Link::make(&mine, 3000, HOUR).await;
    let cookie = format!("cove_preview={}", link.token);
    let port = daemon.address.port();
    let attempt = async |host: &str, token: &str| {
        let client = daemon.with_key(None).with_header("host", &format!("{host}:{port}"));
        let by_cookie = client.with_header("cookie", &format!("cove_preview={token}")).get("/").await;
        let by_query = client.get(&format!("/?cove_token={token}")).await;
        let by_post = send(&client, "POST", &format!("/seen?cove_token={token}"), "").await;
        [by_cookie.status, by_query.status, by_post.status]
    };
    let own = format!("3000-{}.localhost", mine.id);
    // The control: at its own address the token works in every way.
    assert_eq!(attempt(&own, &link.token).await, [200, 302, 200]);
    let changed = format!("{}0", &link.token[..link.token.len() - 1]);
    let changed = if changed == link.token { format!("{}1", &link.token[..link.token.len() - 1]) } else { changed };
    let later = format!("9{}", link.token);
    for (host, token) in [
        (format!("3001-{}.localhost", mine.id), link.token.clone()),
        (format!("3000-{}.localhost", other.id), link.token.clone()),
        ("3000-00000000-000.localhost".to_owned(), link.token.clone()),
        (own.clone(), changed),
        (own.clone(), later),
        (own.clone(), String::new()),
        (own.clone(), daemon.key.clone().expect("a key")),
    ] {
        assert_eq!(attempt(&host, &token).await, [401; 3], "{host} with {token}");
    }
    // Nor does it open the API, in any place that a key can have.
    for client in [
        daemon.with_key(Some(&link.token)),
        daemon.with_key(None).with_header("cookie", &cookie),
        daemon.with_key(None),
    ] {
        let answer = client.get(&format!("/v1/sessions?cove_token={}", link.token)).await;
        assert_eq!(answer.refused(), ErrorCode::Unauthorized);
    }
    daemon.stop().await;
}

#[tokio::test]
async fn the_api_is_not_on_a_previews_host_and_a_previews_page_cannot_call_it() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let site = Site::start(&session).await;
    let link = site.link(HOUR).await;
    let key = daemon.key.clone().expect("a key");
    let browser = link.opened().await;
    let list = "/v1/sessions";
    // The control: the key opens the API on the API's own host.
    assert_eq!(daemon.get(list).await.status, 200);
    // On the preview's host the same request needs the cookie, and then goes to the server in the sandbox.
    let with_key = link.api.with_key(Some(&key));
    assert_eq!(with_key.get(list).await.refused(), ErrorCode::Unauthorized);
    for path in [list, "/healthz", "/metrics", "/openapi.json", &session.path("/exec")] {
        let answer = browser.with_key(Some(&key)).get(path).await;
        assert_eq!((answer.status, answer.text()), (404, format!("nothing at {path}")));
    }
    // A key that a client sends there by mistake does not reach the server. Other credentials are the server's own.
    let seen = browser.with_key(Some(&key)).get("/seen").await.ok();
    assert_eq!(header(&seen, "authorization"), None);
    assert!(!seen.to_string().contains(&key), "{seen}");
    let seen = browser.with_header("authorization", "token of-the-app").get("/seen").await.ok();
    assert_eq!(header(&seen, "authorization"), Some("token of-the-app"));
    // A page of the preview calls the API: its origin is refused even with the key, and so is its host.
    let page = daemon.with_header("origin", &format!("http://{}", link.authority));
    assert_eq!(page.get(list).await.refused(), ErrorCode::Forbidden);
    assert_eq!(page.get(&site.path("/")).await.refused(), ErrorCode::Forbidden);
    let absolute = format!(
        "GET http://{}/v1/sessions HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {key}\r\nconnection: close\r\n\r\n",
        link.authority
    );
    assert_eq!(daemon.raw(absolute.as_bytes()).await.expect("an answer").status, 401);
    daemon.stop().await;
}

#[tokio::test]
async fn a_page_of_another_session_or_site_cannot_use_the_cookie() {
    let daemon = Daemon::start().await;
    let (mine, other) = (daemon.session().await, daemon.session().await);
    let site = Site::start(&mine).await;
    let browser = site.link(HOUR).await.opened().await;
    let port = daemon.address.port();
    let from = async |origin: &str| browser.with_header("origin", origin).get("/seen").await.status;
    for own in
        [format!("http://3000-{}.localhost:{port}", mine.id), format!("http://4000-{}.localhost:{port}", mine.id)]
    {
        assert_eq!(from(&own).await, 200, "{own}");
    }
    for foreign in [
        format!("http://3000-{}.localhost:{port}", other.id),
        format!("http://localhost:{port}"),
        "https://evil.example".to_owned(),
        "null".to_owned(),
    ] {
        assert_eq!(from(&foreign).await, 403, "{foreign}");
    }
    // A page that hides its origin is known by what the browser says.
    let hidden = browser.with_header("origin", "null").with_header("sec-fetch-site", "same-origin");
    assert_eq!(hidden.get("/seen").await.status, 200);
    daemon.stop().await;
}

#[tokio::test]
async fn a_link_expires_and_its_connections_end_with_it() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let site = Site::start(&session).await;
    let link = site.link(3).await;
    let browser = link.opened().await;
    assert_eq!(browser.get("/").await.status, 200);
    let mut socket = web_socket(&browser, &link.authority).await;
    let ended = tokio::time::timeout(DEADLINE, async { while let Some(Ok(_)) = socket.next().await {} }).await;
    assert!(ended.is_ok(), "the connection outlives its link");
    wait_until("the link's end", DEADLINE, async || (browser.get("/").await.status == 401).then_some(())).await;
    let answer = link.api.get(&format!("/?cove_token={}", link.token)).await;
    assert!(answer.error().message.contains("expired"), "{}", answer.text());
    // The control: the server is there, and a new link opens it.
    assert_eq!(site.link(HOUR).await.opened().await.get("/").await.status, 200);
    daemon.stop().await;
}

/// Opens the WebSocket that echoes, by a cookie.
async fn web_socket(browser: &Api, authority: &str) -> tokio_tungstenite::WebSocketStream<TcpStream> {
    let mut request = format!("ws://{authority}/echo").into_client_request().expect("a URL");
    let cookie = browser.headers.iter().find(|(name, _)| *name == "cookie").expect("a cookie");
    request.headers_mut().insert("cookie", cookie.1.parse().expect("a header"));
    request.headers_mut().insert("origin", format!("http://{authority}").parse().expect("a header"));
    let stream = TcpStream::connect(browser.address).await.expect("the daemon listens");
    let (mut socket, _) = tokio_tungstenite::client_async(request, stream).await.expect("an upgrade");
    socket.send(Message::text("hello")).await.expect("it is sent");
    assert_eq!(socket.next().await.expect("open").expect("a message"), Message::text("hello"));
    socket
}

#[tokio::test]
async fn a_link_works_after_the_daemon_was_killed_and_started_again() {
    let mut daemon = Daemon::builder().keeps_sessions().start().await;
    let session = daemon.session().await;
    let site = Site::start(&session).await;
    let link = site.link(HOUR).await;
    let browser = link.opened().await;
    assert_eq!(browser.get("/").await.status, 200);
    daemon.kill().await;
    let daemon = daemon.start_again();
    // The daemon has another port now, because the stories ask for any.
    let again = Api { address: daemon.address, ..browser };
    assert_eq!(again.get("/").await.text(), "<h1>hello from the sandbox</h1>");
    let key = daemon.data_dir().join("link-key");
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&key).expect("a key").permissions());
    assert_eq!(mode & 0o777, 0o600);
    daemon.stop().await;
}

#[tokio::test]
async fn links_that_are_taken_back_open_nothing_any_more_and_their_connections_end() {
    let mut daemon = Daemon::builder().keeps_sessions().start().await;
    let session = daemon.session().await;
    let site = Site::start(&session).await;
    let other = Site::start_at(&session, 3001, "127.0.0.1").await;
    let (link, kept) = (site.link(HOUR).await, other.link(HOUR).await);
    let (browser, unharmed) = (link.opened().await, kept.opened().await);
    let mut socket = web_socket(&browser, &link.authority).await;
    let mut still_open = web_socket(&unharmed, &kept.authority).await;
    let port = site.port.to_string();
    assert_eq!(Cove::of(&daemon).run(&["ports", &session.id, "--unlink", &port]).await.ok(), format!("{port}\n"));
    let ended = tokio::time::timeout(DEADLINE, async { while let Some(Ok(_)) = socket.next().await {} }).await;
    assert!(ended.is_ok(), "the connection outlives its link");
    let is_refused = async |browser: &Api| {
        assert_eq!(browser.get("/").await.status, 401, "by the cookie");
        let answer = link.api.get(&format!("/?cove_token={}", link.token)).await;
        assert_eq!(answer.status, 401, "by the address: {}", answer.text());
    };
    is_refused(&browser).await;
    // Links to other ports stay, and so do links that are made later.
    still_open.send(Message::text("again")).await.expect("it is open");
    assert_eq!(still_open.next().await.expect("open").expect("a message"), Message::text("again"));
    let later = site.link(HOUR).await.opened().await;
    assert_eq!((later.get("/").await.status, unharmed.get("/").await.status), (200, 200));
    drop(still_open);
    daemon.kill().await;
    let daemon = daemon.start_again();
    let at = |browser: &Api| Api { address: daemon.address, ..browser.clone() };
    assert_eq!(at(&browser).get("/").await.status, 401, "also after a restart");
    assert_eq!((at(&later).get("/").await.status, at(&unharmed).get("/").await.status), (200, 200));
    daemon.stop().await;
}

#[tokio::test]
async fn a_domain_of_the_operators_is_used_for_links_and_the_default_is_not() {
    let config = "[preview]\ndomain = \"Preview.Example.com\"\nscheme = \"https\"\n";
    let daemon = Daemon::builder().config(config).start().await;
    let session = daemon.session().await;
    let site = Site::start(&session).await;
    let view = daemon.post(&session.path("/ports/3000/url"), json!({})).await.ok();
    let url = view["url"].as_str().expect("an address");
    let host = format!("3000-{}.preview.example.com", session.id);
    let token = url.strip_prefix(&format!("https://{host}/?cove_token=")).unwrap_or_else(|| panic!("{url}"));
    let client = daemon.with_key(None).with_header("host", &host);
    let answer = client.get(&format!("/?cove_token={token}")).await;
    assert!(answer.header("set-cookie").ends_with("; Secure"), "{}", answer.header("set-cookie"));
    let seen = client.with_header("cookie", &format!("cove_preview={token}")).get("/seen").await.ok();
    assert_eq!(header(&seen, "x-forwarded-proto"), Some("https"));
    let old = daemon.with_key(None).with_header("host", &format!("3000-{}.localhost", session.id));
    assert_eq!(old.get("/").await.refused(), ErrorCode::Forbidden);
    drop(site);
    daemon.stop().await;
}
