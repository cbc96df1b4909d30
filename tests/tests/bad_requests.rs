//! A bad request gets a clear error body, and changes nothing.

use std::time::Duration;

use e2e::{Ask as _, Client, Runner, ask};
use hyper::Method;
use shared_protocol::ErrorCode::{
    self, Conflict, ExecNotFound, FileNotFound, InvalidRequest, MethodNotAllowed, NotFound, ShellNotFound, TooLarge,
    Unauthorized,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

type Case = (Method, &'static str, &'static str, ErrorCode);

fn post(path: &'static str, body: &'static str, code: ErrorCode) -> Case {
    (Method::POST, path, body, code)
}

fn get(path: &'static str, code: ErrorCode) -> Case {
    (Method::GET, path, "", code)
}

fn put(path: &'static str, code: ErrorCode) -> Case {
    (Method::PUT, path, "content", code)
}

/// The state that must be the same before and after a refused request.
async fn everything(runner: &Runner) -> String {
    let files: Vec<_> = std::fs::read_dir(runner.workspace())
        .expect("our own directory")
        .map(|e| e.expect("our own directory").file_name())
        .collect();
    format!("{:?} {:?} {files:?}", runner.shells().await, runner.execs().await)
}

/// Sends every request, and names each one that was not refused correctly.
async fn all_refused(cases: &[Case]) {
    let runner = Runner::start().await;
    runner.exec(ask("echo known").with_id("known")).await;
    let before = everything(&runner).await;
    let mut failed = Vec::new();
    for (method, path, body, code) in cases {
        let reply = runner.raw(method.clone(), path, *body).await;
        let error: Option<shared_protocol::ErrorBody> = serde_json::from_slice(&reply.body).ok();
        let is_right = error.is_some_and(|e| e.error_code == *code && !e.message.is_empty());
        if !is_right || reply.status != code.http_status() {
            let shown: String = body.chars().take(80).collect();
            failed.push(format!("{method} {path} {shown}: expected {code:?}, got {} {}", reply.status, reply.text()));
        }
        if everything(&runner).await != before {
            failed.push(format!("{method} {path} {body}: changed something: {}", everything(&runner).await));
            break;
        }
    }
    assert!(failed.is_empty(), "{} were not refused as they should:\n{}", failed.len(), failed.join("\n"));
    assert_eq!(runner.output_of("echo ok").await, "ok\n");
}

#[tokio::test]
async fn bodies_that_are_not_the_documented_json_are_refused() {
    let mut cases = Vec::new();
    for body in [
        "",
        "{",
        "null",
        "[]",
        "\"true\"",
        "{\"cmd\":\"true\"",
        "{\"cmd\":\"true\"} trailing",
        "{}",
        "{\"cmd\":1}",
        "{\"cmd\":null}",
        "{\"cmd\":[\"true\"]}",
        "{\"cmd\":\"true\",\"comand\":\"x\"}",
        "{\"cmd\":\"true\",\"cmd\":\"false\"}",
        "{\"cmd\":\"true\",\"streams\":\"both\"}",
        "{\"cmd\":\"true\",\"timeout_ms\":-1}",
        "{\"cmd\":\"true\",\"timeout_ms\":1.5}",
        "{\"cmd\":\"true\",\"timeout_ms\":\"1\"}",
        "{\"cmd\":\"true\",\"timeout_ms\":18446744073709551616}",
        "{\"cmd\":\"true\",\"env\":[\"A=1\"]}",
        "{\"cmd\":\"true\",\"env\":{\"A\":1}}",
        "{\"cmd\":\"true\",\"stdin\":\"a\",\"stdin_base64\":\"YQ==\"}",
        "{\"cmd\":\"true\",\"stdin_base64\":\"not base64!\"}",
    ] {
        cases.push(post("/v1/exec", body, InvalidRequest));
    }
    all_refused(&cases).await;
}

#[tokio::test]
async fn values_that_cannot_be_are_refused() {
    all_refused(&[
        post("/v1/exec", "{\"cmd\":\"a\\u0000b\"}", InvalidRequest),
        post("/v1/exec", "{\"cmd\":\"true\",\"shell\":\"../main\"}", InvalidRequest),
        post("/v1/exec", "{\"cmd\":\"true\",\"exec_id\":\"a/b\"}", InvalidRequest),
        post("/v1/exec", "{\"cmd\":\"true\",\"exec_id\":\"\"}", InvalidRequest),
        post("/v1/exec", "{\"cmd\":\"true\",\"env\":{\"A=B\":\"1\"}}", InvalidRequest),
        post("/v1/exec", "{\"cmd\":\"true\",\"env\":{\"\":\"1\"}}", InvalidRequest),
        post("/v1/exec", "{\"cmd\":\"true\",\"env\":{\"1A; touch hacked\":\"1\"}}", InvalidRequest),
        post("/v1/exec", "{\"cmd\":\"true\",\"env\":{\"A\":\"a\\u0000b\"}}", InvalidRequest),
        post("/v1/exec", "{\"cmd\":\"true\",\"cwd\":\"/a\\u0000b\"}", InvalidRequest),
        post("/v1/run", "{\"argv\":[]}", InvalidRequest),
        post("/v1/run", "{\"argv\":\"true\"}", InvalidRequest),
        post("/v1/run", "{\"argv\":[\"\"]}", InvalidRequest),
        post("/v1/run", "{\"argv\":[\"echo\",\"a\\u0000b\"]}", InvalidRequest),
        post("/v1/run", "{\"argv\":[\"true\"],\"streams\":\"tty\"}", InvalidRequest),
        post("/v1/run", "{\"argv\":[\"true\"],\"env\":{\"A=B\":\"1\"}}", InvalidRequest),
        post("/v1/input", "{}", InvalidRequest),
        post("/v1/input", "{\"data\":\"a\",\"data_base64\":\"YQ==\"}", InvalidRequest),
        post("/v1/input", "{\"data_base64\":\"%%%\"}", InvalidRequest),
        post("/v1/signal", "{}", InvalidRequest),
        post("/v1/signal", "{\"signal\":\"BOGUS\"}", InvalidRequest),
        post("/v1/signal", "{\"signal\":\"-9\"}", InvalidRequest),
        post("/v1/signal", "{\"signal\":\"99\"}", InvalidRequest),
        post("/v1/signal", "{\"signal\":9}", InvalidRequest),
        post("/v1/signal", "{\"signal\":\"INT\",\"shell\":\"main\",\"exec_id\":\"known\",\"x\":1}", InvalidRequest),
        post("/v1/resize", "{\"cols\":0,\"rows\":10}", InvalidRequest),
        post("/v1/resize", "{\"cols\":70000,\"rows\":10}", InvalidRequest),
        post("/v1/resize", "{\"cols\":80}", InvalidRequest),
        post("/v1/shells", "{\"name\":\"..\"}", InvalidRequest),
        post("/v1/shells", "{\"name\":\"a b\"}", InvalidRequest),
        post("/v1/shells", "{\"kind\":\"fish\"}", InvalidRequest),
        post("/v1/shells", "{\"cols\":0,\"rows\":0}", InvalidRequest),
    ])
    .await;
}

#[tokio::test]
async fn what_is_not_there_is_said_not_to_be() {
    all_refused(&[
        post("/v1/exec", "{\"cmd\":\"true\",\"shell\":\"nope\"}", ShellNotFound),
        post("/v1/input", "{\"data\":\"a\",\"shell\":\"nope\"}", ShellNotFound),
        post("/v1/signal", "{\"signal\":\"INT\",\"shell\":\"nope\"}", ShellNotFound),
        post("/v1/signal", "{\"signal\":\"INT\",\"exec_id\":\"nope\"}", ExecNotFound),
        post("/v1/resize", "{\"cols\":80,\"rows\":24,\"shell\":\"nope\"}", ShellNotFound),
        post("/v1/shells", "{\"name\":\"new\",\"from\":\"nope\"}", ShellNotFound),
        post("/v1/shells/nope/reset", "{}", ShellNotFound),
        (Method::DELETE, "/v1/shells/nope", "", ShellNotFound),
        get("/v1/execs/nope", ExecNotFound),
        get("/v1/execs/nope?from=0&follow=1", ExecNotFound),
        get("/v1/files?path=nope", FileNotFound),
        get("/v1/fs/stat?path=nope", FileNotFound),
        get("/v1/fs/list?path=nope", FileNotFound),
        get("/v1/archive?path=nope", FileNotFound),
        (Method::DELETE, "/v1/fs?path=nope", "", FileNotFound),
        post("/v1/fs/move?from=nope&to=new", "", FileNotFound),
        get("/", NotFound),
        get("/v1", NotFound),
        get("/v1/nope", NotFound),
        get("/v2/execs", NotFound),
        post("/v1/shells/main/nope", "{}", NotFound),
    ])
    .await;
}

#[tokio::test]
async fn what_is_there_already_is_a_conflict() {
    all_refused(&[
        post("/v1/exec", "{\"cmd\":\"touch again\",\"exec_id\":\"known\"}", Conflict),
        post("/v1/run", "{\"argv\":[\"touch\",\"again\"],\"exec_id\":\"known\"}", Conflict),
        post("/v1/shells", "{\"name\":\"main\"}", Conflict),
    ])
    .await;
}

#[tokio::test]
async fn the_wrong_method_is_said_to_be_wrong() {
    all_refused(&[
        get("/v1/exec", MethodNotAllowed),
        put("/v1/exec", MethodNotAllowed),
        get("/v1/run", MethodNotAllowed),
        post("/v1/execs", "{}", MethodNotAllowed),
        (Method::DELETE, "/v1/execs/known", "", MethodNotAllowed),
        (Method::PUT, "/v1/shells", "{}", MethodNotAllowed),
        post("/healthz", "{}", MethodNotAllowed),
        (Method::PATCH, "/v1/files?path=x", "", MethodNotAllowed),
    ])
    .await;
}

#[tokio::test]
async fn paths_that_leave_or_cannot_be_are_refused() {
    all_refused(&[
        get("/v1/files", InvalidRequest),
        get("/v1/files?path=", InvalidRequest),
        get("/v1/files?path=../../etc/passwd", InvalidRequest),
        get("/v1/files?path=a/../../../etc/passwd", InvalidRequest),
        get("/v1/files?path=..%2f..%2fetc%2fpasswd", InvalidRequest),
        get("/v1/files?path=a%00b", InvalidRequest),
        put("/v1/files?path=../escaped", InvalidRequest),
        put("/v1/files?path=%2e%2e/escaped", InvalidRequest),
        put("/v1/files?path=x&mode=rwx", InvalidRequest),
        put("/v1/files?path=x&mode=99999", InvalidRequest),
        get("/v1/fs/stat?path=..", InvalidRequest),
        get("/v1/fs/list?path=..", InvalidRequest),
        post("/v1/fs/mkdir?path=../escaped", "", InvalidRequest),
        post("/v1/fs/move?from=..&to=x", "", InvalidRequest),
        post("/v1/fs/move?from=x", "", InvalidRequest),
        (Method::DELETE, "/v1/fs?path=..&recursive=1", "", InvalidRequest),
        get("/v1/archive?path=../..", InvalidRequest),
        put("/v1/archive?path=../escaped", InvalidRequest),
        get("/v1/shells/main/attach?cols=80&rows=24", InvalidRequest),
        get("/v1/execs/known?from=-1", InvalidRequest),
        get("/v1/execs/known?from=x", InvalidRequest),
        get("/v1/execs/..%2f..", InvalidRequest),
    ])
    .await;
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused_and_not_kept() {
    let runner = Runner::start().await;
    let body = format!("{{\"cmd\":\": {}\"}}", "x".repeat(64 << 20));
    // The runner may close the connection before it has read everything; then the answer can be lost.
    if let Ok(reply) = runner.try_raw(Method::POST, "/v1/exec", body).await {
        assert_eq!((reply.status, reply.refused()), (413, TooLarge));
    }
    assert!(runner.peak_rss_kib() < 32 << 10, "{} KiB", runner.peak_rss_kib());
    assert!(runner.execs().await.is_empty());
    assert_eq!(runner.output_of("echo ok").await, "ok\n");
}

#[tokio::test]
async fn bytes_that_are_no_http_do_no_harm() {
    let runner = Runner::start().await;
    let long_header = format!("GET /healthz HTTP/1.1\r\nhost: x\r\nx: {}\r\n\r\n", "y".repeat(1 << 20));
    let half = "POST /v1/exec HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{\"cmd\":\"touch half\"}";
    let nonsense = ["\0\0\0\0", "hello\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", "\u{16}\u{3}\u{1}", half, &long_header];
    for bytes in nonsense {
        let mut socket = UnixStream::connect(runner.socket()).await.unwrap();
        // The runner may close the connection before it has read everything.
        let _ = socket.write_all(bytes.as_bytes()).await;
        let _ = socket.shutdown().await;
        let mut answer = Vec::new();
        let read = tokio::time::timeout(Duration::from_secs(20), socket.read_to_end(&mut answer)).await;
        assert!(read.is_ok(), "the connection stays open after {:?}", &bytes[..bytes.len().min(40)]);
    }
    assert_eq!(runner.output_of("ls; echo ok").await, "ok\n");
}

/// Reads the head of one answer, and the body that it announces.
async fn one_answer(socket: &mut UnixStream) -> String {
    let mut answer = Vec::new();
    let mut wanted = None;
    while wanted.is_none_or(|length| answer.len() < length) {
        let mut bytes = [0; 4096];
        let read = tokio::time::timeout(Duration::from_secs(20), socket.read(&mut bytes)).await;
        let count = read.expect("no answer came").expect("the connection is open");
        assert_ne!(count, 0, "the connection was closed after {:?}", String::from_utf8_lossy(&answer));
        answer.extend_from_slice(&bytes[..count]);
        let text = String::from_utf8_lossy(&answer);
        if let Some((head, _)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).expect("a length");
            wanted = Some(head.len() + 4 + length.parse::<usize>().expect("a number"));
        }
    }
    String::from_utf8(answer).expect("an answer is text")
}

#[tokio::test]
async fn a_connection_stays_open_after_a_request_that_was_refused_before_its_body_came() {
    let runner = Runner::start().await;
    runner.exec(ask("echo known").with_id("known")).await;
    let mut socket = UnixStream::connect(runner.socket()).await.unwrap();
    for (target, status) in [
        ("POST /v1/execs/known/stdin", "409"),
        ("POST /v1/execs/nobody/stdin", "404"),
        ("PUT /v1/files?path=../escaped", "400"),
        ("PUT /v1/exec", "405"),
        ("POST /v1/nope", "404"),
    ] {
        let head = format!("{target} HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n\r\n");
        socket.write_all(head.as_bytes()).await.unwrap();
        let answer = one_answer(&mut socket).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{target}: {answer}");
        socket.write_all(b"null").await.unwrap_or_else(|error| panic!("{target}: {error}"));
    }
    socket.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    assert!(one_answer(&mut socket).await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn connections_that_say_nothing_keep_nobody_out() {
    let runner = Runner::start().await;
    let mut silent = Vec::new();
    for _ in 0..300 {
        silent.push(UnixStream::connect(runner.socket()).await.unwrap());
    }
    assert_eq!(runner.output_of("echo ok").await, "ok\n");
}

async fn status_of(client: &Client, path: &str) -> u16 {
    client.raw(Method::GET, path, "").await.status
}

#[tokio::test]
async fn on_tcp_nothing_but_health_is_answered_without_the_token() {
    let runner = Runner::builder().on_tcp("open-sesame").start().await;
    let (nobody, wrong) = (runner.with_token(None), runner.with_token(Some("open-sesam")));
    assert_eq!(status_of(&nobody, "/healthz").await, 200);
    for client in [nobody, wrong] {
        let reply = client.raw(Method::POST, "/v1/exec", "{\"cmd\":\"touch hacked\"}").await;
        assert_eq!((reply.status, reply.refused()), (401, Unauthorized));
        for path in ["/v1/execs", "/v1/shells", "/v1/nope", "/v1/files?path=/etc/passwd"] {
            assert_eq!(status_of(&client, path).await, 401, "{path}");
        }
    }
    // The control: with the token, the same request works.
    assert_eq!(runner.output_of("ls; touch allowed; ls").await, "allowed\n");
}
