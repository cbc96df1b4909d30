//! Tests of the calls against the real runner, as a client sees them.

use axum::body::Body;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::{SinkExt as _, StreamExt as _};
use hyper::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;

use super::live::{Event, Events, Live};

#[tokio::test]
async fn a_shell_remembers_from_one_exec_to_the_next() {
    let live = Live::start().await;
    let reply = live.exec(json!({"cmd": "cd /tmp && X=1 && echo hi; echo err >&2"})).await;
    assert_eq!(
        (&reply["exit_code"], &reply["cwd"], &reply["output"]),
        (&json!(0), &json!("/tmp"), &json!("hi\nerr\n"))
    );
    assert_eq!((&reply["truncated"], &reply["output_bytes"]), (&json!(false), &json!(7)));
    assert_eq!(live.session.view().cwd, "/tmp");
    let reply = live.exec(json!({"cmd": "echo $X; echo err >&2; exit 3", "streams": "split"})).await;
    assert_eq!((&reply["exit_code"], &reply["stdout"], &reply["stderr"]), (&json!(3), &json!("1\n"), &json!("err\n")));
}

#[tokio::test]
async fn a_timeout_is_an_answer_with_the_output_so_far() {
    let live = Live::start().await;
    let reply = live.exec(json!({"cmd": "echo begun; sleep 60", "timeout_ms": 300})).await;
    assert_eq!(
        (&reply["timed_out"], &reply["exit_code"], &reply["output"]),
        (&json!(true), &json!(124), &json!("begun\n"))
    );
    assert_eq!(live.exec(json!({"cmd": "echo next"})).await["output"], "next\n");
}

#[tokio::test]
async fn output_beyond_the_limit_is_a_head_and_a_tail() {
    let live = Live::start().await;
    let reply = live.exec(json!({"cmd": "seq 100000", "max_output_bytes": 20})).await;
    assert_eq!(reply["output"], "1\n2\n3\n4\n5\n\n[588875 bytes left out]\n99\n100000\n");
}

#[tokio::test]
async fn a_terminals_output_is_cleaned_unless_it_is_wanted_raw() {
    let live = Live::start().await;
    let cmd = "test -t 1 && printf '\\033[1mbold\\033[0m\\n'";
    assert_eq!(live.exec(json!({"cmd": cmd, "streams": "tty"})).await["output"], "bold\n");
    let raw = live.exec(json!({"cmd": cmd, "streams": "tty", "raw_output": true})).await;
    assert_eq!(raw["output"], "\u{1b}[1mbold\u{1b}[0m\r\n");
}

#[tokio::test]
async fn bytes_that_are_no_text_arrive_exactly() {
    let live = Live::start().await;
    let reply = live.exec(json!({"cmd": "printf 'a\\377b'"})).await;
    assert_eq!(reply["output"], "a\u{fffd}b");
    assert_eq!(STANDARD.decode(reply["output_base64"].as_str().unwrap()).unwrap(), b"a\xffb");
}

#[tokio::test]
async fn a_detached_command_is_found_by_its_id() {
    let live = Live::start().await;
    let (status, reply) = live.post("exec", json!({"cmd": "echo later", "detach": true, "exec_id": "mine"})).await;
    assert_eq!((status, &reply["exec_id"]), (StatusCode::ACCEPTED, &json!("mine")));
    let text = String::from_utf8(live.get("execs/mine?follow=1").await.bytes().await.to_vec()).unwrap();
    let events = Events::default().push(text.as_bytes());
    assert_eq!(names(&events), ["started", "chunk", "done"]);
    let (_, list) = live.json("execs").await;
    assert_eq!((&list[0]["exec_id"], &list[0]["state"]), (&json!("mine"), &json!("ended")));
    let (status, error) = live.post("exec", json!({"cmd": "true", "exec_id": "mine"})).await;
    assert_eq!((status, &error["error_code"]), (StatusCode::CONFLICT, &json!("CONFLICT")));
}

fn names(events: &[Event]) -> Vec<&str> {
    events.iter().map(|event| event.name.as_str()).collect()
}

