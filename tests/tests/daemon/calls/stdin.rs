//! The open standard input of a run: bytes of any size that arrive while the program runs, and its end; and the program's
//! process id.

use bytes::Bytes;
use e2e::daemon::{Answer, Cove, Daemon, EventStream, Session};
use e2e::{DEADLINE, wait_until};
use hyper::Method;
use serde_json::{Value, json};
use shared_protocol::ErrorCode::{self, Conflict, ExecNotFound, InvalidRequest};

/// More than all buffers between a client and a program hold, and more than a JSON body can be.
const LARGE: u64 = 64 << 20;

async fn start(session: &Session, exec_id: &str, script: &str) -> EventStream {
    let request = json!({ "argv": ["sh", "-c", script], "exec_id": exec_id, "stdin_open": true });
    session.api.events(Method::POST, &session.path("/run/stream"), request).await
}

async fn write(session: &Session, exec_id: &str, query: &str, bytes: impl Into<Bytes>) -> Answer {
    let bare = session.api.with_header("content-type", "application/octet-stream");
    bare.send(Method::POST, &session.path(&format!("/runs/{exec_id}/stdin{query}")), bytes).await
}

async fn write_pattern(session: &Session, exec_id: &str, length: u64) -> Answer {
    let path = session.path(&format!("/runs/{exec_id}/stdin?close=1"));
    session.api.send_pattern(Method::POST, &path, length).await.unwrap_or_else(|e| panic!("{path}: {e:#}"))
}

#[track_caller]
fn refused(answer: &Answer, code: ErrorCode, what: &str) {
    let error = answer.error();
    assert_eq!((answer.status, error.error_code), (code.http_status(), code), "{}", answer.text());
    assert!(error.message.contains(what), "{:?} is not in {:?}", what, error.message);
}

/// The entry of a run in the listing.
async fn listed(session: &Session, exec_id: &str) -> Value {
    let all = session.api.get(&session.path("/execs")).await.ok();
    let found = all.as_array().expect("a list").iter().find(|exec| exec["exec_id"] == exec_id);
    found.unwrap_or_else(|| panic!("{exec_id} is not in {all}")).clone()
}

#[tokio::test]
async fn a_program_reads_what_is_sent_while_it_runs_until_its_input_is_closed() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let mut stream = start(&session, "open", "echo $$; cat; echo end").await;
    let started = stream.until("started").await;
    let pid = stream.until("chunk").await.data["chunk"].as_str().unwrap().trim().parse::<u64>().unwrap();
    assert_eq!((started.data["pid"].as_u64(), listed(&session, "open").await["pid"].as_u64()), (Some(pid), Some(pid)));
    for line in ["one\n", "two\n"] {
        assert_eq!(write(&session, "open", "", line).await.ok(), json!({ "bytes": 4, "closed": false }));
        assert_eq!(stream.until("chunk").await.data["chunk"], line);
    }
    let closed = session.api.send(Method::POST, &session.path("/runs/open/stdin/close"), "").await;
    assert_eq!(closed.ok(), json!({ "bytes": 0, "closed": true }));
    let (output, done) = stream.finish().await;
    assert_eq!((output.as_slice(), &done.data["exit_code"]), (&b"end\n"[..], &json!(0)));
    daemon.stop().await;
}

#[tokio::test]
async fn a_detached_run_takes_input_of_any_size_as_fast_as_it_reads() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    // It begins to read only when it is told to.
    let script = "until [ -e go ]; do sleep 0.01; done; sha256sum";
    let request = json!({ "argv": ["sh", "-c", script], "exec_id": "large", "stdin_open": true, "detach": true, "cwd": "/workspace" });
    assert_eq!(session.api.post(&session.path("/run"), request).await.status, 202);
    let writing = tokio::spawn({
        let session = session.clone();
        async move { write_pattern(&session, "large", LARGE).await }
    });
    // The file calls and the shell answer while the write waits for the program.
    session.sh("touch go").await;
    let written = writing.await.unwrap().ok();
    assert_eq!(written, json!({ "bytes": LARGE, "closed": true }));
    let (output, done) = session.reattach("large", 0).await.finish().await;
    assert_eq!(done.data["exit_code"], 0, "{done:?}");
    session.api.put_pattern(&session.path("/files/same"), LARGE).await.unwrap().ok();
    assert_eq!(String::from_utf8(output).unwrap(), session.sh("sha256sum </workspace/same").await);
    daemon.stop().await;
}

