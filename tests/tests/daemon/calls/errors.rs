//! A bad request to any route gets a clear error body, and changes nothing. The routes come from the daemon's own document,
//! so a new route is tested automatically.

use bytes::Bytes;
use e2e::daemon::{Answer, Api, Daemon, Session};
use hyper::Method;
use serde_json::{Map, Value, json};
use shared_protocol::ErrorCode::{
    self, ExecNotFound, Forbidden, InvalidRequest, MethodNotAllowed, NotFound, SessionNotFound, TooLarge, Unauthorized,
};

/// One byte more than the largest JSON body.
const OVERSIZE: usize = (16 << 20) + 1;

/// More than the daemon reads of a refused body before it answers.
const TOO_MUCH_TO_DRAIN: usize = 80 << 20;

const METHODS: [Method; 5] = [Method::GET, Method::POST, Method::PUT, Method::DELETE, Method::PATCH];

/// One operation of the daemon's `/openapi.json`.
struct Operation {
    method: Method,
    /// The path, with the names of its parameters in braces.
    template: String,
    needs_key: bool,
    /// The required query parameters.
    query: String,
    /// The schema of the JSON body, if there is one.
    schema: Option<Value>,
    parameters: Vec<Value>,
}

impl Operation {
    /// The path with a value for every parameter.
    fn path(&self, session_id: &str) -> String {
        let filled = self
            .template
            .replace("{session_id}", session_id)
            .replace("{workspace_id}", "known")
            .replace("{exec_id}", "known")
            .replace("{shell}", "main")
            .replace("{image}", "base")
            .replace("{key_name}", "known")
            .replace("{secret_name}", "known")
            .replace("{snapshot_id}", "known")
            .replace("{tool}", "bash")
            .replace("{port}", "3000")
            .replace("{path}", "known.txt");
        assert!(!filled.contains('{'), "a parameter of {} is not known here", self.template);
        format!("{filled}{}", self.query)
    }

    fn is_of_a_session(&self) -> bool {
        self.template.contains("{session_id}")
    }

    fn is_terminal(&self) -> bool {
        self.template.ends_with("/terminal")
    }

    async fn send(&self, api: &Api, path: &str, body: impl Into<Bytes>) -> Answer {
        let api = match self.is_terminal() {
            true => upgrading(api),
            false => api.clone(),
        };
        api.send(self.method.clone(), path, body).await
    }
}

/// A client with the headers of a WebSocket client. Without them a request for a terminal is refused at once.
fn upgrading(api: &Api) -> Api {
    api.with_header("connection", "upgrade")
        .with_header("upgrade", "websocket")
        .with_header("sec-websocket-version", "13")
        .with_header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
}

async fn operations(api: &Api) -> Vec<Operation> {
    let document = api.get("/openapi.json").await.ok();
    let mut found = Vec::new();
    for (template, operations) in document["paths"].as_object().expect("paths") {
        for (method, operation) in operations.as_object().expect("operations") {
            let parameters = operation["parameters"].as_array().cloned().unwrap_or_default();
            let needed: Vec<String> = parameters
                .iter()
                .filter(|parameter| parameter["in"] == "query" && parameter["required"] == true)
                .map(|parameter| format!("{}=known.txt", parameter["name"].as_str().expect("a name")))
                .collect();
            let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
            found.push(Operation {
                method: method.to_uppercase().parse().expect("a method"),
                template: template.clone(),
                needs_key: operation["security"] != json!([]),
                query: if needed.is_empty() { String::new() } else { format!("?{}", needed.join("&")) },
                schema: (!schema.is_null()).then(|| resolved(&document, schema)),
                parameters,
            });
        }
    }
    assert!(found.len() > 30, "only {} operations", found.len());
    found
}

/// The schema that a reference points to.
fn resolved(document: &Value, schema: &Value) -> Value {
    match schema["$ref"].as_str() {
        Some(target) => document.pointer(target.trim_start_matches('#')).expect("a reference leads somewhere").clone(),
        None => schema.clone(),
    }
}

