//! Tests against a fake runner on a real socket that lies, stalls, floods and closes connections.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use shared_protocol::runner::{ExecRequest, InputRequest, MAX_PAGE_EXECS};
use shared_protocol::{ErrorCode, ExecId};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};

use super::*;

/// What the fake does with one request.
enum Act {
    /// Answers, and waits for the next request.
    Say(Vec<u8>),
    SayAndHangUp(Vec<u8>),
    HangUp,
    Silence,
    /// Answers with this, and then with the same kilobyte forever.
    Flood(Vec<u8>, u8),
}

struct Fake {
    client: RunnerClient,
    connections: Arc<AtomicUsize>,
    /// The received requests, with heads and bodies.
    requests: Arc<Mutex<Vec<String>>>,
    _dir: tempfile::TempDir,
}

impl Fake {
    /// Makes a fake. `act` gets the number of earlier requests, and the request.
    fn new(act: impl Fn(usize, &str) -> Act + Send + Sync + 'static) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let listener = UnixListener::bind(&path).unwrap();
        let (connections, requests) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
        let (act, counted, seen) = (Arc::new(act), connections.clone(), requests.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(serve(stream, act.clone(), seen.clone()));
            }
        });
        Self { client: RunnerClient::new(RunnerAddress::Unix(path)), connections, requests, _dir: dir }
    }

    /// A fake that gives every request the same answer and closes the connection.
    fn saying(bytes: impl Into<Vec<u8>>) -> Self {
        let bytes = bytes.into();
        Self::new(move |_, _| Act::SayAndHangUp(bytes.clone()))
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    fn asked(&self, start: &str) -> usize {
        self.requests.lock().unwrap().iter().filter(|request| request.starts_with(start)).count()
    }

    /// Reads all frames until the exec ends, or returns the error.
    async fn exec(&self, request: &ExecRequest) -> Result<Vec<Frame>, RunnerError> {
        all(self.client.exec(request).await?).await
    }
}

async fn all(mut stream: FrameStream) -> Result<Vec<Frame>, RunnerError> {
    let mut frames = Vec::new();
    while let Some(frame) = stream.next().await? {
        frames.push(frame);
    }
    Ok(frames)
}

async fn serve(mut stream: UnixStream, act: Arc<impl Fn(usize, &str) -> Act>, requests: Arc<Mutex<Vec<String>>>) {
    let mut buffer = Vec::new();
    loop {
        let Some(request) = read_request(&mut stream, &mut buffer).await else { return };
        let before = {
            let mut requests = requests.lock().unwrap();
            requests.push(request.clone());
            requests.len() - 1
        };
        match act(before, &request) {
            Act::Say(bytes) => drop(stream.write_all(&bytes).await),
            Act::SayAndHangUp(bytes) => {
                let _ = stream.write_all(&bytes).await;
                return;
            }
            Act::HangUp => return,
            Act::Silence => std::future::pending().await,
            Act::Flood(bytes, byte) => {
                let _ = stream.write_all(&bytes).await;
                while stream.write_all(&[byte; 1024]).await.is_ok() {}
                return;
            }
        }
    }
}

