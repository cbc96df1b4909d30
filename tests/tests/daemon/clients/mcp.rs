//! The Model Context Protocol as clients speak it: `cove mcp` over standard input and output, and `/mcp` over HTTP.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin};
use std::sync::mpsc::{Receiver, channel};

use e2e::daemon::{Api, Cove, Daemon, Finished, finished};
use e2e::http::Lines;
use e2e::{DEADLINE, wait_until};
use hyper::Method;
use serde_json::{Value, json};

const VERSION: &str = "2025-11-25";

fn request(id: u64, method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

fn initialize() -> Value {
    let about = json!({"name": "story", "version": "1"});
    request(0, "initialize", json!({"protocolVersion": VERSION, "capabilities": {}, "clientInfo": about}))
}

fn initialized() -> Value {
    json!({"jsonrpc": "2.0", "method": "notifications/initialized"})
}

fn bash(id: u64, command: &str) -> Value {
    let params = json!({"name": "bash", "arguments": {"command": command}, "_meta": {"progressToken": id}});
    request(id, "tools/call", params)
}

/// The text of a tool's result.
#[track_caller]
fn text(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text in {answer}"))
}

/// An MCP client that has started `cove mcp`.
struct Stdio {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Stdio {
    fn start(cove: &Cove, args: &[&str]) -> Self {
        let args = [&["mcp"], args].concat();
        let mut child = cove.command(&args).stdin(std::process::Stdio::piped()).spawn().expect("cove can be started");
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        let (sender, lines) = channel();
        std::thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        let input = child.stdin.take();
        Self { child, input, lines }
    }

    fn open(cove: &Cove, args: &[&str]) -> Self {
        let mut client = Self::start(cove, args);
        client.send(&initialize());
        assert_eq!(client.answer(0)["result"]["serverInfo"]["name"], "cove");
        client.send(&initialized());
        client
    }

    fn send(&mut self, message: &Value) {
        let input = self.input.as_mut().expect("it is open");
        writeln!(input, "{message}").expect("cove mcp reads");
    }

    /// The next message. Everything on standard output is one.
    fn next(&self) -> Value {
        let line = self.lines.recv_timeout(3 * DEADLINE).expect("a message before the deadline");
        serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line:?}"))
    }

    /// The answer to a request. Messages before it are skipped.
    fn answer(&self, id: u64) -> Value {
        std::iter::repeat_with(|| self.next()).find(|message| message["id"] == id).expect("an answer")
    }

    fn progress(&self) -> Value {
        std::iter::repeat_with(|| self.next())
            .find(|message| message["method"] == "notifications/progress")
            .expect("progress")
    }

    fn ask(&mut self, message: &Value) -> Value {
        self.send(message);
        self.answer(message["id"].as_u64().expect("an id"))
    }

    /// Closes standard input, as a client does that is done.
    async fn close(mut self) -> Finished {
        drop(self.input.take());
        // The reader has the pipe; what the command prints after this is not looked at.
        self.child.stdout = Some(std::process::ChildStdout::from(std::os::fd::OwnedFd::from(
            std::fs::File::open("/dev/null").expect("there is one"),
        )));
        finished(self.child).await
    }
}

async fn sessions(api: &Api) -> usize {
    api.get("/v1/sessions?label=mcp%3D1").await.ok().as_array().expect("a list").len()
}

#[tokio::test]
async fn a_client_works_in_a_sandbox_that_ends_with_its_connection() {
    let daemon = Daemon::start().await;
    let mut client = Stdio::open(&Cove::of(&daemon), &[]);
    let tools = client.ask(&request(1, "tools/list", json!({})));
    let names: Vec<&str> =
        tools["result"]["tools"].as_array().unwrap().iter().filter_map(|t| t["name"].as_str()).collect();
    assert!(names.contains(&"bash"), "{names:?}");
    assert_eq!(sessions(&daemon).await, 0, "nothing is started before the first call");
    client.ask(&bash(2, "cd /tmp; export COLOUR=blue"));
    let answer = client.ask(&bash(3, "echo $COLOUR in $PWD"));
    assert!(text(&answer).contains("blue in /tmp"), "{answer}");
    assert_eq!(sessions(&daemon).await, 1);
    let wrong = client.ask(&request(4, "tools/call", json!({"name": "bash", "arguments": {"nope": 1}})));
    assert_eq!(wrong["result"]["isError"], true, "{wrong}");
    assert_eq!(client.ask(&request(5, "tools/call", json!({"name": "nope"})))["error"]["code"], -32602);
    assert_eq!(client.close().await.code, 0);
    assert_eq!(sessions(&daemon).await, 0, "its sandbox ended with it");
    daemon.stop().await;
}

#[tokio::test]
async fn a_client_sees_progress_and_can_cancel() {
    let daemon = Daemon::start().await;
    let mut client = Stdio::open(&Cove::of(&daemon), &[]);
    client.send(&bash(1, "echo begun; sleep 300 && touch survived"));
    let progress = client.progress();
    assert_eq!(progress["params"]["progressToken"], 1, "{progress}");
    client.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}));
    let answer = client.ask(&bash(2, "test ! -e survived && echo interrupted"));
    assert!(text(&answer).contains("interrupted"), "{answer}");
    assert_eq!(client.close().await.code, 0);
    daemon.stop().await;
}