/// The smallest valid value of an object's schema.
fn least(schema: &Value) -> Value {
    let mut body = Map::new();
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        let value = match schema["properties"][name]["type"].as_str() {
            Some("string") => json!("x"),
            Some("array") => json!(["x"]),
            Some("integer") => json!(1),
            _ => json!("INT"),
        };
        body.insert(name.to_owned(), value);
    }
    Value::Object(body)
}

/// Creates a session with a known state, and everything that a refused request could change.
async fn known(daemon: &Daemon) -> Session {
    let session = daemon.create(json!({ "workspace_id": "known" })).await;
    session.put("known.txt", "content").await.ok();
    session.ask(json!({ "cmd": "echo known", "exec_id": "known" })).await.ok();
    session
}

async fn everything(session: &Session) -> [Value; 5] {
    let mut all = [Value::Null, Value::Null, Value::Null, Value::Null, Value::Null];
    let sessions = session.api.get("/v1/sessions").await.ok();
    // The check itself is activity, which changes these.
    all[0] = sessions.as_array().expect("a list").iter().map(|view| json!([view["id"], view["status"]])).collect();
    let paths = ["/shells", "/execs", "/fs/list?path=/workspace&recursive=1"].map(|path| session.path(path));
    for (place, path) in all[1..].iter_mut().zip(&paths) {
        *place = session.api.get(path).await.ok();
    }
    all[4] = session.api.get("/v1/workspaces").await.ok();
    all
}

#[track_caller]
fn expect(answer: &Answer, code: ErrorCode, what: &str) {
    assert_eq!(answer.refused(), code, "{what}: {}", answer.text());
    assert_eq!(answer.header("content-type"), "application/json", "{what}");
}

#[tokio::test]
async fn without_the_key_no_route_does_anything() {
    let daemon = Daemon::start().await;
    let session = known(&daemon).await;
    let before = everything(&session).await;
    for operation in operations(&daemon).await {
        let path = operation.path(&session.id);
        let what = format!("{} {path}", operation.method);
        let body = operation.schema.as_ref().map(least).unwrap_or_default().to_string();
        for key in [None, Some("wrong"), Some("")] {
            let answer = operation.send(&daemon.with_key(key), &path, body.clone()).await;
            match operation.needs_key {
                true => expect(&answer, Unauthorized, &what),
                false => assert_eq!(answer.status, 200, "{what}: {}", answer.text()),
            }
        }
        for scheme in ["Basic", "Token", ""] {
            let key = daemon.key.clone().expect("a key");
            let api = daemon.with_key(None).with_header("authorization", &format!("{scheme} {key}"));
            if operation.needs_key {
                expect(&operation.send(&api, &path, body.clone()).await, Unauthorized, &what);
            }
        }
    }
    expect(&daemon.with_key(None).get("/v1/no-such-route").await, Unauthorized, "an unknown route");
    assert_eq!(everything(&session).await, before);
    daemon.stop().await;
}

#[tokio::test]
async fn a_session_that_nobody_knows_is_not_found_by_any_route() {
    let daemon = Daemon::start().await;
    for operation in operations(&daemon).await.iter().filter(|operation| operation.is_of_a_session()) {
        let path = operation.path("00000000-000");
        let body = operation.schema.as_ref().map(|schema| least(schema).to_string()).unwrap_or_default();
        let answer = operation.send(&daemon, &path, body).await;
        expect(&answer, SessionNotFound, &format!("{} {path}", operation.method));
    }
    daemon.stop().await;
}

