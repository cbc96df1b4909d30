//! Streamed output: prompt, complete, in order, for readers of any speed, and again after a lost connection.

use std::time::Duration;

use e2e::daemon::{Ability, Daemon, Event, Session};
use e2e::{DEADLINE, LONG_DEADLINE, procfs, wait_until};
use http_body_util::BodyExt as _;
use hyper::Method;
use serde_json::{Value, json};
use shared_protocol::ErrorCode::{Conflict, ExecNotFound, InvalidRequest, ShellNotFound};

const GIB: u64 = 1 << 30;

/// The most memory of a daemon while gigabytes pass through it, in KiB.
const MAX_DAEMON_KIB: u64 = 100 << 10;

/// The most memory of the runner, from SPECIFICATION.md.
const MAX_RUNNER_KIB: u64 = 32 << 10;

#[tokio::test]
async fn the_first_byte_comes_while_the_command_still_runs() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    for path in ["/exec/stream", "/run/stream"] {
        let cmd = "echo first; until [ -e go ]; do sleep 0.01; done; echo second; rm go";
        let request = match path {
            "/exec/stream" => json!({ "cmd": cmd }),
            _ => json!({ "argv": ["bash", "-c", cmd] }),
        };
        let mut stream = daemon.events(Method::POST, &session.path(path), request).await;
        assert_eq!(stream.next().await.expect("an event").name, "started");
        let first = stream.until("chunk").await;
        assert_eq!(first.data["chunk"], "first\n");
        // Only now can the command end.
        session.put("go", "").await.ok();
        let (rest, done) = stream.finish().await;
        assert_eq!(String::from_utf8_lossy(&rest), "second\n");
        assert_eq!(done.data["exit_code"], 0, "{done:?}");
        assert_eq!(done.data["output_bytes"], 13, "{done:?}");
    }
    daemon.stop().await;
}

#[tokio::test]
async fn every_event_has_the_offset_at_which_to_go_on() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let mut stream =
        session.stream(json!({ "cmd": "for i in 1 2 3; do echo ü$i; sleep 0.05; done", "exec_id": "mine" })).await;
    let mut offset = 0;
    loop {
        let event = stream.next().await.expect("an event");
        match event.name.as_str() {
            "started" => assert_eq!(event.data["exec_id"], "mine"),
            "chunk" => {
                assert_eq!(event.data["offset"], offset);
                offset += u64::try_from(event.bytes().len()).expect("small");
                assert_eq!(event.id.as_deref(), Some(offset.to_string().as_str()));
                assert_eq!(event.data["stream"], "merged");
                assert!(event.data["timestamp"].as_u64() > Some(1_700_000_000_000));
            }
            "done" => break,
            other => panic!("{other}: {event:?}"),
        }
    }
    assert_eq!(offset, 12);
    // A browser's EventSource asks again like this.
    let again = daemon.with_header("last-event-id", "8");
    let path = session.path("/execs/mine?follow=1");
    let (rest, _) = again.events(Method::GET, &path, Value::Null).await.finish().await;
    assert_eq!(String::from_utf8_lossy(&rest), "ü3\n");
    daemon.stop().await;
}

#[tokio::test]
async fn output_that_is_read_again_has_the_time_at_which_it_was_printed() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let times = async |mut stream: e2e::daemon::EventStream| {
        let mut times = Vec::new();
        loop {
            let event = stream.next().await.expect("a stream ends with an event");
            match event.name.as_str() {
                "chunk" => times.push((event.data["chunk"].clone(), event.data["timestamp"].as_u64().expect("a time"))),
                "done" => return times,
                _ => {}
            }
        }
    };
    let cmd = "echo 1; sleep 0.3; echo 2; sleep 0.3; echo 3";
    let live = times(session.stream(json!({ "cmd": cmd, "exec_id": "slow" })).await).await;
    assert_eq!(live.iter().map(|(text, _)| text).collect::<Vec<_>>(), ["1\n", "2\n", "3\n"]);
    assert!(live.windows(2).all(|two| two[1].1 >= two[0].1 + 250), "{live:?}");
    assert_eq!(times(session.reattach("slow", 0).await).await, live);
    let last = times(session.reattach("slow", 4).await).await;
    assert_eq!(last, live[2..]);
    daemon.stop().await;
}

