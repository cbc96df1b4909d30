//! Tests of `/mcp` as a client sees it: over a fake runtime where no command runs, and over the real runner where one does.

use axum::body::Body;
use http_body_util::BodyExt as _;
use hyper::Method;
use hyper::header::HeaderValue;
use serde_json::{Value, json};

use super::live::{Coming, Live};
use super::routes_test::{Api, api, api_with, with_secret};

const FIRST: &str = "the-right-key";
const ACCEPT: &str = "application/json, text/event-stream";
const VERSION: &str = "2025-11-25";

fn initialize() -> Value {
    json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": VERSION, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}})
}

fn initialized() -> Value {
    json!({"jsonrpc": "2.0", "method": "notifications/initialized"})
}

fn request(id: u64, method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

fn call(id: u64, tool: &str, arguments: Value) -> Value {
    request(id, "tools/call", json!({"name": tool, "arguments": arguments}))
}

/// The messages in server-sent events, each with its id.
fn messages(text: &str) -> Vec<(String, Value)> {
    let field = |block: &str, name: &str| {
        block.lines().find_map(|line| line.strip_prefix(name)).map(|value| value.trim().to_owned())
    };
    let parsed = |block: &str| {
        let data = field(block, "data:").filter(|data| !data.is_empty())?;
        Some((field(block, "id:").unwrap_or_default(), serde_json::from_str(&data).unwrap()))
    };
    text.split("\n\n").filter_map(parsed).collect()
}

/// An MCP client of the routes over the fake runtime.
struct Client<'a> {
    api: &'a Api,
    secret: &'a str,
    path: String,
    session: Option<HeaderValue>,
}

impl<'a> Client<'a> {
    fn new(api: &'a Api, secret: &'a str, path: &str) -> Self {
        Self { api, secret, path: path.to_owned(), session: None }
    }

    async fn open(api: &'a Api, secret: &'a str, path: &str) -> Self {
        let mut client = Self::new(api, secret, path);
        let (status, text) = client.post(&initialize()).await;
        assert_eq!(status, 200, "{text}");
        assert_eq!(client.post(&initialized()).await.0, 202);
        client
    }

    async fn send(&self, method: &str, body: &str) -> hyper::Response<Body> {
        let mut request = with_secret(self.secret, method, &self.path)
            .header("content-type", "application/json")
            .header("accept", ACCEPT)
            .header("mcp-protocol-version", VERSION);
        if let Some(session) = &self.session {
            request = request.header("mcp-session-id", session);
        }
        self.api.send(request.body(Body::from(body.to_owned())).unwrap()).await
    }