#[tokio::test]
async fn an_id_that_is_none_is_refused_by_any_route() {
    let daemon = Daemon::start().await;
    for operation in operations(&daemon).await.iter().filter(|operation| operation.is_of_a_session()) {
        for id in ["..", "%2e%2e", "a%2Fb", "%zz", "a%00b", "-x", &"x".repeat(200), "%FF", "ü"] {
            let (path, _) = (operation.path("SESSION").replace("SESSION", id), ());
            let body = operation.schema.as_ref().map(|schema| least(schema).to_string()).unwrap_or_default();
            let upgrade = "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
                           sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
            let connection = if operation.is_terminal() { upgrade } else { "connection: close\r\n" };
            let request = format!(
                "{} {path} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\n\
                 {connection}content-length: {}\r\n\r\n{body}",
                operation.method,
                daemon.address,
                daemon.key.as_deref().expect("a key"),
                body.len(),
            );
            let answer = daemon.raw(request.as_bytes()).await.unwrap_or_else(|e| panic!("{request}: {e:#}"));
            // hyper itself refuses an invalid request line, without a body.
            assert!([400, 404].contains(&answer.status), "{path}: {} {}", answer.status, answer.text());
            if !answer.body.is_empty() {
                answer.refused();
            }
        }
    }
    daemon.stop().await;
}

#[tokio::test]
async fn a_body_that_is_not_what_the_call_takes_changes_nothing() {
    let daemon = Daemon::start().await;
    let session = known(&daemon).await;
    let before = everything(&session).await;
    for operation in operations(&daemon).await {
        let Some(schema) = &operation.schema else { continue };
        let path = operation.path(&session.id);
        let least = least(schema);
        let mut bodies: Vec<(String, ErrorCode)> =
            ["{", "[]", "\"x\"", "null", "1", "{} {}", "\u{feff}{}", "{\"a\":", "not json", "[[[[[[", "\u{0}"]
                .map(|body| (body.to_owned(), InvalidRequest))
                .to_vec();
        let with = |name: &str, value: Value| {
            let mut body = least.clone();
            body[name] = value;
            (body.to_string(), InvalidRequest)
        };
        bodies.push(with("no_such_field", json!(1)));
        // The arguments of a tool have a schema of their own.
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            // No field accepts this: a string that is in no enum, in a list in a list.
            bodies.push(with(name, json!([["\u{0}"]])));
            let is_number = property.to_string().contains("\"integer\"");
            if is_number {
                for wrong in [json!(-1), json!(1.5), json!("1"), json!(1e300)] {
                    bodies.push(with(name, wrong));
                }
            }
        }
        for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            let mut body = least.clone();
            body.as_object_mut().expect("an object").remove(name);
            bodies.push((body.to_string(), InvalidRequest));
            bodies.push(with(name, Value::Null));
        }
        // Of an MCP client, the headers are checked first, and these are none.
        let oversize = if operation.template == "/mcp" { InvalidRequest } else { TooLarge };
        bodies.push((format!("{{\"{}\":1}}", "x".repeat(OVERSIZE)), oversize));
        for (body, code) in bodies {
            let shown: String = body.chars().take(100).collect();
            expect(&daemon.send(operation.method.clone(), &path, body).await, code, &format!("{path} {shown}"));
        }
        let as_form = daemon.with_header("content-type", "application/x-www-form-urlencoded");
        let answer = as_form.send(operation.method.clone(), &path, least.to_string()).await;
        expect(&answer, InvalidRequest, &format!("{path} as a form"));
    }
    assert_eq!(everything(&session).await, before);
    assert_eq!(session.sh("echo well").await, "well\n");
    daemon.stop().await;
}