/// The length of each numbered line; all are equal.
const LINE_BYTES: u64 = 10;

fn numbered(offset: u64) -> Vec<u8> {
    format!("{:09}\n", offset / LINE_BYTES).into_bytes()
}

/// The command prints twenty megabytes in blocks that fit into the kept output. Each block is printed after the client has
/// seen the one before, so that no unseen output is dropped, however long the client is away.
#[tokio::test]
async fn a_client_that_loses_its_connection_again_and_again_gets_every_byte_once() {
    const BLOCKS: u64 = 20;
    const LINES: u64 = 100_000;
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let cmd = format!(
        "mkfifo turn; for ((b = 0; b < {BLOCKS}; b++)); do seq -f %09.0f $((b * {LINES})) $((b * {LINES} + {LINES} - 1)); read < turn; done"
    );
    let mut stream = session.stream(json!({ "cmd": cmd, "exec_id": "long" })).await;
    let (mut received, mut cuts, mut next_cut): (u64, u32, u64) = (0, 0, 1000);
    loop {
        let event = stream.next().await.expect("a stream ends with an event");
        match event.name.as_str() {
            "started" => {}
            "chunk" => {
                assert_eq!(event.data["offset"], received, "after {cuts} cuts");
                let was_in = received / (LINES * LINE_BYTES);
                for byte in event.bytes() {
                    let place = usize::try_from(received % LINE_BYTES).expect("small");
                    assert_eq!(byte, numbered(received)[place], "at {received}");
                    received += 1;
                }
                if received / (LINES * LINE_BYTES) > was_in {
                    session.run(&["sh", "-c", "echo > turn"]).await;
                }
            }
            "done" => break,
            other => panic!("{other}: {event:?}"),
        }
        if received >= next_cut {
            drop(stream);
            cuts += 1;
            // These lengths have no common period with anything else.
            next_cut = received + (received * 7919) % 900_000 + 1;
            stream = session.reattach("long", received).await;
        }
    }
    assert_eq!(received, BLOCKS * LINES * LINE_BYTES);
    assert!(cuts > 20, "only {cuts} cuts");
    daemon.stop().await;
}

#[tokio::test]
async fn lines_of_json_are_to_be_had_as_well() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let api = daemon.with_header("accept", "application/x-ndjson");
    let request = json!({ "cmd": "echo out; exit 3", "exec_id": "lines" });
    let answer = api.post(&session.path("/exec/stream"), request).await;
    assert_eq!(answer.header("content-type"), "application/x-ndjson");
    let parse =
        |text: &str| -> Vec<Value> { text.lines().map(|line| serde_json::from_str(line).expect(line)).collect() };
    let frames = parse(&answer.text());
    assert_eq!(frames[0], json!({ "event": "started", "exec_id": "lines" }));
    assert_eq!((&frames[1]["event"], &frames[1]["chunk"]), (&json!("chunk"), &json!("out\n")));
    let last = frames.last().expect("a line");
    assert_eq!((&last["event"], &last["exit_code"]), (&json!("done"), &json!(3)), "{last}");
    let again = parse(&api.get(&session.path("/execs/lines?from=1")).await.text());
    assert!(again.iter().any(|frame| frame["chunk"] == "ut\n"), "{again:?}");
    daemon.stop().await;
}

#[tokio::test]
async fn a_program_that_asks_is_seen_to_wait_and_is_answered() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let mut stream =
        session.stream(json!({ "cmd": "read -p 'name? ' name; echo hello $name", "streams": "tty" })).await;
    // If the runtime cannot tell, the program has at least printed its question.
    let sign = if Ability::WaitingSeen.is_there("awaiting_input") { "awaiting_input" } else { "chunk" };
    stream.until(sign).await;
    daemon.post(&session.path("/input"), json!({ "data": "world\n" })).await.ok();
    let (rest, done) = stream.finish().await;
    assert!(String::from_utf8_lossy(&rest).contains("hello world"), "{:?}", String::from_utf8_lossy(&rest));
    assert_eq!(done.data["exit_code"], 0);
    daemon.stop().await;
}

