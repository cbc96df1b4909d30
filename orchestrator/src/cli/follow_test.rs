//! A stream that is cut is followed from where it was: every byte once.

use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::client::{ApiKey, Endpoint};

#[test]
fn a_piece_that_was_partly_seen_is_new_only_from_there() {
    let mut cursor = Cursor { next: 4 };
    assert_eq!(cursor.take(2, b"cdef"), Fresh { missing: 0, bytes: b"ef" });
    assert_eq!(cursor.take(0, b"abc"), Fresh { missing: 0, bytes: b"" });
    assert_eq!(cursor.take(8, b"i"), Fresh { missing: 2, bytes: b"i" });
    assert_eq!(cursor, Cursor { next: 9 });
}

#[test]
fn a_gap_counts_only_what_had_not_come() {
    let mut cursor = Cursor { next: 10 };
    assert_eq!(cursor.skip(0, 5), 0);
    assert_eq!(cursor.skip(5, 20), 15);
    assert_eq!(cursor, Cursor { next: 25 });
}

proptest! {
    #[test]
    fn however_often_it_is_cut_and_asked_again_every_byte_comes_once(
        text in proptest::collection::vec(any::<u8>(), 1..200),
        cuts in proptest::collection::vec((0usize..200, 1usize..40), 1..20),
    ) {
        let mut cursor = Cursor::default();
        let mut seen = Vec::new();
        for (back, length) in cuts.into_iter().chain([(0, 200)]) {
            let from = usize::try_from(cursor.next).unwrap().saturating_sub(back);
            let piece = &text[from.min(text.len())..(from + length).min(text.len())];
            let fresh = cursor.take(from as u64, piece);
            prop_assert_eq!(fresh.missing, 0);
            seen.extend_from_slice(fresh.bytes);
        }
        prop_assert_eq!(seen, text);
    }
}

const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\n\r\n";
const DONE: &str = "{\"event\":\"done\",\"kind\":\"exited\",\"exit_code\":5}\n";

fn chunk(stream: &str, offset: u64, text: &str) -> String {
    format!("{{\"event\":\"chunk\",\"chunk\":{text:?},\"stream\":\"{stream}\",\"offset\":{offset},\"timestamp\":0}}\n")
}

/// A daemon that gives each connection one of the answers, and then cuts it. It notes what was asked for.
async fn serve(listener: TcpListener, answers: Vec<String>, asked: Arc<Mutex<Vec<String>>>) {
    for answer in answers {
        let (mut stream, _) = listener.accept().await.unwrap();
        let line = request_line(&mut stream).await;
        asked.lock().unwrap().push(line);
        stream.write_all(answer.as_bytes()).await.unwrap();
    }
}

async fn request_line(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap().lines().next().unwrap().to_owned()
}

/// The end, standard output and standard error, and what was asked for.
async fn followed(answers: Vec<String>) -> (Result<StreamDone, Failure>, String, String, Vec<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = Endpoint::parse(&listener.local_addr().unwrap().to_string()).unwrap();
    let client = Client::new(endpoint, ApiKey::new("k"));
    let (session, exec) = (SessionId::new("s").unwrap(), ExecId::new("e").unwrap());
    let asked = Arc::new(Mutex::new(Vec::new()));
    let serving = tokio::spawn(serve(listener, answers, asked.clone()));
    let (stdout, mut printed) = tokio::io::duplex(4096);
    let (stderr, mut complained) = tokio::io::duplex(4096);
    let sinks = Sinks { stdout: Box::new(stdout), stderr: Box::new(stderr) };
    let mut follower = Follower { sinks, ..Follower::new(&client, &session, exec.clone()) };
    let begun = client.reattach(&session, &exec, 0).await;
    let result = follower.follow(begun).await;
    drop(follower);
    let (mut out, mut err) = (String::new(), String::new());
    printed.read_to_string(&mut out).await.unwrap();
    complained.read_to_string(&mut err).await.unwrap();
    serving.abort();
    let asked = asked.lock().unwrap().clone();
    (result, out, err, asked)
}

#[tokio::test]
async fn a_connection_that_is_cut_is_made_again_from_where_it_was() {
    let (result, out, err, asked) = followed(vec![
        format!("{HEAD}{}", chunk("stdout", 0, "one ")),
        // Cut within a line, and before the head.
        format!("{HEAD}{}{{\"event\":\"chu", chunk("stderr", 4, "oops ")),
        String::new(),
        format!("{HEAD}{}{DONE}", chunk("stdout", 9, "two")),
    ])
    .await;
    assert_eq!(result.unwrap().exit_code, 5);
    assert_eq!((out.as_str(), err.as_str()), ("one two", "oops "));
    let from: Vec<&str> = asked.iter().filter_map(|line| line.split("from=").nth(1)?.split('&').next()).collect();
    assert_eq!(from, ["0", "4", "9", "9"]);
}

#[tokio::test]
async fn a_daemon_that_refuses_is_not_asked_again() {
    let body = r#"{"error_code":"SESSION_NOT_FOUND","message":"no session s"}"#;
    let refusal = format!("HTTP/1.1 404 Not Found\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let (result, _, _, asked) = followed(vec![refusal]).await;
    assert_eq!(result.unwrap_err().code(), 1);
    assert_eq!(asked.len(), 1);
}
