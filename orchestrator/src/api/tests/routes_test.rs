//! Tests of every route over a fake runtime: the status and shape of each answer, and that a mistake changes nothing.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::middleware::from_fn_with_state;
use http_body_util::BodyExt as _;
use hyper::service::Service as _;
use hyper::{Request, Response};
use hyper_util::service::TowerToHyperService;
use serde_json::{Value, json};
use shared_protocol::{ErrorBody, ErrorCode};

use crate::api::ports::Previews;
use crate::api::{ApiState, extract, gets_that_change, paths_without_key, router, routes};
use crate::config::{Config, ServeFlags};
use crate::key::KeyTable;
use crate::mcp::Mcp;
use crate::metrics::Metrics;
use crate::server::access::AccessPolicy;
use crate::server::audit::AuditLog;
use crate::server::gate::{self, Gate, GateParts};
use crate::service::ports::LinkKey;
use crate::service::workspaces::Workspaces;
use crate::service::{Service, ServiceParts};
use crate::session::fake::FakeRuntime;
use crate::session::{Registry, RegistryParts};
use crate::workspace::WorkspaceDirs;

pub(super) struct Api {
    service: TowerToHyperService<Router>,
    pub router: Router,
    pub runtime: Arc<FakeRuntime>,
    pub registry: Registry,
    pub audit: AuditLog,
    pub folder: tempfile::TempDir,
    pub mcp: Mcp,
    /// Tells the daemon to stop.
    pub stop: tokio::sync::watch::Sender<bool>,
}

pub(super) fn api() -> Api {
    api_with(|_| {})
}

pub(super) fn api_with(change: impl FnOnce(&mut Config)) -> Api {
    let folder = tempfile::tempdir().unwrap();
    let flags = ServeFlags { data_dir: Some(folder.path().to_owned()), ..ServeFlags::default() };
    let mut config = Config::load(&flags).unwrap();
    // With this limit, a timeout can be too long.
    config.exec.max_timeout_ms = 3_600_000;
    change(&mut config);
    let runtime = FakeRuntime::new();
    let metrics = Metrics::new();
    let store = crate::store::Store::in_memory();
    let dirs = WorkspaceDirs::open(folder.path().join("workspaces")).unwrap();
    let parts = RegistryParts {
        network: crate::network::Network::for_test(),
        runtimes: vec![runtime.clone()],
        config: config.sessions.clone(),
        snapshots: crate::config::SnapshotsConfig::default(),
        workspaces: dirs.clone(),
        metrics: metrics.clone(),
        store: store.clone(),
        clock: crate::session::Clock::start(),
    };
    let registry = Registry::new(parts).unwrap();
    let workspaces = Workspaces::new(dirs, registry.clone());
    let keys = KeyTable::open(FIRST_SECRET, store);
    let parts = ServiceParts {
        registry: registry.clone(),
        keys,
        network: crate::network::Network::for_test(),
        workspaces,
        metrics: metrics.clone(),
        exec: config.exec,
        puller: crate::image::Puller::new(&config.data_dir.join("images"), config.images),
        link_key: LinkKey::new([7; 32]),
    };
    let service = Service::new(parts);
    let keys = service.keys().clone();
    let policy = AccessPolicy {
        identify: Box::new(move |secret| keys.identify(secret)),
        open_paths: paths_without_key(),
        listen: "127.0.0.1:8080".parse().unwrap(),
        allowed_hosts: Vec::new(),
        allowed_origins: vec!["https://app.example".into()],
    };
    let audit = AuditLog::start(config.audit.clone(), Metrics::new()).unwrap();
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let previews = Previews::new(config.preview, 8080);
    let mcp = Mcp::new(service.clone(), previews.link_url(), stopped);
    let gate = Gate::new(GateParts {
        policy,
        metrics,
        stall_timeout: std::time::Duration::from_secs(5),
        max_requests_per_key: config.server.max_requests_per_key,
        audit: Some(audit.clone()),
        gets_that_change: gets_that_change(),
    });
    let router = router(ApiState { mcp: mcp.clone(), service, previews }).layer(from_fn_with_state(gate, gate::pass));
    Api { service: TowerToHyperService::new(router.clone()), router, runtime, registry, audit, folder, mcp, stop }
}

impl Api {
    pub async fn send(&self, request: Request<Body>) -> Response<Body> {
        self.service.call(request).await.unwrap()
    }