#[tokio::test]
async fn a_signal_reaches_the_program_in_front() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let mut stream =
        session.stream(json!({ "cmd": "bash -c 'echo begun; exec sleep 1000'", "exec_id": "sleeper" })).await;
    stream.until("chunk").await;
    daemon.post(&session.path("/signal"), json!({ "signal": "TERM", "exec_id": "sleeper" })).await.ok();
    let (_, done) = stream.finish().await;
    assert_eq!(done.data["exit_code"], 143, "{done:?}");
    let refused = daemon.post(&session.path("/signal"), json!({ "signal": "TERM", "exec_id": "nobody" })).await;
    assert_eq!(refused.refused(), ExecNotFound);
    let refused = daemon.post(&session.path("/signal"), json!({ "signal": "NONSENSE" })).await;
    assert_eq!(refused.refused(), InvalidRequest);
    daemon.stop().await;
}

#[tokio::test]
async fn the_two_streams_are_kept_apart_where_that_is_asked_for() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let reply = session.ask(json!({ "cmd": "echo out; echo err >&2", "streams": "split" })).await.ok();
    assert_eq!((&reply["stdout"], &reply["stderr"]), (&json!("out\n"), &json!("err\n")), "{reply}");
    let merged = session.sh("echo out; echo err >&2; echo more").await;
    assert_eq!(merged, "out\nerr\nmore\n");
    let mut stream = session.stream(json!({ "cmd": "echo out; echo err >&2", "streams": "split" })).await;
    let mut seen: Vec<Event> = Vec::new();
    while seen.last().is_none_or(|event| event.name != "done") {
        seen.push(stream.next().await.expect("an event"));
    }
    let of = |name: &str| -> String {
        seen.iter()
            .filter(|event| event.data["stream"] == name)
            .filter_map(|event| event.data["chunk"].as_str())
            .collect()
    };
    assert_eq!((of("stdout"), of("stderr")), ("out\n".into(), "err\n".into()));
    let run = session.run(&["sh", "-c", "echo out; echo err >&2; exit 5"]).await;
    assert_eq!((&run["stdout"], &run["stderr"], &run["exit_code"]), (&json!("out\n"), &json!("err\n"), &json!(5)));
    daemon.stop().await;
}

#[tokio::test]
async fn bytes_that_are_no_text_arrive_as_they_were() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let cmd = r"for ((i = 0; i < 256; i++)); do printf \\x$(printf %02x $i); done";
    let all: Vec<u8> = (0..=255).collect();
    let (streamed, _) = session.stream(json!({ "cmd": cmd })).await.finish().await;
    assert_eq!(streamed, all);
    let reply = session.exec(cmd).await;
    assert_eq!(decoded(&reply["output_base64"]), all);
    let run = session.run(&["bash", "-c", cmd]).await;
    assert_eq!(decoded(&run["stdout_base64"]), all);
    // A character that arrives in two writes stays one character.
    let (split, _) = session.stream(json!({ "cmd": r"printf '\xc3'; sleep 0.2; printf '\xbc'" })).await.finish().await;
    assert_eq!(String::from_utf8_lossy(&split), "ü");
    let reply = session.exec(r"printf '\xc3'; sleep 0.1; printf '\xbc'").await;
    assert_eq!((&reply["output"], &reply["output_base64"]), (&json!("ü"), &Value::Null), "{reply}");
    daemon.stop().await;
}

fn decoded(value: &Value) -> Vec<u8> {
    use base64::Engine as _;
    let text = value.as_str().expect("base64 beside text that is not exact");
    base64::engine::general_purpose::STANDARD.decode(text).expect("base64")
}

