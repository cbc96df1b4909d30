//! Several keys: what one owns does not exist for another. The first test is made from the table of routes, so it covers every
//! route with an id of a session or a workspace in it, also those that are added later.

use axum::body::Body;
use http_body_util::BodyExt as _;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};

use super::routes_test::{Api, api, with_secret};
use crate::api::routes;
use crate::api::routes::Place;

const FIRST: &str = "the-right-key";

/// What a client sees of an answer, except what differs from one answer to the next.
#[derive(Debug, PartialEq)]
struct Seen {
    status: u16,
    headers: Vec<(String, String)>,
    body: String,
}

impl Seen {
    /// The same answer, as it would be for an id that is called `ID`.
    fn about(mut self, id: &str) -> Self {
        self.body = self.body.replace(id, "ID");
        self
    }

    fn code(&self) -> Value {
        serde_json::from_str::<Value>(&self.body).unwrap_or_default()["error_code"].clone()
    }
}

/// The routes on a real port, because a terminal needs a connection.
struct Served {
    api: Api,
    port: u16,
}

impl Served {
    async fn start() -> Self {
        let api = api();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let router = api.router.clone();
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { api, port }
    }

    async fn ask(&self, secret: &str, method: &str, path: &str, good: &Good) -> Seen {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).await.unwrap();
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        let connection = tokio::spawn(async move { drop(connection.await) });
        let mut request = with_secret(secret, &method.to_uppercase(), path);
        for (name, value) in good.headers {
            request = request.header(*name, *value);
        }
        let answer = sender.send_request(request.body(Body::from(good.body.clone())).unwrap()).await.unwrap();
        let (head, body) = answer.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        connection.abort();
        let mut headers: Vec<(String, String)> = head
            .headers
            .iter()
            .filter(|(name, _)| !["date", "x-request-id", "content-length"].contains(&name.as_str()))
            .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
            .collect();
        headers.sort();
        Seen { status: head.status.as_u16(), headers, body: String::from_utf8_lossy(&bytes).into_owned() }
    }
}

/// A request that would work if the session or workspace were the caller's.
struct Good {
    headers: &'static [(&'static str, &'static str)],
    body: String,
}

const JSON: &[(&str, &str)] = &[("content-type", "application/json")];

/// A good request for a route. Most need nothing; the others are named here. A new route that needs more than an empty document
/// fails the test below, because its refusal is not the one for an unknown id.
fn good(method: &str, rest: &str) -> Good {
    let body = match (method, rest) {
        ("post", "/exec" | "/exec/stream") => json!({"cmd": "true"}),
        ("post", "/run" | "/run/stream") => json!({"argv": ["true"]}),
        ("post", "/input") => json!({"data": "x"}),
        ("post", "/tools/{tool}") => json!({"command": "true"}),
        ("post", "/signal") => json!({"signal": "INT"}),
        ("post", "/resize") => json!({"cols": 80, "rows": 24}),
        ("put", "/network") => json!({"network": "none"}),
        ("post", "/fs/write") => json!({"path": "x", "text": "a"}),
        ("post", "/fs/mkdir") => json!({"path": "x"}),
        ("post", "/fs/move") => json!({"from": "x", "to": "y"}),
        ("get", "/terminal") => {
            let headers = &[
                ("connection", "upgrade"),
                ("upgrade", "websocket"),
                ("sec-websocket-version", "13"),
                ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
            ];
            return Good { headers, body: String::new() };
        }
        ("get", "/ports/{port}/connect") => {
            return Good { headers: &[("connection", "upgrade"), ("upgrade", "cove-tcp")], body: String::new() };
        }
        ("post", "/fs/upload") => {
            let body = "--B\r\ncontent-disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\nx\r\n--B--\r\n";
            return Good { headers: &[("content-type", "multipart/form-data; boundary=B")], body: body.into() };
        }
        ("get" | "delete" | "put", _) => return Good { headers: &[], body: String::new() },
        _ => json!({}),
    };
    Good { headers: JSON, body: body.to_string() }
}

/// The path of a route with an id in it, and with a value for each parameter that it needs.
fn filled(route: &routes::Route, marker: &str, id: &str) -> String {
    let path = ["{exec_id}", "{shell}", "{*path}"]
        .iter()
        .fold(route.path.replace(marker, id).replace("{port}", "3000").replace("{tool}", "bash"), |path, name| {
            path.replace(name, "x")
        });
    assert!(!path.contains('{'), "{path}: say here what stands for this parameter");
    let needed = route.parameters.iter().filter(|p| p.is_required && p.place == Place::Query);
    let query: Vec<String> = needed.map(|parameter| format!("{}=x", parameter.name)).collect();
    if query.is_empty() { path } else { format!("{path}?{}", query.join("&")) }
}