    pub async fn call(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        self.call_as(FIRST_SECRET, method, path, body).await
    }

    /// Makes a key with the role `user` and returns its secret.
    pub async fn user(&self, name: &str, limits: Value) -> String {
        let mut request = json!({ "name": name });
        request.as_object_mut().unwrap().extend(limits.as_object().unwrap().clone());
        let (status, made) = self.call("POST", "/v1/keys", &request.to_string()).await;
        assert_eq!(status, 201, "{made}");
        made["secret"].as_str().unwrap().to_owned()
    }

    pub async fn call_as(&self, secret: &str, method: &str, path: &str, body: &str) -> (u16, Value) {
        let request = with_secret(secret, method, path)
            .header("content-type", "application/json")
            .body(Body::from(body.to_owned()));
        let response = self.send(request.unwrap()).await;
        let status = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
    }

    /// The status and code of an answer that must be an error.
    async fn refused(&self, method: &str, path: &str, body: &str) -> (u16, ErrorCode) {
        let (status, answer) = self.call(method, path, body).await;
        let error: ErrorBody =
            serde_json::from_value(answer.clone()).unwrap_or_else(|_| panic!("{method} {path}: {answer}"));
        assert_eq!(error.error_code.http_status(), status);
        (status, error.error_code)
    }
}

/// The secret of the first key.
const FIRST_SECRET: &str = "the-right-key";

pub(super) fn with_key(method: &str, path: &str) -> hyper::http::request::Builder {
    with_secret(FIRST_SECRET, method, path)
}

pub(super) fn with_secret(secret: &str, method: &str, path: &str) -> hyper::http::request::Builder {
    Request::builder()
        .method(method)
        .uri(path)
        .header("host", "localhost")
        .header("authorization", format!("Bearer {secret}"))
}