#[tokio::test]
async fn a_long_reply_has_its_head_and_its_tail() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let reply = session.ask(json!({ "cmd": "seq 1 100000", "max_output_bytes": 1000 })).await.ok();
    let output = reply["output"].as_str().expect("text");
    assert!(output.starts_with("1\n2\n3\n") && output.ends_with("\n99999\n100000\n"), "{output}");
    assert_eq!(reply["truncated"], true);
    assert_eq!(reply["output_bytes"], 588_895);
    assert_eq!(reply["omitted_bytes"], 588_895 - 1000, "{output}");
    assert!(output.contains("587895"), "it is not said how much is left out: {output}");
    let whole = session.ask(json!({ "cmd": "seq 1 100000" })).await.ok();
    assert_eq!((&whole["truncated"], whole["output"].as_str().map(str::len)), (&json!(false), Some(588_895)));
    let huge = session.ask(json!({ "cmd": "head -c 30M /dev/zero | tr '\\0' x" })).await.ok();
    assert_eq!((&huge["truncated"], &huge["output_bytes"]), (&json!(true), &json!(30 << 20)));
    assert!(huge["output"].as_str().map(str::len) < Some(2 << 20));
    let none = session.ask(json!({ "cmd": "echo x", "max_output_bytes": 0 })).await.ok();
    assert_eq!(none["output_bytes"], 2, "{none}");
    daemon.stop().await;
}

#[tokio::test]
async fn a_command_whose_time_is_up_is_an_answer_with_its_output() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    session.sh("cd /tmp; export KEPT=1").await;
    for cmd in ["echo before; sleep 1000", "echo before; trap '' INT TERM; while :; do sleep 1000; done"] {
        let reply = session.ask(json!({ "cmd": cmd, "timeout_ms": 300 })).await.ok();
        assert_eq!((&reply["exit_code"], &reply["timed_out"]), (&json!(124), &json!(true)), "{reply}");
        // Bash reports for each program that it was killed.
        assert!(reply["output"].as_str().is_some_and(|text| text.starts_with("before\n")), "{reply}");
        assert_eq!(session.sh("echo $KEPT; pwd").await, "1\n/tmp\n");
    }
    let run = daemon.post(&session.path("/run"), json!({ "argv": ["sleep", "1000"], "timeout_ms": 200 })).await.ok();
    assert_eq!((&run["exit_code"], &run["timed_out"]), (&json!(124), &json!(true)), "{run}");
    let (_, done) = session.stream(json!({ "cmd": "sleep 1000", "timeout_ms": 200 })).await.finish().await;
    assert_eq!((done.name.as_str(), &done.data["exit_code"]), ("done", &json!(124)));
    daemon.stop().await;
}

#[tokio::test]
async fn a_detached_command_goes_on_and_is_read_later() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    for (path, request) in [
        ("/exec", json!({ "cmd": "until [ -e go ]; do sleep 0.01; done; echo late", "detach": true, "exec_id": "d1" })),
        (
            "/run",
            json!({ "argv": ["bash", "-c", "until [ -e go ]; do sleep 0.01; done; echo late"], "detach": true, "exec_id": "d2" }),
        ),
    ] {
        let answer = daemon.post(&session.path(path), request.clone()).await;
        assert_eq!((answer.status, &answer.json()["exec_id"]), (202, &request["exec_id"]));
        assert_eq!(daemon.post(&session.path(path), request).await.refused(), Conflict);
    }
    session.put("go", "").await.ok();
    for id in ["d1", "d2"] {
        let (output, done) = session.reattach(id, 0).await.finish().await;
        assert_eq!((String::from_utf8_lossy(&output).as_ref(), &done.data["exit_code"]), ("late\n", &json!(0)));
    }
    let execs = daemon.get(&session.path("/execs")).await.ok();
    let known: Vec<&str> =
        execs.as_array().expect("a list").iter().filter_map(|exec| exec["exec_id"].as_str()).collect();
    assert!(known.contains(&"d1") && known.contains(&"d2"), "{execs}");
    assert_eq!(daemon.get(&session.path("/execs/nobody")).await.refused(), ExecNotFound);
    daemon.stop().await;
}