#[tokio::test]
async fn input_that_nobody_reads_any_more_is_a_conflict_and_says_why() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let mut stream = start(&session, "deaf", "exec 0<&-; echo deaf; exec sleep 1000").await;
    stream.until("chunk").await;
    refused(&write(&session, "deaf", "", "x").await, Conflict, "the program has closed its standard input");
    let signal = json!({ "signal": "KILL", "exec_id": "deaf" });
    session.api.post(&session.path("/signal"), signal).await.ok();
    stream.finish().await;

    let mut stream = start(&session, "short", "head -c 5; echo").await;
    let answer = write_pattern(&session, "short", LARGE).await;
    refused(&answer, Conflict, "bytes of this request were written before");
    stream.until("done").await;
    refused(&write(&session, "short", "", "x").await, Conflict, "the program has ended");

    let stream = start(&session, "closed", "cat >/dev/null; exec sleep 1000").await;
    write(&session, "closed", "?close=1", "x").await.ok();
    refused(&write(&session, "closed", "", "x").await, Conflict, "was closed before");
    drop(stream);
    daemon.stop().await;
}

#[tokio::test]
async fn input_goes_only_to_a_run_that_keeps_its_input_open() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    refused(&write(&session, "nobody", "", "x").await, ExecNotFound, "nobody");
    session.ask(json!({ "cmd": "true", "exec_id": "command" })).await.ok();
    refused(&write(&session, "command", "", "x").await, Conflict, "stdin_open");
    session.api.post(&session.path("/run"), json!({ "argv": ["true"], "exec_id": "plain" })).await.ok();
    refused(&write(&session, "plain", "", "x").await, Conflict, "stdin_open");
    refused(&write(&session, "plain", "?close=maybe", "x").await, InvalidRequest, "close");
    let both = json!({ "argv": ["cat"], "stdin": "a", "stdin_open": true });
    refused(&session.api.post(&session.path("/run"), both).await, InvalidRequest, "stdin_open");
    daemon.stop().await;
}

#[tokio::test]
async fn a_write_ends_with_the_session_if_the_program_never_reads() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let mut stream = start(&session, "stuck", "head -c 1 >/dev/null; echo begun; exec sleep 1000").await;
    let writing = tokio::spawn({
        let session = session.clone();
        async move { write_pattern(&session, "stuck", LARGE).await }
    });
    stream.until("chunk").await;
    session.destroy().await;
    assert!(writing.await.unwrap().status >= 400);
    daemon.stop().await;
}

#[tokio::test]
async fn cove_run_passes_standard_input_of_any_size_on() {
    let daemon = Daemon::start().await;
    let cove = Cove::of(&daemon);
    let size = usize::try_from(LARGE / 2).unwrap();
    let counted = cove.run_with_stdin(&["run", "--", "wc", "-c"], vec![b'x'; size]).await;
    assert_eq!(counted.ok().trim(), size.to_string());
    // The program takes a part, as `head` does in a pipe.
    let some = cove.run_with_stdin(&["run", "--", "head", "-c", "3"], vec![b'x'; size]).await;
    assert_eq!(some.ok(), "xxx");
    let none = cove.run(&["run", "--", "cat"]).await;
    assert_eq!(none.ok(), "");
    daemon.stop().await;
}

#[tokio::test]
async fn cove_run_answers_while_its_standard_input_stays_open() {
    use std::io::{BufRead as _, BufReader, Write as _};
    let daemon = Daemon::start().await;
    let mut child =
        Cove::of(&daemon).command(&["run", "--", "cat"]).stdin(std::process::Stdio::piped()).spawn().unwrap();
    let (mut stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let answered = tokio::task::spawn_blocking(move || {
        let mut lines = BufReader::new(stdout).lines();
        stdin.write_all(b"first\n").unwrap();
        let first = lines.next().unwrap().unwrap();
        stdin.write_all(b"second\n").unwrap();
        (first, lines.next().unwrap().unwrap())
    });
    let answered = tokio::time::timeout(DEADLINE, answered).await;
    if answered.is_err() {
        // Otherwise the thread that reads would keep this test from ending.
        child.kill().unwrap();
    }
    assert_eq!(answered.expect("an answer in time").unwrap(), ("first".to_owned(), "second".to_owned()));
    wait_until("cove run ends", DEADLINE, async || child.try_wait().unwrap()).await;
    daemon.stop().await;
}