    async fn post(&mut self, message: &Value) -> (u16, String) {
        let response = self.send("POST", &message.to_string()).await;
        let status = response.status().as_u16();
        self.session = response.headers().get("mcp-session-id").cloned().or(self.session.take());
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(bytes.to_vec()).unwrap())
    }

    /// The answer to a request.
    async fn ask(&mut self, message: Value) -> Value {
        let (status, text) = self.post(&message).await;
        assert_eq!(status, 200, "{text}");
        messages(&text).pop().unwrap_or_else(|| panic!("no answer in {text:?}")).1
    }

    async fn delete(&self) -> u16 {
        self.send("DELETE", "").await.status().as_u16()
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_learns_what_there_is_and_nothing_is_started_for_it() {
    let api = api();
    let mut client = Client::new(&api, FIRST, "/mcp");
    let hello = client.ask(initialize()).await;
    assert_eq!(
        (&hello["result"]["protocolVersion"], &hello["result"]["serverInfo"]["name"]),
        (&json!(VERSION), &json!("cove"))
    );
    assert!(hello["result"]["instructions"].as_str().unwrap().contains("/workspace"), "{hello}");
    assert_eq!(client.post(&initialized()).await.0, 202);
    let tools = client.ask(request(1, "tools/list", json!({}))).await;
    let bash = tools["result"]["tools"].as_array().unwrap().iter().find(|tool| tool["name"] == "bash").unwrap().clone();
    assert_eq!((&bash["inputSchema"]["type"], &bash["annotations"]["readOnlyHint"]), (&json!("object"), &json!(false)));
    assert!(bash["title"].is_string() && bash["outputSchema"].is_object(), "{bash}");
    let prompts = client.ask(request(2, "prompts/list", json!({}))).await;
    assert_eq!(prompts["result"]["prompts"][0]["name"], "fix-failing-test");
    let prompt =
        client.ask(request(3, "prompts/get", json!({"name": "run-in-sandbox", "arguments": {"task": "count"}}))).await;
    assert!(prompt["result"]["messages"][0]["content"]["text"].as_str().unwrap().contains("count"), "{prompt}");
    let templates = client.ask(request(4, "resources/templates/list", json!({}))).await;
    assert_eq!(templates["result"]["resourceTemplates"][0]["uriTemplate"], "cove://files/{+path}");
    assert_eq!(client.ask(request(5, "resources/list", json!({}))).await["result"]["resources"], json!([]));
    assert_eq!(client.ask(request(6, "ping", json!({}))).await["result"], json!({}));
    assert_eq!(client.ask(request(7, "logging/setLevel", json!({"level": "debug"}))).await["result"], json!({}));
    assert_eq!(client.ask(request(8, "nope", json!({}))).await["error"]["code"], -32601);
    assert_eq!(api.runtime.state().creates, 0);
}

#[tokio::test(start_paused = true)]
async fn bad_arguments_are_for_the_model_to_correct_and_an_unknown_tool_is_an_error_of_the_protocol() {
    let api = api();
    let mut client = Client::open(&api, FIRST, "/mcp").await;
    let wrong = client.ask(call(1, "bash", json!({"cmd": "ls"}))).await;
    assert_eq!(wrong["result"]["isError"], true, "{wrong}");
    assert!(wrong["result"]["content"][0]["text"].as_str().unwrap().contains("command"), "{wrong}");
    let unknown = client.ask(call(2, "bsh", json!({}))).await;
    assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
    assert!(unknown["error"]["message"].as_str().unwrap().contains("bash"), "{unknown}");
    assert_eq!(api.runtime.state().creates, 0, "a call that cannot be made starts no sandbox");
}

#[tokio::test(start_paused = true)]
async fn the_first_call_makes_a_sandbox_and_the_end_of_the_mcp_session_destroys_it() {
    let api = api();
    let mut client = Client::open(&api, FIRST, "/mcp").await;
    let reply = client.ask(call(1, "expose_port", json!({"port": 3000}))).await;
    assert_eq!(reply["result"]["isError"], false, "{reply}");
    client.ask(call(2, "expose_port", json!({"port": 3000}))).await;
    assert_eq!(api.runtime.state().creates, 1, "one sandbox for all calls");
    let (_, listed) = api.call("GET", "/v1/sessions?label=mcp%3D1", "").await;
    assert_eq!(listed.as_array().unwrap().len(), 1, "{listed}");
    assert_eq!(client.delete().await, 204);
    assert_eq!(api.runtime.alive(), 0);
    let (status, _) = client.post(&call(3, "expose_port", json!({"port": 3000}))).await;
    assert_eq!(status, 404, "the MCP session is over");
}

#[tokio::test(start_paused = true)]
async fn a_session_that_was_there_before_stays() {
    let api = api();
    let (_, session) = api.call("POST", "/v1/sessions", r#"{"name":"mine"}"#).await;
    for reference in [session["id"].as_str().unwrap(), "mine"] {
        let mut client = Client::open(&api, FIRST, &format!("/mcp?session={reference}")).await;
        assert_eq!(client.ask(call(1, "expose_port", json!({"port": 3000}))).await["result"]["isError"], false);
        assert_eq!(client.delete().await, 204);
    }
    assert_eq!((api.runtime.alive(), api.runtime.state().creates), (1, 1));
    let mut client = Client::new(&api, FIRST, "/mcp?session=nobody");
    assert_eq!(client.post(&initialize()).await.0, 404);
    assert_eq!(client.session, None);
}

#[tokio::test(start_paused = true)]
async fn a_name_finds_the_sandbox_again_when_the_mcp_session_was_lost() {
    // The sandbox itself does not expire here.
    let api = api_with(|config| config.sessions.default_ttl_seconds = 86_400);
    let path = "/mcp?name=desk";
    let mut first = Client::open(&api, FIRST, path).await;
    first.ask(call(1, "expose_port", json!({"port": 3000}))).await;
    tokio::time::advance(crate::mcp::IDLE_LIMIT).await;
    api.mcp.close_idle().await;
    assert_eq!(first.post(&call(2, "expose_port", json!({"port": 3000}))).await.0, 404);
    let mut again = Client::open(&api, FIRST, path).await;
    again.ask(call(1, "expose_port", json!({"port": 3000}))).await;
    assert_eq!((api.runtime.alive(), api.runtime.state().creates), (1, 1), "it is the same sandbox");
    assert_eq!(again.delete().await, 204);
    assert_eq!(api.runtime.alive(), 0, "its client said that it is over");
    api.call("POST", "/v1/sessions", r#"{"name":"other"}"#).await;
    let mut client = Client::open(&api, FIRST, "/mcp?name=other").await;
    let refused = client.ask(call(1, "expose_port", json!({"port": 3000}))).await;
    assert_eq!(refused["result"]["isError"], true, "a session that was not made for MCP is not taken: {refused}");
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_that_expired_is_told_and_the_next_call_makes_another() {
    let api = api_with(|config| config.sessions.default_ttl_seconds = 60);
    let mut client = Client::open(&api, FIRST, "/mcp").await;
    client.ask(call(1, "expose_port", json!({"port": 3000}))).await;
    // The clock of this test is its own: this takes no time.
    tokio::time::sleep(std::time::Duration::from_secs(120)).await;
    let told = client.ask(call(2, "bash", json!({"command": "true"}))).await;
    assert_eq!(told["result"]["isError"], true, "{told}");
    assert!(told["result"]["content"][0]["text"].as_str().unwrap().contains("new sandbox"), "{told}");
    assert_eq!(client.ask(call(3, "expose_port", json!({"port": 3000}))).await["result"]["isError"], false);
    assert_eq!(api.runtime.state().creates, 2);
}

#[tokio::test(start_paused = true)]
async fn an_mcp_session_that_nobody_uses_ends_with_its_sandbox() {
    let api = api();
    let mut client = Client::open(&api, FIRST, "/mcp").await;
    client.ask(call(1, "expose_port", json!({"port": 3000}))).await;
    tokio::time::advance(crate::mcp::IDLE_LIMIT / 2).await;
    api.mcp.close_idle().await;
    assert_eq!(api.runtime.alive(), 1);
    tokio::time::advance(crate::mcp::IDLE_LIMIT / 2).await;
    api.mcp.close_idle().await;
    assert_eq!(api.runtime.alive(), 0);
    assert_eq!(client.post(&call(2, "expose_port", json!({"port": 3000}))).await.0, 404);
}

#[tokio::test(start_paused = true)]
async fn the_daemons_stop_ends_streams_and_sandboxes_without_a_name() {
    let api = api();
    let mut client = Client::open(&api, FIRST, "/mcp").await;
    client.ask(call(1, "expose_port", json!({"port": 3000}))).await;
    let stream = client.send("GET", "").await;
    assert_eq!(stream.status(), 200);
    api.stop.send_replace(true);
    // It would not end by itself.
    stream.into_body().collect().await.unwrap();
    api.mcp.close().await;
    assert_eq!(api.runtime.alive(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_mcp_session_of_another_key_does_not_exist() {
    let api = api();
    let (alice, bob) = (api.user("alice", json!({})).await, api.user("bob", json!({})).await);
    let mut client = Client::open(&api, &alice, "/mcp").await;
    client.ask(call(1, "expose_port", json!({"port": 3000}))).await;
    for thief in [bob.as_str(), FIRST] {
        let mut other = Client { api: &api, secret: thief, path: "/mcp".into(), session: client.session.clone() };
        assert_eq!(other.post(&call(2, "expose_port", json!({"port": 3000}))).await.0, 404);
        assert_eq!(other.send("GET", "").await.status(), 404);
        assert_eq!(other.delete().await, 404);
    }
    assert_eq!(
        client.ask(call(3, "expose_port", json!({"port": 3000}))).await["result"]["isError"],
        false,
        "it is as it was"
    );
    // Nor can it be reached by a session of somebody else.
    let (_, session) = api.call_as(&alice, "POST", "/v1/sessions", "{}").await;
    let path = format!("/mcp?session={}", session["id"].as_str().unwrap());
    assert_eq!(Client::new(&api, &bob, &path).post(&initialize()).await.0, 404);
}

#[tokio::test(start_paused = true)]
async fn a_page_of_another_origin_and_a_client_without_a_key_are_refused() {
    let api = api();
    for (name, value, status) in [
        ("origin", "https://evil.example", 403),
        ("origin", "https://app.example", 200),
        ("host", "evil.example", 403),
        ("authorization", "Bearer wrong", 401),
        ("x-nothing", "", 200),
    ] {
        let mut request = with_secret(FIRST, "POST", "/mcp")
            .header("content-type", "application/json")
            .header("accept", ACCEPT)
            .body(Body::from(initialize().to_string()))
            .unwrap();
        request.headers_mut().insert(name, HeaderValue::from_static(value));
        assert_eq!(api.send(request).await.status(), status, "{name}: {value}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_opens_so_many_mcp_sessions_and_an_end_makes_room() {
    let api = api();
    let alice = api.user("alice", json!({})).await;
    let mut open = Vec::new();
    for _ in 0..crate::mcp::MAX_SESSIONS_PER_CALLER {
        open.push(Client::open(&api, &alice, "/mcp").await);
    }
    let mut more = Client::new(&api, &alice, "/mcp");
    let (status, text) = more.post(&initialize()).await;
    assert_eq!(status, 429, "{text}");
    assert!(text.contains("LIMIT_REACHED") && more.session.is_none(), "{text}");
    Client::open(&api, FIRST, "/mcp").await;
    assert_eq!(open[0].delete().await, 204);
    assert_eq!(more.post(&initialize()).await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn what_is_no_message_is_refused_in_the_shape_of_all_errors() {
    let api = api();
    for (method, accept, body, status) in [
        ("POST", ACCEPT, "{", 400),
        ("POST", "text/html", "{}", 400),
        ("GET", ACCEPT, "", 400),
        ("DELETE", ACCEPT, "", 400),
    ] {
        let request = with_secret(FIRST, method, "/mcp")
            .header("content-type", "application/json")
            .header("accept", accept)
            .body(Body::from(body))
            .unwrap();
        let response = api.send(request).await;
        assert_eq!(response.status(), status, "{method} {body}");
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        let error: Value = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(error["error_code"], "INVALID_REQUEST", "{error}");
    }
}

/// The protocol since 2026-07-28 has no sessions: a request says all by itself.
#[tokio::test(start_paused = true)]
async fn a_client_without_mcp_sessions_needs_a_session_that_exists() {
    let api = api();
    let (_, session) = api.call("POST", "/v1/sessions", "{}").await;
    let ask = async |path: &str| {
        let version = "2026-07-28";
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": version,
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        });
        let message =
            request(1, "tools/call", json!({"name": "expose_port", "arguments": {"port": 3000}, "_meta": meta}));
        let request = with_secret(FIRST, "POST", path)
            .header("content-type", "application/json")
            .header("accept", ACCEPT)
            .header("mcp-protocol-version", version)
            .header("mcp-method", "tools/call")
            .header("mcp-name", "expose_port")
            .body(Body::from(message.to_string()))
            .unwrap();
        let bytes = api.send(request).await.into_body().collect().await.unwrap().to_bytes();
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        serde_json::from_str(&text)
            .ok()
            .or_else(|| messages(&text).pop().map(|(_, message)| message))
            .unwrap_or_default()
    };
    let served: Value = ask(&format!("/mcp?session={}", session["id"].as_str().unwrap())).await;
    assert_eq!(served["result"]["isError"], false, "{served}");
    let refused: Value = ask("/mcp").await;
    assert!(refused["error"]["message"].as_str().unwrap().to_lowercase().contains("version"), "{refused}");
    assert_eq!(api.runtime.state().creates, 1);
}

/// An MCP client of the routes on a real port, in a session whose sandbox is the real runner.
struct LiveClient<'a> {
    live: &'a Live,
    path: String,
    session: String,
}

impl<'a> LiveClient<'a> {
    async fn open(live: &'a Live) -> Self {
        let path = format!("/mcp?session={}", live.session.id());
        let mut client = Self { live, path, session: String::new() };
        let answer = client.send(Method::POST, &[], initialize().to_string()).await;
        client.session = answer.headers["mcp-session-id"].to_str().unwrap().to_owned();
        drop(answer);
        assert_eq!(client.send(Method::POST, &[], initialized().to_string()).await.status, 202);
        client
    }

    async fn send(&self, method: Method, headers: &[(&str, &str)], body: String) -> Coming {
        let mut all = vec![("content-type", "application/json"), ("accept", ACCEPT)];
        if !self.session.is_empty() {
            all.extend([("mcp-session-id", self.session.as_str()), ("mcp-protocol-version", VERSION)]);
        }
        all.extend(headers);
        self.live.send_to(method, &self.path, &all, body).await
    }

    async fn post(&self, message: &Value) -> Coming {
        let answer = self.send(Method::POST, &[], message.to_string()).await;
        assert!(answer.status.is_success(), "{}", answer.status);
        answer
    }

    /// All messages that come for a request.
    async fn ask(&self, message: Value) -> Vec<Value> {
        let bytes = self.post(&message).await.bytes().await;
        messages(std::str::from_utf8(&bytes).unwrap()).into_iter().map(|(_, message)| message).collect()
    }
}

/// What a command printed: the text of its answer without the last line, which tells how it ended.
fn printed(answer: &Value) -> &str {
    let text = answer["result"]["content"][0]["text"].as_str().unwrap_or_default();
    text.rfind("[exit code").map_or(text, |end| &text[..end])
}

/// Reads a stream until a condition holds for what has come.
async fn read_until(stream: &mut Coming, holds: impl Fn(&str) -> bool) -> String {
    let mut text = String::new();
    while !holds(&text) {
        let piece = stream.piece().await;
        assert!(!piece.is_empty(), "the stream ended: {text}");
        text.push_str(std::str::from_utf8(&piece).unwrap());
    }
    text
}

#[tokio::test]
async fn a_command_runs_in_the_shell_and_its_result_has_a_structure() {
    let live = Live::start().await;
    let client = LiveClient::open(&live).await;
    client.ask(call(1, "bash", json!({"command": "cd /tmp && X=1"}))).await;
    let reply = client.ask(call(2, "bash", json!({"command": "echo $X in $PWD"}))).await.pop().unwrap();
    assert_eq!(printed(&reply), "1 in /tmp\n", "{reply}");
    assert!(reply["result"]["content"][0]["text"].as_str().unwrap().contains("exit code 0, in /tmp"), "{reply}");
    let structured = &reply["result"]["structuredContent"];
    assert_eq!((&structured["exit_code"], &structured["cwd"]), (&json!(0), &json!("/tmp")));
    let failed = client.ask(call(3, "bash", json!({"command": "exit 3"}))).await.pop().unwrap();
    assert_eq!(
        (&failed["result"]["isError"], &failed["result"]["structuredContent"]["exit_code"]),
        (&json!(true), &json!(3))
    );
    let exec_id = structured["exec_id"].as_str().unwrap();
    let read = request(4, "resources/read", json!({"uri": format!("cove://execs/{exec_id}")}));
    let output = client.ask(read).await.pop().unwrap();
    assert_eq!(output["result"]["contents"][0]["text"], "1 in /tmp\n", "{output}");
}

#[tokio::test]
async fn files_of_the_workspace_are_resources() {
    let live = Live::start().await;
    std::fs::write(live.workspace.join("a b.txt"), "text").unwrap();
    std::fs::write(live.workspace.join("raw"), [0xff, 0]).unwrap();
    std::fs::write(live.workspace.join("huge"), vec![b'x'; (1 << 20) + 1]).unwrap();
    let client = LiveClient::open(&live).await;
    let listed = client.ask(request(1, "resources/list", json!({}))).await.pop().unwrap();
    let uris: Vec<&str> =
        listed["result"]["resources"].as_array().unwrap().iter().filter_map(|r| r["uri"].as_str()).collect();
    assert_eq!(uris, ["cove://files/a%20b.txt", "cove://files/huge", "cove://files/raw"]);
    let read = async |uri: &str| client.ask(request(2, "resources/read", json!({"uri": uri}))).await.pop().unwrap();
    assert_eq!(read("cove://files/a%20b.txt").await["result"]["contents"][0]["text"], "text");
    assert_eq!(read("cove://files/raw").await["result"]["contents"][0]["blob"], "/wA=");
    assert!(read("cove://files/huge").await["error"]["message"].as_str().unwrap().contains("1 MiB"));
    assert_eq!(read("cove://files/none").await["error"]["code"], -32002);
    assert_eq!(read("cove://execs/none").await["error"]["code"], -32002);
    assert_eq!(read("file:///etc/hosts").await["error"]["code"], -32602);
}

#[tokio::test]
async fn progress_comes_before_the_result_for_a_client_that_asks_for_it() {
    let live = Live::start().await;
    let client = LiveClient::open(&live).await;
    let mut message = call(7, "bash", json!({"command": "echo begun; read -t 30 < gate; echo over"}));
    std::process::Command::new("mkfifo").arg(live.workspace.join("gate")).status().unwrap();
    message["params"]["_meta"] = json!({"progressToken": "p1"});
    let mut stream = client.post(&message).await;
    let text = read_until(&mut stream, |text| text.contains("notifications/progress")).await;
    let progress = messages(&text).pop().unwrap().1;
    assert_eq!((&progress["params"]["progressToken"], &progress["params"]["message"]), (&json!("p1"), &json!("begun")));
    // The command goes on when somebody writes to the gate.
    let gate = live.workspace.join("gate");
    tokio::task::spawn_blocking(move || std::fs::write(gate, "\n").unwrap()).await.unwrap();
    let rest = stream.bytes().await;
    let result = messages(std::str::from_utf8(&rest).unwrap()).pop().unwrap().1;
    assert_eq!(printed(&result), "begun\nover\n", "{result}");
    // The control: without a token there is the result alone.
    let quiet = client.ask(call(8, "bash", json!({"command": "echo a"}))).await;
    assert_eq!((quiet.len(), &quiet[0]["id"]), (1, &json!(8)));
}

#[tokio::test]
async fn a_call_that_is_cancelled_interrupts_its_command() {
    let live = Live::start().await;
    let client = LiveClient::open(&live).await;
    let mut message = call(5, "bash", json!({"command": "echo begun; sleep 60 && touch survived"}));
    message["params"]["_meta"] = json!({"progressToken": 1});
    let mut stream = client.post(&message).await;
    read_until(&mut stream, |text| text.contains("begun")).await;
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}});
    assert_eq!(client.post(&cancel).await.status, 202);
    // The next command waits for the shell, and what follows the minute was never reached.
    let next =
        client.ask(call(6, "bash", json!({"command": "test ! -e survived && echo interrupted"}))).await.pop().unwrap();
    assert_eq!(printed(&next), "interrupted\n", "{next}");
    let rest = stream.bytes().await;
    assert_eq!(messages(std::str::from_utf8(&rest).unwrap()), [], "a cancelled request has no answer");
}

#[tokio::test]
async fn a_client_that_was_cut_off_gets_the_result_that_it_missed() {
    let live = Live::start().await;
    let client = LiveClient::open(&live).await;
    let mut message = call(9, "bash", json!({"command": "echo begun; read -t 30 < gate; echo over > done; echo end"}));
    std::process::Command::new("mkfifo").arg(live.workspace.join("gate")).status().unwrap();
    message["params"]["_meta"] = json!({"progressToken": 9});
    let mut stream = client.post(&message).await;
    let text = read_until(&mut stream, |text| text.contains("begun")).await;
    let last = messages(&text).pop().unwrap().0;
    assert!(!last.is_empty());
    drop(stream);
    let gate = live.workspace.join("gate");
    tokio::task::spawn_blocking(move || std::fs::write(gate, "\n").unwrap()).await.unwrap();
    // The next command runs when the first is over, so its result was made while nobody listened.
    client.ask(call(10, "bash", json!({"command": "cat done"}))).await;
    let mut again = client.send(Method::GET, &[("last-event-id", &last)], String::new()).await;
    let text = again.bytes().await;
    let answer = messages(std::str::from_utf8(&text).unwrap()).pop().unwrap().1;
    assert_eq!((&answer["id"], printed(&answer)), (&json!(9), "begun\nend\n"), "{answer}");
}