#[tokio::test(start_paused = true)]
async fn a_session_is_created_looked_at_listed_measured_and_destroyed() {
    let api = api();
    let (status, created) = api.call("POST", "/v1/sessions", r#"{"labels":{"team":"a"}}"#).await;
    assert_eq!((status, created["status"].as_str()), (201, Some("running")), "{created}");
    let path = format!("/v1/sessions/{}", created["id"].as_str().unwrap());
    assert_eq!(api.call("GET", &path, "").await.1["id"], created["id"]);
    let (_, listed) = api.call("GET", "/v1/sessions?status=running&label=team%3Da", "").await;
    assert_eq!(listed.as_array().unwrap().len(), 1);
    assert_eq!(api.call("GET", "/v1/sessions?label=team%3Db", "").await.1, json!([]));
    assert_eq!(api.call("GET", &format!("{path}/stats"), "").await.1["pids"], 3);
    assert_eq!(api.call("DELETE", &path, "").await, (200, json!({"ok": true})));
    assert_eq!(api.call("DELETE", &path, "").await, (200, json!({"ok": true})));
    assert_eq!(api.call("GET", &path, "").await.1["status"], "destroyed");
    assert_eq!(api.refused("GET", &format!("{path}/stats"), "").await, (404, ErrorCode::SessionNotFound));
}

#[tokio::test(start_paused = true)]
async fn an_empty_body_creates_a_session_and_a_key_makes_a_repeat_the_same() {
    let api = api();
    let mut ids = Vec::new();
    for _ in 0..2 {
        let request = with_key("POST", "/v1/sessions").header("Idempotency-Key", "k").body(Body::empty()).unwrap();
        let response = api.send(request).await;
        assert_eq!(response.status(), 201);
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        ids.push(serde_json::from_slice::<Value>(&bytes).unwrap()["id"].clone());
    }
    assert_eq!(ids[0], ids[1]);
    assert_eq!(api.runtime.alive(), 1);
}

#[tokio::test(start_paused = true)]
async fn every_mistake_is_answered_in_the_error_shape_and_changes_nothing() {
    let api = api();
    for (method, path, body, status, code) in [
        ("POST", "/v1/sessions", "{", 400, ErrorCode::InvalidRequest),
        ("POST", "/v1/sessions", "[]", 400, ErrorCode::InvalidRequest),
        ("POST", "/v1/sessions", "null", 400, ErrorCode::InvalidRequest),
        ("POST", "/v1/sessions", "\u{1}", 400, ErrorCode::InvalidRequest),
        ("POST", "/v1/sessions", r#"{"nope":1}"#, 400, ErrorCode::InvalidRequest),
        ("POST", "/v1/sessions", r#"{"image":1}"#, 400, ErrorCode::InvalidRequest),
        ("POST", "/v1/sessions", r#"{"image":"base","image":"base"}"#, 400, ErrorCode::InvalidRequest),
        ("POST", "/v1/sessions", r#"{"ttl_seconds":-1}"#, 400, ErrorCode::InvalidRequest),
        ("POST", "/v1/sessions", r#"{"ttl_seconds":1e400}"#, 400, ErrorCode::InvalidRequest),
        ("POST", "/v1/sessions", r#"{"ttl_seconds":99999999999999999999}"#, 400, ErrorCode::InvalidRequest),
        ("POST", "/v1/sessions", r#"{"workspace_id":"../x"}"#, 400, ErrorCode::InvalidRequest),
        ("POST", "/v1/sessions", r#"{"image":"nope"}"#, 400, ErrorCode::InvalidImage),
        ("GET", "/v1/sessions?status=nope", "", 400, ErrorCode::InvalidRequest),
        ("GET", "/v1/sessions?lable=a%3Db", "", 400, ErrorCode::InvalidRequest),
        ("GET", "/v1/sessions?label=%zz", "", 400, ErrorCode::InvalidRequest),
        ("GET", "/v1/sessions?label=%ff%3Da", "", 400, ErrorCode::InvalidRequest),
        ("GET", "/v1/sessions/7183cb80-d6c", "", 404, ErrorCode::SessionNotFound),
        ("DELETE", "/v1/sessions/7183cb80-d6c", "", 404, ErrorCode::SessionNotFound),
        ("GET", "/v1/sessions/..%2f..%2fetc", "", 400, ErrorCode::InvalidRequest),
        ("GET", "/v1/sessions/%00", "", 400, ErrorCode::InvalidRequest),
        ("GET", "/v1/sessions/%ff", "", 400, ErrorCode::InvalidRequest),
        ("GET", "/v1/sessions/a/nope", "", 404, ErrorCode::NotFound),
        ("GET", "/", "", 404, ErrorCode::NotFound),
        ("GET", "/v1/../healthz", "", 404, ErrorCode::NotFound),
        ("PUT", "/v1/sessions", "", 405, ErrorCode::MethodNotAllowed),
        ("TRACE", "/v1/sessions", "", 405, ErrorCode::MethodNotAllowed),
        ("OPTIONS", "/v1/sessions", "", 405, ErrorCode::MethodNotAllowed),
        ("BREW", "/healthz", "", 405, ErrorCode::MethodNotAllowed),
        ("DELETE", "/v1/workspaces/none", "", 404, ErrorCode::WorkspaceNotFound),
        ("DELETE", "/v1/workspaces/none?force=maybe", "", 400, ErrorCode::InvalidRequest),
        ("DELETE", "/v1/workspaces/..", "", 400, ErrorCode::InvalidRequest),
    ] {
        assert_eq!(api.refused(method, path, body).await, (status, code), "{method} {path} {body}");
    }
    assert_eq!((api.runtime.state().creates, api.registry.in_use()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_too_large_or_of_another_type_is_refused() {
    let api = api();
    let refusal = |request: Request<Body>| async {
        let response = api.send(request).await;
        let status = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice::<ErrorBody>(&bytes).unwrap().error_code)
    };
    let declared =
        with_key("POST", "/v1/sessions").header("content-length", "99999999999").body(Body::empty()).unwrap();
    assert_eq!(refusal(declared).await, (413, ErrorCode::TooLarge));
    let huge = vec![b' '; extract::MAX_JSON_BODY_BYTES + 1];
    let sent = with_key("POST", "/v1/sessions").body(Body::from(huge)).unwrap();
    assert_eq!(refusal(sent).await, (413, ErrorCode::TooLarge));
    for other in ["text/plain", "application/x-www-form-urlencoded", "", "json"] {
        let request = with_key("POST", "/v1/sessions").header("content-type", other).body(Body::from("{}")).unwrap();
        assert_eq!(refusal(request).await, (400, ErrorCode::InvalidRequest), "{other:?}");
    }
    let stalled = with_key("POST", "/v1/sessions")
        .body(Body::from_stream(futures_util::stream::pending::<Result<Vec<u8>, std::io::Error>>()))
        .unwrap();
    assert_eq!(refusal(stalled).await, (400, ErrorCode::InvalidRequest));
    assert_eq!(api.registry.in_use(), 0);
}

#[tokio::test(start_paused = true)]
async fn no_route_answers_without_the_key_but_health() {
    let api = api();
    for route in routes::all() {
        let path = route.path.replace("{session_id}", "7183cb80-d6c").replace("{workspace_id}", "w");
        for key in [None, Some("Bearer wrong-wrong"), Some("Bearer ")] {
            let mut request =
                Request::builder().method(route.method.to_uppercase().as_str()).uri(&path).header("host", "localhost");
            if let Some(key) = key {
                request = request.header("authorization", key);
            }
            let response = api.send(request.body(Body::empty()).unwrap()).await;
            let expected = if route.needs_key { 401 } else { 200 };
            assert_eq!(response.status(), expected, "{} {path} with {key:?}", route.method);
        }
    }
    // The gate compares paths literally.
    assert!(paths_without_key().iter().all(|path| !path.contains('{')));
    let unknown = Request::builder().uri("/nowhere").header("host", "localhost").body(Body::empty()).unwrap();
    assert_eq!(api.send(unknown).await.status(), 401, "a stranger does not learn what there is");
}

#[tokio::test(start_paused = true)]
async fn answers_carry_a_request_id_the_clients_own_where_it_is_plain() {
    let api = api();
    for (given, kept) in [("abc-1.2_3", true), ("two words", false), (&"x".repeat(65), false)] {
        let request = with_key("GET", "/healthz").header("x-request-id", given).body(Body::empty()).unwrap();
        let response = api.send(request).await;
        let answered = response.headers()["x-request-id"].to_str().unwrap();
        assert_eq!(answered == given, kept, "{given}: {answered}");
    }
    let refused = with_key("GET", "/nowhere").body(Body::empty()).unwrap();
    assert!(api.send(refused).await.headers().contains_key("x-request-id"));
}

#[tokio::test(start_paused = true)]
async fn a_page_that_is_allowed_may_ask_and_read_and_another_may_not() {
    let api = api();
    let preflight = |origin: &'static str| {
        let request = Request::builder().method("OPTIONS").uri("/v1/sessions").header("host", "localhost");
        let request = request.header("origin", origin).header("access-control-request-method", "POST");
        api.send(request.body(Body::empty()).unwrap())
    };
    let allowed = preflight("https://app.example").await;
    assert_eq!(allowed.status(), 204);
    assert_eq!(allowed.headers()["access-control-allow-origin"], "https://app.example");
    let foreign = preflight("https://evil.example").await;
    assert_eq!(foreign.status(), 403);
    assert!(!foreign.headers().contains_key("access-control-allow-origin"));
}

#[tokio::test(start_paused = true)]
async fn the_daemon_tells_how_it_is_and_what_it_offers() {
    let api = api();
    assert_eq!(api.call("GET", "/healthz", "").await.1["status"], "ok");
    assert_eq!(api.call("GET", "/readyz", "").await.0, 200);
    let (_, images) = api.call("GET", "/v1/images", "").await;
    assert_eq!(images, json!([{"name": "base", "runtime": "local", "source": "host", "default": true}]));
    let (_, document) = api.call("GET", "/openapi.json", "").await;
    assert_eq!(document["openapi"], "3.1.0");
    api.refused("GET", "/v1/sessions/7183cb80-d6c", "").await;
    let metrics = api.send(with_key("GET", "/metrics").body(Body::empty()).unwrap()).await;
    let text = metrics.into_body().collect().await.unwrap().to_bytes();
    assert!(String::from_utf8_lossy(&text).contains("cove_errors_total{code=\"SESSION_NOT_FOUND\"} 1"));
}

#[tokio::test(start_paused = true)]
async fn a_daemon_that_is_not_ready_is_left_out_by_balancers_and_one_that_is_full_is_asked_later() {
    let api = api();
    api.runtime.state().faults.list_fails = true;
    let (status, body) = api.call("GET", "/readyz", "").await;
    assert_eq!((status, &body["error_code"]), (503, &json!("INTERNAL_ERROR")));
    assert!(body["message"].as_str().unwrap().contains("runtime local"), "{body}");
    api.runtime.state().faults.is_full = true;
    assert_eq!(api.refused("POST", "/v1/sessions", "{}").await, (429, ErrorCode::LimitReached));
    assert_eq!(api.registry.in_use(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_session_is_paused_and_woken_by_request() {
    let api = api();
    let (_, session) = api.call("POST", "/v1/sessions", "{}").await;
    let path = format!("/v1/sessions/{}", session["id"].as_str().unwrap());
    for (change, status) in [("pause", "paused"), ("resume", "running")] {
        let (code, view) = api.call("POST", &format!("{path}/{change}"), "").await;
        assert_eq!((code, &view["status"]), (200, &json!(status)));
    }
    api.runtime.state().faults.pause_unsupported = true;
    assert_eq!(api.refused("POST", &format!("{path}/pause"), "").await, (400, ErrorCode::InvalidRequest));
    let unknown = api.refused("POST", "/v1/sessions/7183cb80-d6c/pause", "").await;
    assert_eq!(unknown, (404, ErrorCode::SessionNotFound));
}

#[tokio::test(start_paused = true)]
async fn a_wrong_method_is_told_which_are_right() {
    let api = api();
    let response = api.send(with_key("PATCH", "/v1/sessions").body(Body::empty()).unwrap()).await;
    assert_eq!(response.status(), 405);
    let allow = response.headers()["allow"].to_str().unwrap();
    assert!(allow.contains("GET") && allow.contains("POST"), "{allow}");
}

#[tokio::test(start_paused = true)]
async fn workspaces_are_listed_and_deleted() {
    let api = api();
    let (_, session) = api.call("POST", "/v1/sessions", r#"{"workspace_id":"w"}"#).await;
    let (_, listed) = api.call("GET", "/v1/workspaces", "").await;
    assert_eq!(listed["workspaces"][0]["sessions"][0], session["id"]);
    assert_eq!(api.refused("DELETE", "/v1/workspaces/w", "").await, (409, ErrorCode::Conflict));
    assert_eq!(api.call("DELETE", "/v1/workspaces/w?force=1", "").await.0, 200);
    assert_eq!(api.runtime.alive(), 0);
    for _ in 0..2 {
        assert_eq!(api.call("PUT", "/v1/workspaces/made", "").await.0, 200, "one that exists stays");
    }
    let (_, listed) = api.call("GET", "/v1/workspaces", "").await;
    assert_eq!(
        (&listed["workspaces"][0]["id"], listed["workspaces"][0]["sessions"].as_array().unwrap().len()),
        (&"made".into(), 0)
    );
    assert_eq!(api.call("DELETE", "/v1/workspaces/made", "").await.0, 200, "nobody holds it");
}

#[tokio::test(start_paused = true)]
async fn a_name_belongs_to_one_session_of_an_owner_until_that_ends() {
    let api = api();
    let alice = api.user("alice", serde_json::json!({})).await;
    let named = r#"{"name":"web"}"#;
    let (status, session) = api.call("POST", "/v1/sessions", named).await;
    assert_eq!((status, &session["name"]), (201, &"web".into()));
    let id = session["id"].as_str().unwrap();
    let (status, refusal) = api.call("POST", "/v1/sessions", named).await;
    assert_eq!((status, &refusal["error_code"]), (409, &"CONFLICT".into()));
    assert!(refusal["message"].as_str().unwrap().contains(id), "{refusal}");
    assert_eq!(api.call_as(&alice, "POST", "/v1/sessions", named).await.0, 201, "each owner has names of its own");
    assert_eq!(api.call("GET", "/v1/sessions?name=web", "").await.1.as_array().unwrap().len(), 2, "an admin sees both");
    assert_eq!(api.call_as(&alice, "GET", "/v1/sessions?name=web", "").await.1.as_array().unwrap().len(), 1);
    assert_eq!(api.call("DELETE", &format!("/v1/sessions/{id}"), "").await.0, 200);
    assert_eq!(api.call("POST", "/v1/sessions", named).await.0, 201, "it is free again");
    for wrong in [r#"{"name":"a b"}"#, r#"{"name":""}"#, r#"{"name":"7183cb80-d6c"}"#] {
        assert_eq!(api.refused("POST", "/v1/sessions", wrong).await, (400, ErrorCode::InvalidRequest), "{wrong}");
    }
}