#[tokio::test]
async fn the_first_byte_comes_when_it_is_printed() {
    let live = Live::start().await;
    let body = json!({"cmd": "echo first; until [ -e go ]; do sleep 0.01; done; echo last"}).to_string();
    let mut stream = live.send(Method::POST, "exec/stream", &[], body).await;
    assert_eq!(stream.headers["content-type"], "text/event-stream");
    let (mut reader, mut events) = (Events::default(), Vec::new());
    while !events.iter().any(|event: &Event| event.name == "chunk") {
        events.extend(reader.push(&stream.piece().await));
    }
    assert_eq!(events[1].data["chunk"], "first\n");
    // Only now can the command continue.
    assert_eq!(live.put("files/go", Body::empty()).await, StatusCode::CREATED);
    while !events.iter().any(|event| event.name == "done") {
        events.extend(reader.push(&stream.piece().await));
    }
    assert_eq!(names(&events), ["started", "chunk", "chunk", "done"]);
    assert_eq!((events[2].id, &events[3].data["exit_code"]), (11, &json!(0)));
    assert_eq!(stream.piece().await, "");
}

#[tokio::test]
async fn lines_come_where_they_are_asked_for() {
    let live = Live::start().await;
    let body = json!({"argv": ["sh", "-c", "echo out; exit 4"]}).to_string();
    let accept = [("accept", "application/x-ndjson")];
    let mut stream = live.send(Method::POST, "run/stream", &accept, body).await;
    assert_eq!(stream.headers["content-type"], "application/x-ndjson");
    let text = String::from_utf8(stream.bytes().await.to_vec()).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0]["event"], "started");
    assert_eq!(
        (&lines[1]["event"], &lines[1]["stream"], &lines[1]["chunk"]),
        (&json!("chunk"), &json!("stdout"), &json!("out\n"))
    );
    assert_eq!((&lines[2]["event"], &lines[2]["exit_code"]), (&json!("done"), &json!(4)));
}

#[tokio::test]
async fn a_connection_cut_anywhere_goes_on_without_a_byte_lost_or_doubled() {
    let live = Live::start().await;
    let cmd = "for i in $(seq 20000); do echo \"line $i äöü€\"; done";
    let expected: String = (1..=20_000).map(|i| format!("line {i} äöü€\n")).collect();
    // Each round cuts the stream after this many events and half of the next one: `started` and at least one chunk.
    for events_before_cut in 2..6 {
        let id = format!("cut-{events_before_cut}");
        let body = json!({"cmd": cmd, "exec_id": id}).to_string();
        let mut stream = live.send(Method::POST, "exec/stream", &[], body).await;
        let (mut output, mut offset, mut is_done) = (String::new(), 0, false);
        while !is_done {
            let (mut reader, mut seen) = (Events::default(), 0);
            while seen < events_before_cut && !is_done {
                for event in reader.push(&stream.piece().await) {
                    seen += 1;
                    offset = event.id;
                    output.push_str(event.data["chunk"].as_str().unwrap_or_default());
                    is_done |= event.name == "done";
                }
            }
            drop(stream);
            let last = offset.to_string();
            let path = format!("execs/{id}?follow=1");
            stream = live.send(Method::GET, &path, &[("last-event-id", &last)], Body::empty()).await;
        }
        assert!(output == expected, "{events_before_cut}");
    }
}

#[tokio::test]
async fn a_session_that_ends_under_a_stream_says_so() {
    let live = Live::start().await;
    let body = json!({"cmd": "echo begun; sleep 60"}).to_string();
    let mut stream = live.send(Method::POST, "exec/stream", &[], body).await;
    let (mut reader, mut events) = (Events::default(), Vec::new());
    while events.len() < 2 {
        events.extend(reader.push(&stream.piece().await));
    }
    live.sessions.destroy(live.session.id()).await.unwrap();
    events.extend(reader.push(&stream.piece().await));
    assert_eq!(events[2].name, "error");
    assert_eq!(events[2].data["error_code"], "SESSION_NOT_FOUND");
    assert_eq!(stream.piece().await, "");
}