#[tokio::test]
async fn the_sandbox_is_found_again_when_the_daemon_was_killed() {
    let mut daemon = Daemon::start().await;
    let mut client = Stdio::open(&Cove::of(&daemon), &[]);
    client.ask(&bash(1, "cd /tmp; COLOUR=blue"));
    client.send(&bash(2, "echo begun; sleep 300"));
    client.progress();
    daemon.kill().await;
    let daemon = daemon.start_again();
    // The call that ran is lost, and says so. It was not made again.
    let lost = client.answer(2);
    assert_eq!(lost["result"]["isError"], true, "{lost}");
    assert!(text(&lost).contains("may have run"), "{lost}");
    let signal = daemon.get("/v1/sessions?label=mcp%3D1").await.ok()[0]["id"].as_str().expect("an id").to_owned();
    daemon.post(&format!("/v1/sessions/{signal}/signal"), json!({"signal": "INT"})).await.ok();
    let answer = client.ask(&bash(3, "echo $COLOUR in $PWD"));
    assert!(text(&answer).contains("blue in /tmp"), "the shell is the same: {answer}");
    assert_eq!(sessions(&daemon).await, 1);
    assert_eq!(client.close().await.code, 0);
    assert_eq!(sessions(&daemon).await, 0);
    daemon.stop().await;
}

#[tokio::test]
async fn without_a_daemon_there_is_a_private_one_and_nothing_is_left() {
    let home = tempfile::Builder::new().prefix("cove-mcp-").tempdir().expect("a temporary directory");
    let project = home.path().join("project");
    std::fs::create_dir(&project).expect("our own directory");
    std::fs::write(project.join("note"), "from the host").expect("our own directory");
    let cove = Cove::at(home.path(), &home.path().join("data"));
    let mut client = Stdio::open(&cove, &["--directory", project.to_str().expect("UTF-8")]);
    let answer = client.ask(&bash(1, "cat note; echo changed > note"));
    assert!(text(&answer).contains("from the host"), "{answer}");
    let ended = client.close().await;
    assert_eq!(ended.code, 0, "{ended:?}");
    let note = std::fs::read_to_string(project.join("note")).expect("it is there");
    assert_eq!(note, "from the host", "a copy was changed");
    let left = std::fs::read_dir(home.path()).expect("our own directory").flatten().count();
    assert_eq!(left, 1, "only the project is left");
}

#[tokio::test]
async fn a_session_that_was_named_stays() {
    let daemon = Daemon::start().await;
    let cove = Cove::of(&daemon);
    let id = cove.run(&["create", "--name", "desk"]).await.ok();
    let mut client = Stdio::open(&cove, &["--session", "desk"]);
    client.ask(&bash(1, "touch here"));
    assert_eq!(client.close().await.code, 0);
    assert_eq!(cove.run(&["ps", "-q"]).await.ok(), id);
    assert_eq!(cove.run(&["exec", "desk", "ls"]).await.ok(), "here\n");
    cove.run(&["rm", "desk"]).await.ok();
    daemon.stop().await;
}