#[tokio::test]
async fn a_client_that_sends_everything_before_it_reads_is_told_that_it_is_too_much() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let key = daemon.key.as_deref().expect("a key");
    let sent = async |path: &str, framing: &str, body: &[u8]| {
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {key}\r\ncontent-type: application/json\r\n{framing}\r\n\r\n",
            daemon.address
        );
        daemon.raw(&[head.as_bytes(), body].concat()).await.unwrap_or_else(|e| panic!("{path}, {framing}: {e:#}"))
    };
    let body = vec![b' '; TOO_MUCH_TO_DRAIN];
    for path in ["/v1/sessions".to_owned(), session.path("/exec"), session.path("/run"), session.path("/fs/write")] {
        let answer = sent(&path, &format!("content-length: {TOO_MUCH_TO_DRAIN}"), &body).await;
        assert_eq!(answer.refused(), TooLarge, "{path}");
        assert!(answer.text().contains("/stdin"), "{path}: it says what to do instead: {}", answer.text());
    }
    let chunked = [format!("{TOO_MUCH_TO_DRAIN:x}\r\n").as_bytes(), &body, b"\r\n0\r\n\r\n"].concat();
    let answer = sent(&session.path("/run"), "transfer-encoding: chunked", &chunked).await;
    assert_eq!(answer.refused(), TooLarge, "in chunks");
    let stranger = daemon.with_key(None);
    let head = format!(
        "POST /v1/sessions HTTP/1.1\r\nhost: {}\r\ncontent-length: {TOO_MUCH_TO_DRAIN}\r\n\r\n",
        daemon.address
    );
    let answer = stranger.raw(&[head.as_bytes(), &body].concat()).await.unwrap();
    assert_eq!(answer.refused(), Unauthorized);
    daemon.stop().await;
}

#[tokio::test]
async fn the_largest_body_reaches_the_program() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let (before, after) = (r#"{"argv":["wc","-c"],"stdin":""#, "\"}");
    let stdin = "x".repeat(OVERSIZE - 1 - before.len() - after.len());
    let answer = daemon.send(Method::POST, &session.path("/run"), format!("{before}{stdin}{after}")).await;
    assert_eq!(answer.ok()["stdout"], format!("{}\n", stdin.len()));
    daemon.stop().await;
}

#[tokio::test]
async fn a_parameter_that_is_wrong_is_refused() {
    let daemon = Daemon::start().await;
    let session = known(&daemon).await;
    let before = everything(&session).await;
    for operation in operations(&daemon).await.iter().filter(|operation| operation.needs_key) {
        let path = operation.path(&session.id);
        let body = operation.schema.as_ref().map(|schema| least(schema).to_string()).unwrap_or_default();
        let joint = if operation.query.is_empty() { '?' } else { '&' };
        // Calls without query parameters are not tested here; a call with parameters must refuse unknown ones.
        let queries = operation.parameters.iter().filter(|parameter| parameter["in"] == "query");
        let mut wrong: Vec<String> = Vec::new();
        for parameter in queries {
            let name = parameter["name"].as_str().expect("a name");
            wrong.push(format!("{path}{joint}no_such_parameter=1"));
            let bare = path.split('?').next().expect("a path");
            let others: Vec<&str> = operation
                .query
                .trim_start_matches('?')
                .split('&')
                .filter(|q| !q.is_empty() && !q.starts_with(name))
                .collect();
            let with = |value: &str| format!("{bare}?{}", [others.clone(), vec![value]].concat().join("&"));
            wrong.push(with(&format!("{name}=%zz")));
            wrong.push(with(&format!("{name}=%")));
            wrong.push(with(&format!("{name}=a%00b")));
            match parameter["schema"]["type"].as_str() {
                Some("integer") => wrong.extend(["-1", "1.5", "x", ""].map(|value| with(&format!("{name}={value}")))),
                _ if parameter["schema"]["enum"].is_array() => wrong.push(with(&format!("{name}=nonsense"))),
                _ => {}
            }
            if parameter["required"] == true {
                wrong.push(with(""));
                wrong.push(with(&format!("{name}=")));
            }
        }
        for path in wrong {
            let answer = operation.send(&daemon, &path, body.clone()).await;
            assert_eq!(answer.status, 400, "{} {path}: {} {}", operation.method, answer.status, answer.text());
            answer.refused();
        }
    }
    assert_eq!(everything(&session).await, before);
    daemon.stop().await;
}