#[tokio::test]
async fn a_command_goes_on_when_its_client_has_gone() {
    let live = Live::start().await;
    let body = json!({"cmd": "echo begun; until [ -e go ]; do sleep 0.01; done; echo ended", "exec_id": "left"});
    let mut stream = live.send(Method::POST, "exec/stream", &[], body.to_string()).await;
    stream.piece().await;
    drop(stream);
    live.put("files/go", Body::empty()).await;
    let text = String::from_utf8(live.get("execs/left?follow=1").await.bytes().await.to_vec()).unwrap();
    let events = Events::default().push(text.as_bytes());
    let output: String = events.iter().filter_map(|event| event.data["chunk"].as_str()).collect();
    assert_eq!(output, "begun\nended\n");
}

#[tokio::test]
async fn a_file_of_any_name_and_content_comes_back_as_it_went() {
    let live = Live::start().await;
    let content: Vec<u8> = (0..300_000u32).map(|i| u8::try_from(i * 7 % 256).unwrap()).collect();
    for name in ["plain", "a%20b", "new%0Aline", "%ff%fe", "%C3%A4", "a%2Bb+c", "quote%22%3B", "%25"] {
        let path = format!("files/{name}");
        assert_eq!(live.put(&path, content.clone()).await, StatusCode::CREATED, "{name}");
        let mut answer = live.get(&path).await;
        assert_eq!(answer.headers["x-content-type-options"], "nosniff");
        assert_eq!(answer.headers["content-length"], "300000");
        assert!(answer.bytes().await == content, "{name}");
    }
    assert_eq!(std::fs::read_dir(&live.workspace).unwrap().count(), 8);
    assert_eq!(live.put("files/empty", Body::empty()).await, StatusCode::CREATED);
    assert_eq!(live.get("files/empty").await.bytes().await.len(), 0);
    let absolute = format!("files/{}/plain", live.workspace.display());
    assert_eq!(live.get(&absolute).await.bytes().await.len(), 300_000);
}

#[tokio::test]
async fn a_part_of_a_file_and_its_head_alone() {
    let live = Live::start().await;
    live.put("files/f", "0123456789").await;
    let mut part = live.send(Method::GET, "files/f", &[("range", "bytes=2-4")], Body::empty()).await;
    assert_eq!(
        (part.status, part.headers["content-range"].to_str().unwrap()),
        (StatusCode::PARTIAL_CONTENT, "bytes 2-4/10")
    );
    assert_eq!(part.bytes().await, "234");
    let mut head = live.send(Method::HEAD, "files/f", &[], Body::empty()).await;
    assert_eq!((head.status, head.headers["content-length"].to_str().unwrap()), (StatusCode::OK, "10"));
    assert_eq!(head.bytes().await.len(), 0);
    let (status, error) = live.json("files/missing").await;
    assert_eq!((status, &error["error_code"]), (StatusCode::NOT_FOUND, &json!("FILE_NOT_FOUND")));
}

/// Sends 20 MiB as a simple client does, which reads its answer only after it has sent everything.
async fn put_then_look(live: &Live, path: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", live.port)).await.unwrap();
    let body = vec![0u8; 20 << 20];
    let head = format!("PUT {} HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n", live.path(path), body.len());
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&body).await.unwrap();
    let mut answer = vec![0; 4096];
    let count = stream.read(&mut answer).await.unwrap();
    String::from_utf8_lossy(&answer[..count]).into_owned()
}

#[tokio::test]
async fn a_body_that_is_refused_halfway_has_its_answer() {
    let live = Live::start().await;
    std::fs::create_dir(live.workspace.join("dir")).unwrap();
    let answer = put_then_look(&live, "files/dir").await;
    assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("INVALID_REQUEST"), "{answer}");
}

#[tokio::test]
async fn a_body_for_a_session_that_is_over_has_its_answer() {
    let live = Live::start().await;
    live.sessions.destroy(live.session.id()).await.unwrap();
    for path in ["files/f", "archive?path=d"] {
        let answer = put_then_look(&live, path).await;
        assert!(answer.starts_with("HTTP/1.1 404") && answer.contains("SESSION_NOT_FOUND"), "{answer}");
    }
}