/// The messages of an answer over HTTP, as they come, each with the id of its event.
struct Messages(Lines);

impl Messages {
    async fn next(&mut self) -> Option<(String, Value)> {
        let mut id = String::new();
        while let Some(line) = self.0.next().await.ok()? {
            let line = String::from_utf8_lossy(&line).into_owned();
            if let Some(text) = line.strip_prefix("id:") {
                id = text.trim().to_owned();
            }
            if let Some(data) = line.strip_prefix("data:").map(str::trim).filter(|data| !data.is_empty()) {
                return Some((id, serde_json::from_str(data).expect("a message")));
            }
        }
        None
    }

    async fn answer(&mut self, id: u64) -> Value {
        while let Some((_, message)) = self.next().await {
            if message["id"] == id {
                return message;
            }
        }
        panic!("no answer to {id}")
    }
}

async fn post(api: &Api, message: &Value) -> (Messages, Option<String>) {
    let answer = api.open(Method::POST, "/mcp", message.to_string()).await.expect("an answer");
    assert!(answer.status().is_success(), "{}", answer.status());
    let session = answer.headers().get("mcp-session-id").map(|id| id.to_str().expect("ASCII").to_owned());
    (Messages(Lines::new(answer.into_body())), session)
}

/// A client over HTTP, with its MCP session.
async fn over_http(daemon: &Daemon) -> Api {
    let api = daemon.with_header("accept", "application/json, text/event-stream");
    let (mut hello, session) = post(&api, &initialize()).await;
    assert_eq!(hello.answer(0).await["result"]["protocolVersion"], VERSION);
    let api = api.with_header("mcp-protocol-version", VERSION);
    let api = api.with_header("mcp-session-id", &session.expect("an MCP session"));
    post(&api, &initialized()).await;
    api
}

#[tokio::test]
async fn two_clients_over_http_have_a_sandbox_each() {
    let daemon = Daemon::start().await;
    let (one, two) = (over_http(&daemon).await, over_http(&daemon).await);
    for (client, word) in [(&one, "first"), (&two, "second")] {
        post(client, &bash(1, &format!("echo {word} > mine"))).await.0.answer(1).await;
    }
    for (client, word) in [(&one, "first"), (&two, "second")] {
        let answer = post(client, &bash(2, "cat mine")).await.0.answer(2).await;
        assert!(text(&answer).contains(word), "{answer}");
    }
    assert_eq!(sessions(&daemon).await, 2);
    assert_eq!(one.delete("/mcp").await.status, 204);
    assert_eq!(sessions(&daemon).await, 1);
    // The other one is not ended by its client; the daemon's stop ends it.
    daemon.stop().await;
}

#[tokio::test]
async fn a_client_over_http_that_was_cut_off_gets_its_result() {
    let daemon = Daemon::start().await;
    let client = over_http(&daemon).await;
    post(&client, &bash(1, "mkfifo gate")).await.0.answer(1).await;
    let (mut messages, _) = post(&client, &bash(2, "echo begun; cat gate; echo over")).await;
    let (last, progress) = messages.next().await.expect("progress");
    assert_eq!(progress["method"], "notifications/progress");
    drop(messages);
    let id = daemon.get("/v1/sessions?label=mcp%3D1").await.ok()[0]["id"].as_str().expect("an id").to_owned();
    let run = json!({"argv": ["sh", "-c", "echo opened > gate"], "cwd": "/workspace"});
    daemon.post(&format!("/v1/sessions/{id}/run"), run).await.ok();
    wait_until("the end of the command", DEADLINE, async || {
        let execs = daemon.get(&format!("/v1/sessions/{id}/execs")).await.ok();
        execs.as_array().expect("a list").iter().all(|exec| exec["state"] == "ended").then_some(())
    })
    .await;
    let again = client.with_header("last-event-id", &last);
    let answer = again.open(Method::GET, "/mcp", "").await.expect("an answer");
    let answer = Messages(Lines::new(answer.into_body())).answer(2).await;
    assert!(text(&answer).contains("opened\nover"), "{answer}");
    daemon.stop().await;
}