#[tokio::test]
async fn a_command_gets_what_it_was_given() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let reply = session
        .ask(json!({ "cmd": "cat; echo $A; pwd", "stdin": "typed\n", "env": { "A": "b" }, "cwd": "/tmp" }))
        .await
        .ok();
    assert_eq!(reply["output"], "typed\nb\n/tmp\n");
    let after = session.sh("echo ${A-unset}; pwd").await;
    assert_eq!(after, "unset\n/workspace\n");
    let large = "x".repeat(3 << 20);
    let reply = session.ask(json!({ "cmd": "wc -c", "stdin": large })).await.ok();
    assert_eq!(reply["output"].as_str().map(str::trim), Some("3145728"));
    let run = daemon.post(&session.path("/run"), json!({ "argv": ["cat"], "stdin_base64": "/wD+" })).await.ok();
    assert_eq!(decoded(&run["stdout_base64"]), [0xff, 0, 0xfe]);
    let missing = session.run(&["no-such-program"]).await;
    assert_eq!(missing["exit_code"], 127, "{missing}");
    daemon.stop().await;
}

#[tokio::test]
async fn shells_are_opened_used_reset_and_closed() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    session.sh("export A=main").await;
    daemon.post(&session.path("/shells"), json!({ "name": "two" })).await.ok();
    assert_eq!(daemon.post(&session.path("/shells"), json!({ "name": "two" })).await.refused(), Conflict);
    let in_two = async |cmd: &str| session.ask(json!({ "cmd": cmd, "shell": "two" })).await.ok()["output"].clone();
    assert_eq!(in_two("export A=two; echo $A").await, "two\n");
    assert_eq!(session.sh("echo $A").await, "main\n");
    // One shell works while the other is busy.
    let mut busy = session.stream(json!({ "cmd": "echo begun; sleep 1000" })).await;
    busy.until("chunk").await;
    assert_eq!(in_two("echo beside").await, "beside\n");
    let names: Vec<String> = daemon
        .get(&session.path("/shells"))
        .await
        .ok()
        .as_array()
        .expect("a list")
        .iter()
        .map(|shell| {
            format!("{}:{}", shell["name"].as_str().expect("a name"), shell["state"].as_str().expect("a state"))
        })
        .collect();
    assert_eq!(names, ["main:busy", "two:idle"]);
    daemon.post(&session.path("/shells/main/reset"), json!({})).await.ok();
    let (_, done) = busy.finish().await;
    assert_eq!(done.data["kind"], "lost", "{done:?}");
    assert_eq!(session.sh("echo ${A-fresh}").await, "fresh\n");
    daemon.delete(&session.path("/shells/two")).await.ok();
    assert_eq!(session.ask(json!({ "cmd": "true", "shell": "two" })).await.refused(), ShellNotFound);
    assert_eq!(daemon.delete(&session.path("/shells/two")).await.refused(), ShellNotFound);
    daemon.stop().await;
}

#[tokio::test]
async fn a_gibibyte_is_streamed_exactly_and_nobody_grows() {
    const TIMES: usize = 16;
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    // 64 MiB of lines of 16 bytes, each with its number.
    let lines: String = (0..4 << 20).map(|line| format!("{line:015}\n")).collect();
    let put = session.put("lines", lines.clone()).await;
    assert_eq!(put.status, 201, "{}", put.text());
    let cmd = format!("for ((i = 0; i < {TIMES}; i++)); do cat lines; done");
    let mut stream = session.stream(json!({ "cmd": cmd, "timeout_ms": 600_000 })).await;
    let (mut received, start) = (0, std::time::Instant::now());
    loop {
        let event = stream.next().await.expect("a stream ends with an event");
        match event.name.as_str() {
            "chunk" => {
                assert_eq!(event.data["offset"], received);
                let mut rest = event.data["chunk"].as_str().expect("text");
                while !rest.is_empty() {
                    let expected = &lines[received % lines.len()..];
                    let count = rest.len().min(expected.len());
                    assert!(rest[..count] == expected[..count], "wrong bytes behind {received}");
                    received += count;
                    rest = &rest[count..];
                }
            }
            "done" => break,
            "started" => {}
            other => panic!("{other}: {event:?}"),
        }
    }
    assert_eq!(received, TIMES * lines.len());
    let took = start.elapsed();
    let peaks = [daemon.pid(), daemon.runner_pid(&session)].map(|pid| procfs::status_kib(pid, "VmHWM"));
    println!("1 GiB of events in {took:?}; peaks of daemon and runner: {peaks:?} KiB");
    assert!(peaks[0] < MAX_DAEMON_KIB, "{peaks:?} KiB");
    if Ability::RunnerOnHost.is_there("the runner's memory") {
        assert!(peaks[1] < MAX_RUNNER_KIB, "{peaks:?} KiB");
    }
    daemon.stop().await;
}