#[tokio::test]
async fn small_files_and_directories_as_documents() {
    let live = Live::start().await;
    let (status, _) = live.post("fs/write", json!({"path": "a.txt", "text": "hello"})).await;
    assert_eq!(status, StatusCode::OK);
    let (_, read) = live.json("fs/read?path=a.txt").await;
    assert_eq!(read, json!({"path": "a.txt", "content_base64": "aGVsbG8=", "truncated": false}));
    let (_, read) = live.json("fs/read?path=a.txt&max_bytes=2").await;
    assert_eq!((&read["content_base64"], &read["truncated"]), (&json!("aGU="), &json!(true)));
    let (status, made) = live.post("fs/mkdir", json!({"path": "d/e", "parents": true})).await;
    assert_eq!((status, &made["kind"]), (StatusCode::CREATED, &json!("directory")));
    let (status, moved) = live.post("fs/move", json!({"from": "a.txt", "to": "d/b.txt"})).await;
    assert_eq!((status, &moved["size"]), (StatusCode::OK, &json!(5)));
    let (_, list) = live.json("fs/list?recursive=true&path=.").await;
    let paths: Vec<&str> = list["entries"].as_array().unwrap().iter().map(|e| e["path"].as_str().unwrap()).collect();
    assert_eq!(paths, ["d", "d/b.txt", "d/e"]);
    assert_eq!(live.json("fs/stat?path=d/b.txt").await.1["mode"], 0o644);
    let mut gone = live.send(Method::DELETE, "fs?path=d&recursive=1", &[], Body::empty()).await;
    assert_eq!(gone.bytes().await, r#"{"ok":true}"#);
    let (status, _) = live.json("fs/stat?path=d").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_form_is_written_to_its_directory_whichever_field_comes_first() {
    let live = Live::start().await;
    let file = "--B\r\ncontent-disposition: form-data; name=\"file\"; filename=\"../x/a.bin\"\r\n\r\nconte\0nt\r\n";
    let path = "--B\r\ncontent-disposition: form-data; name=\"path\"\r\n\r\nup/load\r\n";
    let kind = [("content-type", "multipart/form-data; boundary=B")];
    for form in [format!("{path}{file}--B--\r\n"), format!("{file}{path}--B--\r\n")] {
        let mut answer = live.send(Method::POST, "fs/upload", &kind, form).await;
        let reply: Value = serde_json::from_slice(&answer.bytes().await).unwrap();
        assert_eq!(reply, json!({"ok": true, "paths": ["up/load/a.bin"]}));
        let written = live.workspace.join("up/load/a.bin");
        assert_eq!(std::fs::read(&written).unwrap(), b"conte\0nt");
        std::fs::remove_file(written).unwrap();
    }
    // A form that is cut off leaves no file.
    let answer = live.send(Method::POST, "fs/upload", &kind, format!("{path}{}", &file[..file.len() - 2])).await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    assert!(!live.workspace.join("up/load/a.bin").exists());
}

#[tokio::test]
async fn a_directory_goes_out_and_in_as_an_archive() {
    let live = Live::start().await;
    live.exec(
        json!({"cmd": format!("cd {} && mkdir -p a/b && echo x > a/b/f && ln -s f a/b/l", live.workspace.display())}),
    )
    .await;
    let mut archive = live.get("archive?path=a").await;
    assert_eq!(archive.headers["content-type"], "application/x-tar");
    let bytes = archive.bytes().await;
    assert_eq!(live.put("archive?path=c", bytes).await, StatusCode::CREATED);
    assert_eq!(std::fs::read_to_string(live.workspace.join("c/b/l")).unwrap(), "x\n");
}

#[tokio::test]
async fn shells_are_opened_used_and_closed() {
    let live = Live::start().await;
    let (status, shell) = live.post("shells", json!({"name": "two"})).await;
    assert_eq!((status, &shell["name"]), (StatusCode::CREATED, &json!("two")));
    live.exec(json!({"cmd": "cd /tmp", "shell": "two"})).await;
    assert_ne!(live.session.view().cwd, "/tmp");
    let (_, reset) = live.post("shells/two/reset", json!(null)).await;
    assert_eq!(reset["name"], "two");
    let mut closed = live.send(Method::DELETE, "shells/two", &[], Body::empty()).await;
    assert_eq!(closed.bytes().await, r#"{"ok":true}"#);
    let (status, error) = live.post("exec", json!({"cmd": "true", "shell": "two"})).await;
    assert_eq!((status, &error["error_code"]), (StatusCode::NOT_FOUND, &json!("SHELL_NOT_FOUND")));
}

#[tokio::test]
async fn a_program_reads_what_is_typed_and_hears_signals() {
    let live = Live::start().await;
    let body = json!({"cmd": "echo rea''dy; read -r line; echo got $line; sleep 60", "streams": "tty"}).to_string();
    let mut stream = live.send(Method::POST, "exec/stream", &[], body).await;
    let (mut reader, mut output) = (Events::default(), String::new());
    for (wanted, typed) in [("ready", Some("word\n")), ("got word", None)] {
        while !output.contains(wanted) {
            for event in reader.push(&stream.piece().await) {
                output.push_str(event.data["chunk"].as_str().unwrap_or_default());
            }
        }
        if let Some(data) = typed {
            assert_eq!(live.post("input", json!({ "data": data })).await.0, StatusCode::OK);
        }
    }
    let (status, _) = live.post("signal", json!({"signal": "INT"})).await;
    assert_eq!(status, StatusCode::OK);
    let (status, error) = live.post("resize", json!({"cols": 0, "rows": 5})).await;
    assert_eq!((status, &error["error_code"]), (StatusCode::BAD_REQUEST, &json!("INVALID_REQUEST")));
}

#[tokio::test]
async fn a_terminal_is_a_websocket_and_its_own_shell_ends_with_it() {
    let live = Live::start().await;
    let url = format!("ws://127.0.0.1:{}{}", live.port, live.path("terminal?cols=100&rows=30"));
    let stream = TcpStream::connect(("127.0.0.1", live.port)).await.unwrap();
    let (mut socket, _) = tokio_tungstenite::client_async(&url, stream).await.unwrap();
    let Message::Text(ready) = socket.next().await.unwrap().unwrap() else { panic!("the first message is text") };
    let ready: Value = serde_json::from_str(&ready).unwrap();
    assert_eq!(ready["type"], "ready");
    let shell = ready["shell"].as_str().unwrap().to_owned();
    socket.send(Message::text(r#"{"type":"resize","cols":90,"rows":20}"#)).await.unwrap();
    socket.send(Message::binary(&b"stty size; echo e''nd\n"[..])).await.unwrap();
    let mut output = String::new();
    while !output.contains("end\r\n") {
        if let Message::Binary(bytes) = socket.next().await.unwrap().unwrap() {
            output.push_str(&String::from_utf8_lossy(&bytes));
        }
    }
    assert!(output.contains("20 90"), "{output:?}");
    socket.send(Message::binary(&b"exit\n"[..])).await.unwrap();
    let (mut exit, mut close) = (None, None);
    while let Some(Ok(message)) = socket.next().await {
        match message {
            Message::Text(text) => exit = Some(serde_json::from_str::<Value>(&text).unwrap()),
            Message::Close(frame) => close = frame,
            _ => {}
        }
    }
    assert_eq!(exit, Some(json!({"type": "exit", "exit_code": 0})));
    assert_eq!(u16::from(close.unwrap().code), 1000);
    let (_, shells) = live.json("shells").await;
    assert!(!shells.to_string().contains(&format!("\"{shell}\"")), "{shells}");
}

#[tokio::test]
async fn a_named_terminal_stays_and_nonsense_is_told() {
    let live = Live::start().await;
    let url = format!("ws://127.0.0.1:{}{}", live.port, live.path("terminal?shell=mine"));
    let stream = TcpStream::connect(("127.0.0.1", live.port)).await.unwrap();
    let (mut socket, _) = tokio_tungstenite::client_async(&url, stream).await.unwrap();
    socket.next().await.unwrap().unwrap();
    socket.send(Message::text("nonsense")).await.unwrap();
    let mut code = None;
    while let Some(Ok(message)) = socket.next().await {
        if let Message::Close(Some(frame)) = message {
            code = Some(u16::from(frame.code));
        }
    }
    assert_eq!(code, Some(1003));
    let (_, shells) = live.json("shells").await;
    assert!(shells.to_string().contains("\"mine\""), "{shells}");
    let (status, error) = live.json("terminal").await;
    assert_eq!((status, &error["error_code"]), (StatusCode::BAD_REQUEST, &json!("INVALID_REQUEST")));
}