async fn read_request(stream: &mut UnixStream, buffer: &mut Vec<u8>) -> Option<String> {
    loop {
        let text = String::from_utf8_lossy(buffer).into_owned();
        if let Some(head) = text.find("\r\n\r\n") {
            let length = text[..head].lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
            let end = head + 4 + length.unwrap_or(0usize);
            if buffer.len() >= end {
                buffer.drain(..end);
                return Some(text[..end].to_owned());
            }
        }
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
}

fn answer(status: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

/// The id in the body of a request.
fn id_in(request: &str) -> String {
    let after = request.split("\"exec_id\":\"").nth(1).unwrap();
    after.split('"').next().unwrap().to_owned()
}

fn exit_frame(id: &str, bytes: u64) -> String {
    format!(
        r#"{{"type":"exit","exec_id":"{id}","kind":"exited","exit_code":0,"cwd":"/","output_bytes":{bytes},"timed_out":false,"shell_restarted":false,"oom_killed":false,"awaiting_input":false,"duration_ms":1}}"#
    ) + "\n"
}

/// A correct answer to an exec that printed `hi`.
fn frames(id: &str) -> String {
    format!(
        "{{\"type\":\"started\",\"exec_id\":\"{id}\"}}\n{{\"type\":\"output\",\"stream\":\"merged\",\"offset\":0,\"data\":\"hi\"}}\n"
    ) + &exit_frame(id, 2)
}

fn command() -> ExecRequest {
    ExecRequest { cmd: "echo hi".into(), ..ExecRequest::default() }
}

fn command_with_id() -> ExecRequest {
    ExecRequest { exec_id: Some(ExecId::new("a").unwrap()), ..command() }
}

/// The start of an answer to an exec that has begun. The rest never comes.
fn begun(request: &str) -> Act {
    let line = format!("{{\"type\":\"started\",\"exec_id\":\"{}\"}}\n", id_in(request));
    let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    Act::Say(format!("{head}{:x}\r\n{line}\r\n", line.len()).into_bytes())
}

#[tokio::test(start_paused = true)]
async fn a_command_that_a_runner_never_ends_is_lost_soon_after_its_time_limit() {
    let fake = Fake::new(|_, request| begun(request));
    let began = tokio::time::Instant::now();
    let frames = fake.exec(&ExecRequest { timeout_ms: Some(3000), ..command() }).await.unwrap();
    let [Frame::Started { .. }, Frame::Exit(outcome)] = &frames[..] else { panic!("{frames:?}") };
    assert_eq!((outcome.kind, outcome.timed_out), (shared_protocol::runner::OutcomeKind::Lost, true));
    assert!(outcome.reason.as_ref().unwrap().contains("did not report its end"), "{outcome:?}");
    assert_eq!(began.elapsed().as_secs(), 18);
    // Who is responsible for the runner is told, and the connection is not used again.
    fake.client.pulse().doubted().await;
    assert_eq!(fake.client.idle_connections(), 0);
    // The same goes for a program outside the shells.
    let run = RunRequest { argv: vec!["x".into()], timeout_ms: Some(3000), ..RunRequest::default() };
    let frames = all(fake.client.run(&run).await.unwrap()).await.unwrap();
    assert!(matches!(frames.last(), Some(Frame::Exit(outcome)) if outcome.timed_out), "{frames:?}");
}

#[tokio::test(start_paused = true)]
async fn a_command_without_a_time_limit_is_waited_for_while_its_runner_is_doubted_now_and_then() {
    let fake = Fake::new(|_, request| begun(request));
    let hour = Duration::from_secs(3600);
    assert!(tokio::time::timeout(hour, fake.exec(&command())).await.is_err());
    fake.client.pulse().doubted().await;
}

#[tokio::test(start_paused = true)]
async fn a_runner_that_does_not_answer_a_call_is_doubted_long_before_the_call_fails() {
    let fake = Fake::new(|_, _| Act::Silence);
    let began = tokio::time::Instant::now();
    let call = fake.client.execs(None, MAX_PAGE_EXECS);
    tokio::pin!(call);
    tokio::select! {
        _ = &mut call => panic!("nobody answers"),
        () = fake.client.pulse().doubted() => {}
    }
    assert_eq!(began.elapsed().as_secs(), 2);
    let error = call.await.unwrap_err().to_string();
    let expected = "no answer within 30 seconds to GET /v1/execs on a new connection; the runner was never heard";
    assert!(error.contains(expected), "{error}");
}

#[tokio::test]
async fn one_connection_serves_one_command_after_the_other() {
    let fake = Fake::new(|_, request| Act::Say(answer("200 OK", &frames(&id_in(request)))));
    for _ in 0..5 {
        assert_eq!(fake.exec(&command()).await.unwrap().len(), 3);
    }
    assert_eq!(fake.connections(), 1);
    assert_eq!(fake.client.idle_connections(), 1);
}

#[tokio::test]
async fn a_connection_is_not_used_again_after_half_an_answer() {
    let fake = Fake::new(|_, request| Act::Say(answer("200 OK", &frames(&id_in(request)))));
    let mut stream = fake.client.exec(&command()).await.unwrap();
    stream.next().await.unwrap();
    drop(stream);
    assert_eq!(fake.client.idle_connections(), 0);
    assert_eq!(fake.exec(&command()).await.unwrap().len(), 3);
    assert_eq!(fake.connections(), 2);
}

#[tokio::test]
async fn a_connection_that_was_closed_at_rest_is_replaced_and_nothing_runs_twice() {
    let fake = Fake::new(|_, request| Act::SayAndHangUp(answer("200 OK", &frames(&id_in(request)))));
    for _ in 0..5 {
        assert_eq!(fake.exec(&command()).await.unwrap().len(), 3);
    }
    assert_eq!(fake.asked("POST /v1/exec"), 5);
}

#[tokio::test]
async fn a_command_that_met_a_dying_connection_is_found_again_by_its_id() {
    let fake = Fake::new(|before, request| match before {
        0 => Act::Say(answer("200 OK", &frames(&id_in(request)))),
        1 => Act::HangUp,
        2 => Act::Say(answer("409 Conflict", r#"{"error_code":"CONFLICT","message":"known"}"#)),
        _ => {
            let id = request.split("/v1/execs/").nth(1).unwrap().split('?').next().unwrap();
            Act::Say(answer("200 OK", &frames(id)))
        }
    });
    fake.exec(&command()).await.unwrap();
    assert_eq!(fake.exec(&command()).await.unwrap().len(), 3);
    let requests = fake.requests.lock().unwrap().clone();
    assert_eq!(requests.len(), 4);
    assert_eq!(id_in(&requests[1]), id_in(&requests[2]), "the second sending has the id of the first");
    assert!(requests[3].contains(&format!("/v1/execs/{}?from=0&follow=1", id_in(&requests[1]))));
}

#[tokio::test]
async fn a_clients_own_id_that_is_taken_stays_a_conflict() {
    let conflict = || Act::Say(answer("409 Conflict", r#"{"error_code":"CONFLICT","message":"known"}"#));
    let fake = Fake::new(move |before, request| match before {
        0 => Act::Say(answer("200 OK", &frames(&id_in(request)))),
        1 => Act::HangUp,
        _ => conflict(),
    });
    fake.exec(&command()).await.unwrap();
    assert_eq!(fake.exec(&command_with_id()).await.unwrap_err().code(), Some(ErrorCode::Conflict));
    assert_eq!(fake.asked("GET /v1/execs"), 0);
}

#[tokio::test]
async fn what_is_typed_is_never_sent_twice() {
    let fake = Fake::new(|before, request| match before {
        0 => Act::Say(answer("200 OK", &frames(&id_in(request)))),
        _ => Act::HangUp,
    });
    fake.exec(&command()).await.unwrap();
    let typed = InputRequest { data: Some("y\n".into()), ..InputRequest::default() };
    assert!(matches!(fake.client.input(&typed).await, Err(RunnerError::Lost(_))));
    assert_eq!(fake.asked("POST /v1/input"), 1);
}

#[tokio::test]
async fn a_command_on_a_new_connection_is_sent_once() {
    let fake = Fake::new(|_, _| Act::HangUp);
    assert!(matches!(fake.exec(&command()).await, Err(RunnerError::Lost(_))));
    assert_eq!(fake.asked("POST"), 1);
}

#[tokio::test(start_paused = true)]
async fn silence_has_an_end() {
    let fake = Fake::new(|_, _| Act::Silence);
    assert!(matches!(fake.exec(&command()).await, Err(RunnerError::Lost(_))));
    assert!(matches!(fake.client.shells().await, Err(RunnerError::Lost(_))));
}

#[tokio::test(start_paused = true)]
async fn a_document_that_trickles_has_an_end() {
    let fake = Fake::new(|_, _| Act::Say(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n[".to_vec()));
    assert!(matches!(fake.client.shells().await, Err(RunnerError::Lost(_))));
}

#[tokio::test]
async fn no_head_is_taken_that_a_runner_does_not_send() {
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(1000));
    let long = format!("HTTP/1.1 200 OK\r\na: {}\r\n\r\n", "b".repeat(100_000));
    for head in [
        many.as_str(),
        long.as_str(),
        "SSH-2.0-OpenSSH_9.2\r\n\r\n",
        "HTTP/1.1 999999 What\r\n\r\n",
        "HTTP/1.1 301 Moved\r\nlocation: http://elsewhere/\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 204 Nothing\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
    ] {
        let fake = Fake::saying(head);
        let error = fake.exec(&command()).await.unwrap_err();
        assert!(matches!(error, RunnerError::Hostile(_)), "{:?}: {error:?}", &head[..head.len().min(60)]);
    }
}

#[tokio::test]
async fn an_upgrade_that_nobody_asked_for_is_no_answer() {
    let fake = Fake::saying("HTTP/1.1 101 Switching\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n");
    assert!(fake.exec(&command()).await.is_err());
    assert_eq!(fake.client.idle_connections(), 0);
}

#[tokio::test]
async fn a_frame_without_an_end_is_not_waited_for() {
    let fake = Fake::new(|_, _| Act::Flood(b"HTTP/1.1 200 OK\r\n\r\n{\"type\":\"".to_vec(), b'x'));
    assert!(matches!(fake.exec(&command()).await, Err(RunnerError::Hostile(_))));
}

#[tokio::test]
async fn a_document_without_an_end_is_not_collected() {
    let fake = Fake::new(|_, _| Act::Flood(b"HTTP/1.1 200 OK\r\n\r\n".to_vec(), b' '));
    assert!(matches!(fake.client.shells().await, Err(RunnerError::Hostile(_))));
    let fake = Fake::new(|_, _| Act::Flood(b"HTTP/1.1 409 Conflict\r\n\r\n".to_vec(), b' '));
    assert!(matches!(fake.client.shells().await, Err(RunnerError::Hostile(_))));
}

#[tokio::test]
async fn a_length_is_not_believed() {
    let huge = "HTTP/1.1 200 OK\r\ncontent-length: 9223372036854775807\r\n\r\n[]";
    assert!(matches!(Fake::saying(huge).client.shells().await, Err(RunnerError::Lost(_))));
}

#[tokio::test]
async fn a_runner_cannot_make_the_daemon_ask_for_a_key() {
    let body = r#"{"error_code":"UNAUTHORIZED","message":"no"}"#;
    let error = Fake::saying(answer("401 Unauthorized", body)).exec(&command()).await.unwrap_err();
    assert!(matches!(error, RunnerError::Hostile(_)), "{error:?}");
    let body = r#"{"error_code":"SHELL_NOT_FOUND","message":"no"}"#;
    let error = Fake::saying(answer("404 Not Found", body)).exec(&command()).await.unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::ShellNotFound));
}

#[tokio::test]
async fn an_error_frame_is_checked_as_an_error_is() {
    let frame = |code: &str| format!("{{\"type\":\"error\",\"error_code\":\"{code}\",\"message\":\"m\"}}\n");
    let error = Fake::saying(answer("200 OK", &frame("UNAUTHORIZED"))).exec(&command()).await.unwrap_err();
    assert!(matches!(error, RunnerError::Hostile(_)), "{error:?}");
    let error = Fake::saying(answer("200 OK", &frame("INTERNAL_ERROR"))).exec(&command()).await.unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::InternalError));
}

#[tokio::test]
async fn frames_that_cannot_be_true_end_the_stream() {
    let started = "{\"type\":\"started\",\"exec_id\":\"a\"}\n";
    for body in [
        "not json\n".to_owned(),
        "\n".to_owned(),
        frames("b"),
        exit_frame("a", 0),
        format!("{started}{started}"),
        format!("{started}{}", exit_frame("a", 1)),
        format!("{}{}", frames("a"), exit_frame("a", 2)),
        format!("{}garbage", frames("a")),
        format!("{started}{{\"type\":\"output\",\"stream\":\"merged\",\"offset\":5,\"data\":\"x\"}}\n"),
        format!("{started}{{\"type\":\"output\",\"stream\":\"stderr\",\"offset\":0,\"data\":\"x\"}}\n"),
        format!("{started}{{\"type\":\"gap\",\"offset\":0,\"bytes\":0}}\n"),
        format!("{started}{{\"type\":\"outp"),
    ] {
        let error = Fake::saying(answer("200 OK", &body)).exec(&command_with_id()).await.unwrap_err();
        assert!(matches!(error, RunnerError::Hostile(_)), "{body}: {error:?}");
    }
}

#[tokio::test]
async fn a_stream_without_its_last_frame_is_lost_and_a_replay_is_not() {
    let started = "{\"type\":\"started\",\"exec_id\":\"a\"}\n";
    let fake = Fake::saying(answer("200 OK", started));
    assert!(matches!(fake.exec(&command_with_id()).await, Err(RunnerError::Lost(_))));
    let id = ExecId::new("a").unwrap();
    assert_eq!(all(fake.client.reattach(&id, 7, false).await.unwrap()).await.unwrap().len(), 1);
    assert!(all(fake.client.reattach(&id, 7, true).await.unwrap()).await.is_err());
}

#[tokio::test]
async fn lists_are_of_a_size_and_of_what_was_asked_for() {
    let shell = r#"{"name":"s","kind":"exec","state":"idle","cwd":"/","queued":0,"restarts":0,"cols":80,"rows":24}"#;
    let list = |count: usize| format!("[{}]", vec![shell; count].join(","));
    assert_eq!(Fake::saying(answer("200 OK", &list(64))).client.shells().await.unwrap().len(), 64);
    assert!(Fake::saying(answer("200 OK", &list(300))).client.shells().await.is_err());
    let other = shared_protocol::runner::OpenShellRequest {
        name: Some(shared_protocol::ShellName::new("other").unwrap()),
        ..Default::default()
    };
    let error = Fake::saying(answer("201 Created", shell)).client.open_shell(&other).await.unwrap_err();
    assert!(matches!(error, RunnerError::Hostile(_)), "{error:?}");
}

#[tokio::test]
async fn a_file_shorter_than_announced_is_an_error_and_not_an_end() {
    let fake = Fake::saying("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc");
    let mut file = fake.client.read_file(b"x", None).await.unwrap();
    let mut last = Ok(());
    while let Some(chunk) = file.chunk().await {
        last = chunk.map(drop);
    }
    assert!(matches!(last, Err(RunnerError::Lost(_))), "{last:?}");
}

#[tokio::test]
async fn idle_connections_are_closed_in_time() {
    let fake = Fake::new(|_, request| Act::Say(answer("200 OK", &frames(&id_in(request)))));
    fake.exec(&command()).await.unwrap();
    assert_eq!(fake.client.idle_connections(), 1);
    tokio::time::pause();
    tokio::time::sleep(connections::KEEP * 2).await;
    assert_eq!(fake.client.idle_connections(), 0);
}