/// Starts a stream and reads nothing of it.
async fn unread(session: &Session, cmd: &str, id: &str) -> hyper::Response<hyper::body::Incoming> {
    let body = json!({ "cmd": cmd, "exec_id": id, "timeout_ms": 600_000 }).to_string();
    session.api.open(Method::POST, &session.path("/exec/stream"), body).await.expect("a stream")
}

#[tokio::test]
async fn a_reader_that_does_not_read_neither_grows_the_daemon_nor_holds_anybody_up() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let before = procfs::status_kib(daemon.pid(), "VmRSS");
    let stalled = unread(&session, "head -c 1G /dev/zero | tr '\\0' x", "flood").await;
    // The command is not delayed either: output that nobody took in time becomes a gap.
    let done = wait_until("the command's end", LONG_DEADLINE, async || {
        let execs = daemon.get(&session.path("/execs")).await.ok();
        execs.as_array()?.iter().find(|exec| exec["exec_id"] == "flood")?.get("done").cloned()
    })
    .await;
    assert_eq!((&done["exit_code"], &done["output_bytes"]), (&json!(0), &json!(GIB)), "{done}");
    let after = procfs::status_kib(daemon.pid(), "VmHWM");
    println!("before {before} KiB, peak {after} KiB");
    assert!(after < before + (32 << 10), "it grew from {before} to {after} KiB");
    assert_eq!(session.sh("echo beside").await, "beside\n");
    // When it is read at last, it reports the loss and ends normally.
    let mut body = stalled.into_body();
    let mut text = Vec::new();
    while let Some(frame) = tokio::time::timeout(DEADLINE, body.frame()).await.expect("more") {
        let data = frame.expect("the connection holds").into_data().unwrap_or_default();
        text.extend_from_slice(&data[data.len().saturating_sub(1000)..]);
        let keep = text.len().saturating_sub(4000);
        text.drain(..keep);
    }
    assert!(String::from_utf8_lossy(&text).contains("event: done"), "{}", String::from_utf8_lossy(&text));
    daemon.stop().await;
}

#[tokio::test]
async fn many_slow_readers_of_one_command_are_each_served() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let first = session.stream(json!({ "cmd": "seq 1 200000", "exec_id": "shared" })).await;
    let others = futures_util::future::join_all((0..8).map(|_| session.reattach("shared", 0))).await;
    let (expected, _) = first.finish().await;
    assert_eq!(expected.len(), 1_288_895);
    for stream in others {
        let (output, done) = stream.finish().await;
        assert!(output == expected, "{} bytes", output.len());
        assert_eq!(done.name, "done");
    }
    daemon.stop().await;
}

#[tokio::test]
async fn a_client_that_leaves_does_not_end_its_command() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let mut stream = session
        .stream(json!({ "cmd": "echo begun; until [ -e go ]; do sleep 0.01; done; echo ended", "exec_id": "left" }))
        .await;
    stream.until("chunk").await;
    drop(stream);
    let asked = {
        let session = session.clone();
        tokio::spawn(async move { session.ask(json!({ "cmd": "echo queued", "exec_id": "queued" })).await })
    };
    tokio::time::timeout(Duration::from_secs(10), session.put("go", "")).await.expect("files are not held up").ok();
    assert_eq!(asked.await.expect("an answer").ok()["output"], "queued\n");
    let (output, _) = session.reattach("left", 0).await.finish().await;
    assert_eq!(String::from_utf8_lossy(&output), "begun\nended\n");
    daemon.stop().await;
}