#[tokio::test]
async fn a_method_that_a_route_has_not_and_a_route_that_is_none_are_told_apart() {
    let daemon = Daemon::start().await;
    let session = known(&daemon).await;
    let before = everything(&session).await;
    let operations = operations(&daemon).await;
    // Whatever is asked of a server in the sandbox is for that server.
    let is_passed_on = |operation: &&Operation| operation.template.contains("/ports/{port}/");
    for operation in operations.iter().filter(|operation| !is_passed_on(operation)) {
        let has = |method: &Method| {
            operations.iter().any(|other| other.template == operation.template && other.method == *method)
        };
        let path = operation.path(&session.id);
        for method in METHODS.iter().filter(|method| !has(method)) {
            let answer = daemon.send(method.clone(), &path, "{}").await;
            expect(&answer, MethodNotAllowed, &format!("{method} {path}"));
            assert!(!answer.header("allow").is_empty(), "{method} {path} does not say what is allowed");
        }
        let answer = daemon.send("BREW".parse().expect("a method"), &path, "").await;
        expect(&answer, MethodNotAllowed, &format!("BREW {path}"));
    }
    for path in ["/", "/v1", "/v1/", "/v2/sessions", "/v1/sessions/", "/v1/session", "/healthz/x", "/v1/../v1/sessions"]
    {
        expect(&daemon.get(path).await, NotFound, path);
    }
    for rest in ["/nonsense", "/exec/nonsense", "/shells/main/nonsense", "/fs/nonsense"] {
        expect(&daemon.post(&session.path(rest), json!({})).await, NotFound, rest);
    }
    assert_eq!(everything(&session).await, before);
    daemon.stop().await;
}

#[tokio::test]
async fn a_page_of_another_site_is_kept_out_even_with_the_key() {
    let daemon = Daemon::start().await;
    let session = known(&daemon).await;
    let before = everything(&session).await;
    let port = daemon.address.port();
    for operation in operations(&daemon).await {
        let path = operation.path(&session.id);
        let body = operation.schema.as_ref().map(|schema| least(schema).to_string()).unwrap_or_default();
        let hosts =
            ["evil.example".to_owned(), format!("evil.example:{port}"), format!("127.0.0.1.evil.example:{port}")];
        for host in &hosts {
            let answer = operation.send(&daemon.with_header("host", host), &path, body.clone()).await;
            expect(&answer, Forbidden, &format!("{} {path} of host {host}", operation.method));
        }
        for origin in ["http://evil.example", "null", "http://127.0.0.1:1", "file://"] {
            let answer = operation.send(&daemon.with_header("origin", origin), &path, body.clone()).await;
            expect(&answer, Forbidden, &format!("{} {path} from {origin}", operation.method));
        }
    }
    assert_eq!(everything(&session).await, before);
    let same = daemon.with_header("origin", &format!("http://{}", daemon.address));
    assert_eq!(same.get("/v1/sessions").await.status, 200);
    daemon.stop().await;
}

#[tokio::test]
async fn what_is_no_http_is_refused_and_the_daemon_goes_on() {
    let daemon = Daemon::start().await;
    let authorization = format!("authorization: Bearer {}", daemon.key.as_deref().expect("a key"));
    let host = format!("host: {}", daemon.address);
    let long = "x".repeat(1 << 20);
    let requests = [
        "nonsense\r\n\r\n".to_owned(),
        format!("GET /v1/sessions HTTP/1.1\r\n{authorization}\r\n\r\n"),
        format!("GET /v1/sessions HTTP/1.1\r\n{host}\r\n{host}\r\n{authorization}\r\nconnection: close\r\n\r\n"),
        format!("GET /{long} HTTP/1.1\r\n{host}\r\n{authorization}\r\n\r\n"),
        format!("GET / HTTP/1.1\r\n{host}\r\nx: {long}\r\n\r\n"),
        format!("POST /v1/sessions HTTP/1.1\r\n{host}\r\n{authorization}\r\ncontent-length: x\r\n\r\n"),
        format!(
            "POST /v1/sessions HTTP/1.1\r\n{host}\r\n{authorization}\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n"
        ),
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(),
    ];
    for request in requests {
        let shown: String = request.chars().take(120).collect();
        // A connection that is closed without an answer is also a correct reaction to nonsense.
        if let Ok(answer) = daemon.raw(request.as_bytes()).await {
            assert!((400..500).contains(&answer.status), "{shown}: {} {}", answer.status, answer.text());
        }
    }
    assert_eq!(daemon.get("/v1/sessions").await.ok(), json!([]));
    daemon.stop().await;
}

