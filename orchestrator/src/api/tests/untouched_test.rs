//! A request that cannot be valid touches nothing: a paused session stays paused, its lifetime is not renewed, and no
//! sandbox is started. The test covers every route for a session or a workspace.

use std::time::Duration;

use axum::body::Body;
use serde_json::json;

use super::routes_test::{Api, api, with_key};
use crate::api::routes;

/// One request with one mistake.
struct Bad {
    /// The query, or a value for the last parameter of the path.
    query: &'static str,
    /// The value of the path's own parameter: a shell, an exec or a file.
    part: &'static str,
    headers: &'static [(&'static str, &'static str)],
    body: String,
}

fn bad() -> Bad {
    Bad { query: "", part: "x", headers: &[], body: String::new() }
}

fn query(query: &'static str) -> Bad {
    Bad { query, ..bad() }
}

fn part(part: &'static str) -> Bad {
    Bad { part, ..bad() }
}

fn header(headers: &'static [(&'static str, &'static str)]) -> Bad {
    Bad { headers, ..bad() }
}

fn body(value: &serde_json::Value) -> Bad {
    Bad { body: value.to_string(), headers: &[("content-type", "application/json")], ..bad() }
}

fn form(fields: &[(&str, Option<&str>, &str)]) -> Bad {
    let mut text = String::new();
    for (name, file, content) in fields {
        let file = file.map(|file| format!("; filename=\"{file}\"")).unwrap_or_default();
        text.push_str(&format!("--B\r\ncontent-disposition: form-data; name=\"{name}\"{file}\r\n\r\n{content}\r\n"));
    }
    text.push_str("--B--\r\n");
    Bad { body: text, headers: &[("content-type", "multipart/form-data; boundary=B")], ..bad() }
}

/// The mistakes that any JSON request can have.
fn no_json() -> Vec<Bad> {
    let plain = Bad { body: "{}".into(), headers: &[("content-type", "text/plain")], ..bad() };
    vec![bad(), plain, body(&json!([])), body(&json!({"nope": 1}))]
}

/// The mistakes that an exec request and a run request can have.
fn started(fields: &serde_json::Value) -> Vec<Bad> {
    [
        json!({"timeout_ms": u64::MAX}),
        json!({"timeout_ms": -1}),
        json!({"env": {"1A": "x"}}),
        json!({"env": {"A": "\0"}}),
        json!({"cwd": "a\0b"}),
        json!({"stdin": "a", "stdin_base64": "YQ=="}),
        json!({"stdin_base64": "Y"}),
        json!({"exec_id": "a b"}),
    ]
    .iter()
    .map(|wrong| {
        let mut all = fields.as_object().unwrap().clone();
        all.extend(wrong.as_object().unwrap().clone());
        body(&all.into())
    })
    .collect()
}

fn all<const N: usize>(lists: [Vec<Bad>; N]) -> Vec<Bad> {
    lists.into_iter().flatten().collect()
}