#[tokio::test]
async fn what_another_owns_is_answered_as_if_it_did_not_exist_and_is_not_touched() {
    let served = Served::start().await;
    let api = &served.api;
    let (alice, bob) = (api.user("alice", json!({})).await, api.user("bob", json!({})).await);
    let (_, session) = api.call_as(&alice, "POST", "/v1/sessions", r#"{"workspace_id":"atelier"}"#).await;
    let id = session["id"].as_str().unwrap();
    let own = format!("/v1/sessions/{id}");
    assert_eq!(api.call_as(&alice, "POST", &format!("{own}/pause"), "").await.0, 200);
    let before = api.call_as(&alice, "GET", &own, "").await;
    assert_eq!((&before.1["status"], &before.1["owner"]), (&json!("paused"), &json!("alice")));
    let sandboxes = || {
        let runtime = api.runtime.state();
        (runtime.creates, runtime.paused.len(), runtime.destroys)
    };

    let (mut asked, unknown) = (0, "00000000-000");
    for route in routes::all() {
        let (marker, theirs, code) = if route.path.contains("{session_id}") {
            ("{session_id}", vec![(id, unknown)], "SESSION_NOT_FOUND")
        } else if route.path.contains("{workspace_id}") {
            // Bob has no workspace, neither by the name that Alice's has nor by another.
            let mut theirs = vec![("alice:atelier", "alice:void"), ("alice:atelier", "nobody:atelier")];
            // A put makes one of Bob's own.
            if route.method != "put" {
                theirs.push(("atelier", "void"));
            }
            ("{workspace_id}", theirs, "WORKSPACE_NOT_FOUND")
        } else {
            continue;
        };
        let rest = route.path.split_once(marker).map(|(_, rest)| rest).unwrap();
        let good = good(route.method, rest);
        for (known, other) in theirs {
            let there = sandboxes();
            let foreign = served.ask(&bob, route.method, &filled(&route, marker, known), &good).await;
            let missing = served.ask(&bob, route.method, &filled(&route, marker, other), &good).await;
            let what = format!("{} {} for {known}: {foreign:?}", route.method, route.path);
            assert_eq!((foreign.status, foreign.code()), (404, json!(code)), "{what}");
            let short = |address: &str| address.rsplit(':').next().unwrap().to_owned();
            assert_eq!(foreign.about(&short(known)), missing.about(&short(other)), "{what}");
            assert_eq!(sandboxes(), there, "{what}");
            assert_eq!(api.call_as(&alice, "GET", &own, "").await, before, "{what}");
            asked += 1;
        }
        // The control: the same request about something of the caller's own is not refused like that.
        let (_, session) = api.call_as(&alice, "POST", "/v1/sessions", r#"{"workspace_id":"control"}"#).await;
        let mine = if marker == "{session_id}" { session["id"].as_str().unwrap() } else { "control" };
        let answer = served.ask(&alice, route.method, &filled(&route, marker, mine), &good).await;
        assert_ne!(answer.code(), json!(code), "{} {}: {answer:?}", route.method, route.path);
        // So is not the request of an admin.
        let address = if marker == "{session_id}" { mine } else { "alice:control" };
        let answer = served.ask(FIRST, route.method, &filled(&route, marker, address), &good).await;
        assert_ne!(answer.code(), json!(code), "{} {}: {answer:?}", route.method, route.path);
        api.call_as(&alice, "DELETE", &format!("/v1/sessions/{}", session["id"].as_str().unwrap()), "").await;
    }
    assert!(asked > 40, "{asked} requests were compared");
}

#[tokio::test(start_paused = true)]
async fn a_route_for_admins_refuses_a_user_and_no_other_route_does() {
    let api = api();
    let alice = api.user("alice", json!({})).await;
    for route in routes::all() {
        let path = route.path.replace("{key_name}", "bob").replace("{image}", "base");
        if path.contains('{') {
            continue;
        }
        let body = if route.method == "put" { r#"{"size":0}"# } else { r#"{"name":"bob"}"# };
        let body = match path.as_str() {
            "/v1/sessions" => "{}",
            "/v1/images/commit" => r#"{"session_id":"s","image":"i"}"#,
            _ => body,
        };
        for (secret, expected) in [(alice.as_str(), route.is_for_admins), (FIRST, false)] {
            let (status, answer) = api.call_as(secret, &route.method.to_uppercase(), &path, body).await;
            assert_eq!(status == 403, expected, "{} {path}: {status} {answer}", route.method);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn lists_show_a_user_its_own_and_an_admin_everything() {
    let api = api();
    let (alice, bob) = (api.user("alice", json!({})).await, api.user("bob", json!({})).await);
    for (secret, workspace) in [(alice.as_str(), "w"), (&bob, "w"), (FIRST, "x")] {
        let body = json!({ "workspace_id": workspace }).to_string();
        assert_eq!(api.call_as(secret, "POST", "/v1/sessions", &body).await.0, 201);
    }
    assert_eq!(api.call("PUT", "/v1/pools/base", r#"{"size":1}"#).await.0, 200);
    for (secret, owners) in
        [(alice.as_str(), vec!["alice"]), (&bob, vec!["bob"]), (FIRST, vec!["alice", "bob", "default"])]
    {
        let all = "/v1/sessions?status=running&status=pool_idle&status=creating";
        for (path, list) in [("/v1/sessions", None), (all, None), ("/v1/workspaces", Some("workspaces"))] {
            let (_, answer) = api.call_as(secret, "GET", path, "").await;
            let listed = list.map_or(&answer, |list| &answer[list]).as_array().unwrap();
            let mut seen: Vec<&str> = listed.iter().map(|view| view["owner"].as_str().unwrap()).collect();
            seen.sort_unstable();
            seen.dedup();
            assert_eq!(seen, owners, "{path}: {answer}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_idempotency_key_is_the_callers_own() {
    let api = api();
    let (alice, bob) = (api.user("alice", json!({})).await, api.user("bob", json!({})).await);
    let create = async |secret: &str, body: &'static str| {
        let request = with_secret(secret, "POST", "/v1/sessions").header("idempotency-key", "k").body(Body::from(body));
        let answer = api.send(request.unwrap()).await;
        let status = answer.status().as_u16();
        let bytes = answer.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice::<Value>(&bytes).unwrap()["id"].clone())
    };
    let first = create(&alice, "{}").await;
    // For Bob the key is new: he gets neither Alice's session nor a conflict.
    let other = create(&bob, r#"{"labels":{"a":"b"}}"#).await;
    assert_eq!((first.0, other.0), (201, 201));
    assert_ne!(first.1, other.1);
    assert_eq!(create(&alice, "{}").await, first);
    assert_eq!(create(&alice, r#"{"labels":{"a":"b"}}"#).await.0, 409);
}

#[tokio::test(start_paused = true)]
async fn a_key_has_its_own_limits_and_hears_nothing_of_others() {
    let api = api();
    let alice = api.user("alice", json!({"max_sessions": 2, "max_memory_mb": 300})).await;
    let create = async |secret: &str, memory_mb: u64| {
        let body = json!({ "resources": { "memory_mb": memory_mb } }).to_string();
        api.call_as(secret, "POST", "/v1/sessions", &body).await
    };
    assert_eq!(create(&alice, 100).await.0, 201);
    let (status, refused) = create(&alice, 250).await;
    assert_eq!(status, 429, "{refused}");
    let details = json!({"of": "key", "what": "MiB of memory", "limit": 300, "in_use": 100, "asked": 250});
    assert_eq!(refused["details"], details);
    let (_, second) = create(&alice, 200).await;
    assert_eq!(create(&alice, 32).await.1["details"]["what"], "sessions");
    let (_, keys) = api.call("GET", "/v1/keys", "").await;
    let of = |name: &str| keys["keys"].as_array().unwrap().iter().find(|key| key["name"] == name).unwrap().clone();
    assert_eq!((&of("alice")["sessions"], &of("alice")["memory_mb"]), (&json!(2), &json!(300)));
    // Another key is not limited by this one, and what ends makes room again.
    let bob = api.user("bob", json!({})).await;
    assert_eq!(create(&bob, 100).await.0, 201);
    assert_eq!(create(FIRST, 100).await.0, 201);
    api.call_as(&alice, "DELETE", &format!("/v1/sessions/{}", second["id"].as_str().unwrap()), "").await;
    assert_eq!(create(&alice, 200).await.0, 201);
}

#[tokio::test(start_paused = true)]
async fn a_full_daemon_tells_a_user_that_it_is_full_and_an_admin_how_full() {
    let api = super::routes_test::api_with(|config| config.sessions.max_sessions = 1);
    let alice = api.user("alice", json!({})).await;
    assert_eq!(api.call("POST", "/v1/sessions", "{}").await.0, 201);
    let (status, refused) = api.call_as(&alice, "POST", "/v1/sessions", "{}").await;
    assert_eq!((status, &refused["details"]), (429, &json!({"of": "daemon"})));
    assert!(!refused["message"].as_str().unwrap().contains('1'), "{refused}");
    let (_, refused) = api.call("POST", "/v1/sessions", "{}").await;
    assert_eq!(refused["details"]["in_use"], 1, "{refused}");
}

#[tokio::test(start_paused = true)]
async fn a_removed_key_is_refused_at_once_and_what_it_owned_stays_for_admins() {
    let api = api();
    let alice = api.user("alice", json!({})).await;
    let (_, session) = api.call_as(&alice, "POST", "/v1/sessions", "{}").await;
    let path = format!("/v1/sessions/{}", session["id"].as_str().unwrap());
    assert_eq!(api.call("DELETE", "/v1/keys/alice", "").await.0, 200);
    assert_eq!(api.call_as(&alice, "GET", &path, "").await.0, 401);
    assert_eq!(api.call("DELETE", "/v1/keys/alice", "").await.0, 404);
    assert_eq!(api.call("GET", &path, "").await.1["owner"], "alice");
    assert_eq!(api.call("DELETE", "/v1/keys/default", "").await.0, 409);
    // A new key with the name has what the old one had: this is how a key is replaced.
    let again = api.user("alice", json!({})).await;
    assert_eq!(api.call_as(&again, "GET", &path, "").await.0, 200);
}

#[tokio::test]
async fn a_change_is_in_the_audit_log_with_its_caller_and_without_what_it_carried() {
    let api = api();
    let alice = api.user("alice", json!({})).await;
    let (_, session) =
        api.call_as(&alice, "POST", "/v1/sessions", r#"{"env":{"TOKEN":"hush"},"labels":{"l":"hush"}}"#).await;
    let id = session["id"].as_str().unwrap();
    api.call_as(&alice, "POST", &format!("/v1/sessions/{id}/exec"), r#"{"cmd":"echo hush"}"#).await;
    api.call_as(&alice, "PUT", &format!("/v1/sessions/{id}/files/hush"), "hush").await;
    api.call_as(&alice, "GET", &format!("/v1/sessions/{id}"), "").await;
    api.call_as(&alice, "DELETE", "/v1/keys/bob", "").await;
    api.call_as("no-key-at-all", "DELETE", &format!("/v1/sessions/{id}"), "").await;
    api.call_as(&alice, "DELETE", &format!("/v1/sessions/{id}?nope=hush"), "").await;
    api.audit.close().await;
    let text = std::fs::read_to_string(api.folder.path().join("audit.log")).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let brief = |line: &Value| {
        let part = |name: &str| line[name].as_str().unwrap().to_owned();
        (part("caller"), part("method"), part("route"), line["ids"].clone(), line["status"].as_u64().unwrap())
    };
    let of = |caller: &str, method: &str, route: &str, ids: Value, status: u64| {
        (caller.to_owned(), method.to_owned(), route.to_owned(), ids, status)
    };
    let seen: Vec<_> = lines.iter().map(brief).collect();
    let session = json!({ "session_id": id });
    assert_eq!(seen[0], of("default", "POST", "/v1/keys", json!({"key_name": "alice"}), 201));
    assert_eq!(seen[1], of("alice", "POST", "/v1/sessions", session.clone(), 201));
    assert_eq!((&seen[2].2, &seen[2].3), (&"/v1/sessions/{session_id}/exec".to_owned(), &session));
    assert_eq!((&seen[3].2, &seen[3].3), (&"/v1/sessions/{session_id}/files/{*path}".to_owned(), &session));
    assert_eq!(seen[4], of("alice", "DELETE", "/v1/keys/{key_name}", json!({"key_name": "bob"}), 403));
    assert_eq!((lines[4]["error_code"].as_str(), lines[4]["role"].as_str()), (Some("FORBIDDEN"), Some("user")));
    // Neither what only reads nor what had no key is there.
    assert_eq!(lines.len(), 6, "{text}");
    assert!(!text.contains("hush") && !text.contains(&alice), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_key_with_too_many_requests_in_flight_is_asked_to_wait_and_another_is_not() {
    let api = super::routes_test::api_with(|config| config.server.max_requests_per_key = 1);
    let (alice, bob) = (api.user("alice", json!({})).await, api.user("bob", json!({})).await);
    // An answer counts until it was sent.
    let held = api.send(with_secret(&alice, "GET", "/v1/sessions").body(Body::empty()).unwrap()).await;
    assert_eq!(held.status(), 200);
    let refused = api.send(with_secret(&alice, "GET", "/v1/sessions").body(Body::empty()).unwrap()).await;
    assert_eq!((refused.status().as_u16(), refused.headers()["retry-after"].to_str().unwrap()), (429, "1"));
    assert_eq!(api.call_as(&bob, "GET", "/v1/sessions", "").await.0, 200);
    drop(held);
    assert_eq!(api.call_as(&alice, "GET", "/v1/sessions", "").await.0, 200);
}