/// What is long in a request is refused where no kernel could take it, and otherwise does not spoil later answers.
#[tokio::test]
async fn no_exec_can_make_the_list_of_execs_unreadable() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let run = async |request: Value| daemon.post(&session.path("/run"), request).await;
    let long = |bytes: usize| "x".repeat(bytes);
    for bad in [
        json!({ "argv": [long(200 << 10)] }),
        json!({ "argv": ["true", long(200 << 10)] }),
        json!({ "argv": ["true"], "cwd": long(70 << 10) }),
    ] {
        let error = run(bad).await.error();
        assert_eq!(error.error_code, InvalidRequest);
        assert!(error.message.len() < 200, "{error}");
    }
    assert_eq!(session.ask(json!({ "cmd": "true", "cwd": long(70 << 10) })).await.refused(), InvalidRequest);
    let shell = json!({ "name": "long", "cwd": long(70 << 10) });
    assert_eq!(daemon.post(&session.path("/shells"), shell).await.refused(), InvalidRequest);
    // The longest program and directory that could exist.
    let missing = run(json!({ "argv": [long(4096)], "cwd": "/" })).await.ok();
    assert_eq!(missing["kind"], "never_ran", "{missing}");
    assert_eq!(run(json!({ "argv": ["true"], "cwd": format!("/{}", long(4095)) })).await.ok()["kind"], "never_ran");
    // A directory whose name is as long in JSON as can be.
    let cmd = r"name=$(printf '\001%.0s' {1..255}); for _ in {1..15}; do mkdir $name && cd $name || exit; done";
    assert_eq!(session.exec(cmd).await["exit_code"], 0);
    for number in 0..80 {
        let exec = session.ask(json!({ "cmd": "true", "exec_id": format!("long{number}") })).await.ok();
        assert_eq!(exec["exit_code"], 0);
    }
    let (mut path, mut known) = (session.path("/execs"), Vec::new());
    let pages = loop {
        let answer = daemon.get(&path).await;
        assert!(answer.body.len() < 2 << 20, "{}", answer.body.len());
        let ids =
            answer.ok().as_array().expect("a list").iter().map(|exec| exec["exec_id"].clone()).collect::<Vec<_>>();
        assert!(!ids.is_empty());
        known.push(ids);
        let Some(link) = answer.headers.get("link").map(|link| link.to_str().expect("text").to_owned()) else {
            break known.len();
        };
        path = link.trim_start_matches('<').split_once(">; rel=\"next\"").expect("a link").0.to_owned();
    };
    assert!(pages > 1, "a page of {} execs", known[0].len());
    let listed: Vec<Value> = known.concat();
    let expected: Vec<Value> = (0..80).map(|number| json!(format!("long{number}"))).collect();
    assert_eq!(listed[listed.len() - 80..], expected);
    let two = daemon.get(&session.path("/execs?after=long10&limit=2")).await.ok();
    assert_eq!((&two[0]["exec_id"], &two[1]["exec_id"], two.get(2)), (&json!("long11"), &json!("long12"), None));
    for bad in ["limit=0", "limit=1001", "after=.", "before=long1"] {
        assert_eq!(daemon.get(&session.path(&format!("/execs?{bad}"))).await.refused(), InvalidRequest, "{bad}");
    }
    assert_eq!(daemon.get(&session.path("/execs?after=nobody")).await.refused(), ExecNotFound);
    daemon.get(&session.path("/shells")).await.ok();
    daemon.stop().await;
}