/// Bad requests for a route, which is given by its method and the path after the id. `None` for a route that takes neither
/// parameters nor a body, so that no request can be bad.
fn bad_requests(method: &str, rest: &str) -> Option<Vec<Bad>> {
    let exec = json!({"cmd": "true"});
    let run = json!({"argv": ["true"]});
    let websocket = &[
        ("connection", "upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];
    let paths = || vec![bad(), query("?path="), query("?path=a%00b"), query("?path=..%2Fx"), query("?path=x&path=y")];
    Some(match (method, rest) {
        ("post", "/snapshots") => vec![
            body(&json!([])),
            body(&json!({"nope": 1})),
            body(&json!({"name": ""})),
            body(&json!({"name": "a\nb"})),
        ],
        ("post", "/tools/{tool}") => {
            let of = |part: &'static str, arguments: serde_json::Value| Bad { part, ..body(&arguments) };
            vec![
                part("x"),
                part("bash"),
                of("bash", json!([])),
                of("bash", json!({"cmd": "true"})),
                of("read", json!({"path": "../x"})),
                of("edit", json!({"path": "x", "old_string": "a"})),
                of("git", json!({"args": "log 'x"})),
                of("wait", json!({"exec_id": "a b"})),
            ]
        }
        ("post", "/fork") => vec![
            body(&json!([])),
            body(&json!({"nope": 1})),
            body(&json!({"count": 0})),
            body(&json!({"count": 101})),
            body(&json!({"workspace_id": "../x"})),
        ],
        ("post", "/exec") => all([
            no_json(),
            started(&exec),
            vec![body(&json!({"cmd": "a\0b"})), body(&json!({"cmd": "x", "shell": ""}))],
        ]),
        ("post", "/exec/stream") => {
            all([no_json(), started(&exec), vec![body(&json!({"cmd": "true", "detach": true}))]])
        }
        ("post", "/run") => {
            all([no_json(), started(&run), vec![body(&json!({"argv": []})), body(&json!({"argv": ["a\0"]}))]])
        }
        ("post", "/run/stream") => {
            all([no_json(), started(&run), vec![body(&json!({"argv": ["true"], "detach": true}))]])
        }
        ("get", "/execs/{exec_id}") => vec![
            part("a%20b"),
            query("?from=-1"),
            query("?follow=maybe"),
            query("?nope=1"),
            header(&[("last-event-id", "x")]),
        ],
        ("post", "/runs/{exec_id}/stdin") => vec![part("a%20b"), query("?close=maybe"), query("?nope=1")],
        ("post", "/runs/{exec_id}/stdin/close") => vec![part("a%20b")],
        ("post", "/input") => all([
            no_json(),
            vec![
                body(&json!({})),
                body(&json!({"data": "a", "data_base64": "YQ=="})),
                body(&json!({"data_base64": "Y"})),
            ],
        ]),
        ("post", "/signal") => all([
            no_json(),
            vec![body(&json!({"signal": "NOPE"})), body(&json!({"signal": "INT", "shell": "main", "exec_id": "x"}))],
        ]),
        ("post", "/resize") => {
            all([no_json(), vec![body(&json!({"cols": 0, "rows": 5})), body(&json!({"cols": 80, "rows": 1001}))]])
        }
        ("post", "/shells") => all([
            no_json(),
            vec![body(&json!({"cols": 0})), body(&json!({"env": {"": "x"}})), body(&json!({"name": "a b"}))],
        ]),
        ("delete", "/shells/{shell}") | ("post", "/shells/{shell}/reset") => vec![part("a%20b")],
        ("get", "/terminal") => {
            let wrong = ["?cols=0", "?rows=1001", "?cols=70000", "?rows=x", "?shell=a%20b", "?shell=%ff", "?nope=1"];
            let wrong = wrong.map(|query| Bad { query, headers: websocket, ..bad() });
            // The last request does not ask for a WebSocket.
            wrong.into_iter().chain([bad()]).collect()
        }
        ("get", "/files/{*path}") => vec![
            query("?nope=1"),
            part("a%00b"),
            part("a%zz"),
            part("..%2Fx"),
            header(&[("range", "lines=1-2")]),
            header(&[("range", "bytes=9-0")]),
        ],
        ("put", "/files/{*path}") => {
            vec![query("?nope=1"), query("?mode=999"), query("?mode=4755"), part("a%00b"), part("..%2Fx")]
        }
        ("delete", "/fs") => all([paths(), vec![query("?path=x&recursive=maybe")]]),
        ("get", "/fs/read") => all([paths(), vec![query("?path=x&max_bytes=-1")]]),
        // The default path is the workspace.
        ("get", "/fs/list" | "/fs" | "/fs/watch") => {
            all([paths().into_iter().skip(1).collect(), vec![query("?path=x&recursive=2")]])
        }
        ("get", "/fs/stat") => all([paths(), vec![query("?path=x&follow=2")]]),
        ("get" | "put", "/archive") => paths(),
        ("post", "/fs/write") => all([
            no_json(),
            vec![
                body(&json!({"path": "x"})),
                body(&json!({"path": "x", "text": "a", "content_base64": "YQ=="})),
                body(&json!({"path": "x", "content_base64": "Y"})),
                body(&json!({"path": "", "text": "a"})),
                body(&json!({"path": "../x", "text": "a"})),
            ],
        ]),
        ("post", "/fs/mkdir") => all([
            no_json(),
            vec![body(&json!({"path": ""})), body(&json!({"path": "a\0b"})), body(&json!({"path": ".."}))],
        ]),
        ("post", "/fs/move") => {
            all([no_json(), vec![body(&json!({"from": "", "to": "b"})), body(&json!({"from": "a", "to": "../b"}))]])
        }
        ("post", "/fs/upload") => vec![
            bad(),
            form(&[]),
            form(&[("path", None, "d")]),
            form(&[("path", None, "../d"), ("file", Some("a"), "content")]),
            form(&[("path", None, "d"), ("path", None, "e"), ("file", Some("a"), "content")]),
            form(&[("path", None, "d"), ("nope", None, "x"), ("file", Some("a"), "content")]),
            form(&[("path", None, "d"), ("file", Some(".."), "content")]),
            form(&[("file", None, "content")]),
            form(&[("file", Some("a"), "content"), ("nope", None, "x")]),
        ],
        ("delete", "") => vec![query("?force=maybe"), query("?nope=1")],
        ("put", "") => vec![query("?nope=1")],
        ("patch", "") => all([
            no_json(),
            vec![
                body(&json!({"ttl_seconds": 0})),
                body(&json!({"idle_seconds": u64::MAX})),
                body(&json!({"labels": {"": "x"}})),
            ],
        ]),
        ("get", "/execs") => vec![query("?limit=0"), query("?limit=x"), query("?after=a%20b"), query("?nope=1")],
        ("post", "/ports/{port}/url") => all([
            no_json().into_iter().skip(1).collect(),
            vec![part("0"), part("65536"), part("x"), body(&json!({"ttl_seconds": 0}))],
            vec![body(&json!({"ttl_seconds": u64::MAX})), body(&json!({"ttl_seconds": "1"}))],
        ]),
        ("get" | "delete", rest) if rest.starts_with("/ports/{port}") => {
            vec![part("0"), part("65536"), part("x"), part("8%30")]
        }
        ("put", "/network") => all([
            no_json(),
            vec![
                body(&json!({})),
                body(&json!({"network": "nope"})),
                body(&json!({"network": {"allow": ["https://example.com"]}})),
                body(&json!({"network": {"alow": []}})),
                body(&json!({"network": {"allow": [{"host": "example.com", "ports": [0]}]}})),
            ],
        ]),
        ("get", "/network/log") => vec![query("?follow=maybe"), query("?after=x"), query("?nope=1")],
        ("get", "/network" | "/ports" | "/shells") => return None,
        _ => panic!("{method} …{rest} is a new route: say here what can be wrong with a request for it"),
    })
}

/// The routes that act on the session itself. Their requests contain nothing that could be wrong.
const OF_THE_SESSION: [&str; 6] = ["", "/pause", "/resume", "/stats", "/stop", "/start"];

async fn view(api: &Api, path: &str) -> serde_json::Value {
    api.call("GET", path, "").await.1
}

#[tokio::test(start_paused = true)]
async fn a_request_that_cannot_be_valid_touches_nothing() {
    let api = api();
    let (_, session) = api.call("POST", "/v1/sessions", r#"{"workspace_id":"w"}"#).await;
    let session_path = format!("/v1/sessions/{}", session["id"].as_str().unwrap());
    assert_eq!(api.call("POST", &format!("{session_path}/pause"), "").await.0, 200);
    let before = view(&api, &session_path).await;
    assert_eq!(before["status"], "paused");

    let mut asked = 0;
    for route in routes::all() {
        let (base, rest) = if let Some(rest) = route.path.strip_prefix("/v1/sessions/{session_id}") {
            if OF_THE_SESSION.contains(&rest) {
                continue;
            }
            (session_path.as_str(), rest)
        } else if let Some(rest) = route.path.strip_prefix("/v1/workspaces/{workspace_id}") {
            ("/v1/workspaces/w", rest)
        } else {
            continue;
        };
        for wrong in bad_requests(route.method, rest).unwrap_or_default() {
            // Time passes, so that a renewal would be visible.
            tokio::time::advance(Duration::from_secs(1)).await;
            let rest = ["{exec_id}", "{shell}", "{*path}", "{port}", "{tool}"]
                .iter()
                .fold(rest.to_owned(), |rest, name| rest.replace(name, wrong.part));
            let path = format!("{base}{rest}{}", wrong.query);
            let what = format!("{} {path} {:?} {}", route.method, wrong.headers, wrong.body);
            let mut request = with_key(&route.method.to_uppercase(), &path);
            for (name, value) in wrong.headers {
                request = request.header(*name, *value);
            }
            let response = api.send(request.body(Body::from(wrong.body)).unwrap()).await;
            assert_eq!(response.status(), 400, "{what}");
            assert_eq!(view(&api, &session_path).await, before, "{what}");
            let sandboxes = {
                let runtime = api.runtime.state();
                (runtime.creates, runtime.paused.len())
            };
            assert_eq!(sandboxes, (1, 1), "{what}");
            asked += 1;
        }
    }
    assert!(asked > 150, "{asked} requests were tried");

    // The control: a valid request wakes the session, although its runner does not answer.
    api.call("POST", &format!("{session_path}/exec"), r#"{"cmd":"true"}"#).await;
    let after = view(&api, &session_path).await;
    assert_eq!(after["status"], "running");
    assert_ne!((&after["last_activity"], &after["expires_at"]), (&before["last_activity"], &before["expires_at"]));
}
