//! Servers inside a sandbox, as clients outside reach them.

mod browser;
mod connections;
mod forward;
mod links;
mod proxy;

use e2e::daemon::{Ability, Answer, Api, Daemon, Session};
use e2e::{DEADLINE, wait_until};
use hyper::Method;
use serde_json::{Value, json};

const SERVER: &str = include_str!("server.py");

/// The port that the server of most stories listens on.
const PORT: u16 = 3000;

/// A server in a session's sandbox.
struct Site {
    session: Session,
    port: u16,
}

impl Site {
    /// Starts the server of these stories and waits until it listens.
    async fn start(session: &Session) -> Self {
        Self::start_at(session, PORT, "127.0.0.1").await
    }

    async fn start_at(session: &Session, port: u16, address: &str) -> Self {
        session.put("server.py", SERVER).await.ok();
        serve(session, &format!("python3 server.py {port} {address}"), port).await;
        Self { session: session.clone(), port }
    }

    /// A path below the session's API.
    fn path(&self, path: &str) -> String {
        self.session.path(&format!("/ports/{}{path}", self.port))
    }

    async fn get(&self, path: &str) -> Answer {
        self.session.api.get(&self.path(path)).await
    }

    /// What the server saw of a request.
    async fn seen(&self, path: &str) -> Value {
        self.get(path).await.ok()
    }

    async fn link(&self, ttl_seconds: u64) -> Link {
        Link::make(&self.session, self.port, ttl_seconds).await
    }
}

/// Starts a program in the background, and waits until it listens on the port.
async fn serve(session: &Session, command: &str, port: u16) {
    session.sh(&format!("nohup {command} > server-{port}.log 2>&1 &")).await;
    let listens = wait_until("the server listens", DEADLINE, async || {
        let list = session.api.get(&session.path("/ports")).await.ok();
        let ports = list["ports"].as_array().expect("a list").clone();
        ports.into_iter().find(|view| view["port"] == port)
    });
    let view = listens.await;
    assert_eq!(view["reachable"], true, "{view}");
}

/// The daemon's process, and the runner's where the host sees it.
fn pids(daemon: &Daemon, session: &Session) -> Vec<i32> {
    let runner = Ability::RunnerOnHost.is_there("the runner's sockets and memory").then(|| daemon.runner_pid(session));
    std::iter::once(daemon.pid()).chain(runner).collect()
}

/// The value of a header that the server saw.
fn header<'a>(seen: &'a Value, name: &str) -> Option<&'a str> {
    let headers = seen["headers"].as_array().expect("a list");
    headers.iter().find(|pair| pair[0] == name).map(|pair| pair[1].as_str().expect("text"))
}

/// A link to a port, as a browser sees it.
struct Link {
    /// Host and port.
    authority: String,
    token: String,
    api: Api,
}

impl Link {
    async fn make(session: &Session, port: u16, ttl_seconds: u64) -> Self {
        let path = session.path(&format!("/ports/{port}/url"));
        let view = session.api.post(&path, json!({ "ttl_seconds": ttl_seconds })).await.ok();
        Self::parse(session, view["url"].as_str().expect("an address"))
    }

    fn parse(session: &Session, url: &str) -> Self {
        let (authority, query) = url.strip_prefix("http://").and_then(|rest| rest.split_once("/?")).expect("a URL");
        let token = query.strip_prefix("cove_token=").expect("a token").to_owned();
        let authority = authority.to_owned();
        // Browsers resolve every name below localhost to the loopback; a test does it by hand.
        let api = session.api.with_key(None).with_header("host", &authority);
        Self { authority, token, api }
    }

    /// A client that opened the link: it has the cookie.
    async fn opened(&self) -> Api {
        let answer = self.api.get(&format!("/?cove_token={}", self.token)).await;
        assert_eq!((answer.status, answer.header("location")), (302, "/"), "{}", answer.text());
        let cookie = answer.header("set-cookie");
        let (pair, attributes) = cookie.split_once("; ").expect("a cookie with attributes");
        assert!(pair.starts_with("cove_preview="), "{cookie}");
        assert!(attributes.starts_with("Path=/; HttpOnly; SameSite=Lax; Max-Age="), "{cookie}");
        assert!(!attributes.to_lowercase().contains("domain"), "{cookie}");
        self.api.with_header("cookie", pair)
    }
}

/// Sends a request with any method.
async fn send(api: &Api, method: &str, path: &str, body: &'static str) -> Answer {
    api.send(Method::from_bytes(method.as_bytes()).expect("a method"), path, body).await
}
