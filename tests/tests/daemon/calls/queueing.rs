//! Commands that wait for each other in one shell, and commands without a time limit.

use e2e::daemon::{Daemon, EventStream, Session};
use e2e::{LONG_DEADLINE, wait_until};
use serde_json::{Value, json};
use shared_protocol::ErrorCode::{Conflict, InvalidRequest, ShellBusy};

/// Prints a line and runs until the file `go` exists.
const UNTIL_GO: &str = "echo begun; until [ -e go ]; do sleep 0.01; done; echo over";

/// Starts `UNTIL_GO` with this id, and waits until it runs.
async fn occupy(session: &Session, exec_id: &str) -> EventStream {
    let mut stream = session.stream(json!({ "cmd": UNTIL_GO, "exec_id": exec_id })).await;
    stream.until("chunk").await;
    stream
}

async fn ends_well(stream: EventStream) {
    let (output, done) = stream.finish().await;
    assert_eq!((String::from_utf8_lossy(&output).as_ref(), &done.data["exit_code"]), ("over\n", &json!(0)), "{done:?}");
}

#[tokio::test]
async fn a_command_without_a_limit_outlives_the_default_one() {
    let daemon = Daemon::builder().config("[exec]\ndefault_timeout_ms = 300\n").start().await;
    let session = daemon.session().await;
    let run = |limit: Value| {
        let mut request = json!({ "argv": ["sh", "-c", "sleep 0.8; echo alive"] });
        request.as_object_mut().expect("an object").extend(limit.as_object().expect("an object").clone());
        request
    };
    // The control: the default limit ends a plain run.
    let plain = daemon.post(&session.path("/run"), run(json!({}))).await.ok();
    assert_eq!(plain["timed_out"], true, "{plain}");
    for (number, limit) in
        [json!({}), json!({ "timeout_ms": 0 }), json!({ "timeout_ms": null })].into_iter().enumerate()
    {
        let (exec, program) = (format!("exec{number}"), format!("run{number}"));
        let mut detached = run(limit.clone());
        detached["detach"] = json!(true);
        detached["exec_id"] = json!(program);
        assert_eq!(daemon.post(&session.path("/run"), detached).await.status, 202);
        let mut detached = json!({ "cmd": "sleep 0.8; echo alive", "detach": true, "exec_id": exec });
        detached.as_object_mut().expect("an object").extend(limit.as_object().expect("an object").clone());
        assert_eq!(session.ask(detached).await.status, 202);
        for id in [program, exec] {
            let (output, done) = session.reattach(&id, 0).await.finish().await;
            assert_eq!(
                (&done.data["kind"], output.as_slice()),
                (&json!("exited"), &b"alive\n"[..]),
                "{limit} {done:?}"
            );
        }
    }
    let unlimited = daemon.post(&session.path("/run"), run(json!({ "timeout_ms": null }))).await.ok();
    assert_eq!(unlimited["stdout"], "alive\n", "{unlimited}");
    let unlimited = session.ask(json!({ "cmd": "sleep 0.8; echo alive", "timeout_ms": null })).await.ok();
    assert_eq!(unlimited["output"], "alive\n", "{unlimited}");
    daemon.stop().await;
}

#[tokio::test]
async fn the_operators_maximum_holds_for_commands_without_a_limit() {
    let daemon = Daemon::builder().config("[exec]\nmax_timeout_ms = 400\n").start().await;
    let session = daemon.session().await;
    let request = |limit: Value| json!({ "argv": ["sleep", "1000"], "timeout_ms": limit });
    let unlimited = daemon.post(&session.path("/run"), request(Value::Null)).await.ok();
    assert_eq!(unlimited["timed_out"], true, "{unlimited}");
    let detached = json!({ "argv": ["sleep", "1000"], "detach": true, "exec_id": "detached" });
    assert_eq!(daemon.post(&session.path("/run"), detached).await.status, 202);
    let (_, done) = session.reattach("detached", 0).await.finish().await;
    assert_eq!(done.data["kind"], "timed_out", "{done:?}");
    let error = daemon.post(&session.path("/run"), request(json!(401))).await.error();
    assert_eq!(error.error_code, InvalidRequest);
    assert!(error.message.contains("max_timeout_ms"), "{error}");
    daemon.stop().await;
}

#[tokio::test]
async fn a_command_that_may_not_wait_is_refused_and_never_runs() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let running = occupy(&session, "running").await;
    for patience in [0, 100] {
        let request = json!({ "cmd": "touch ran", "queue_timeout_ms": patience });
        let error = session.ask(request.clone()).await.error();
        assert_eq!((error.error_code, error.details), (ShellBusy, Some(json!({ "running_exec_id": "running" }))));
        let (_, last) = session.stream(request).await.finish().await;
        assert_eq!((last.name.as_str(), &last.data["error_code"]), ("error", &json!("SHELL_BUSY")), "{last:?}");
        assert_eq!(last.data["details"]["running_exec_id"], "running", "{last:?}");
    }
    let detached = json!({ "cmd": "touch ran", "queue_timeout_ms": 100, "detach": true, "exec_id": "detached" });
    assert_eq!(session.ask(detached).await.status, 202);
    let (_, last) = session.reattach("detached", 0).await.finish().await;
    assert_eq!(last.data["error_code"], "SHELL_BUSY", "{last:?}");
    session.put("go", "").await.ok();
    ends_well(running).await;
    assert_eq!(session.exec("test -e ran").await["exit_code"], 1);
    // A shell that is free takes it at once.
    assert_eq!(session.ask(json!({ "cmd": "echo free", "queue_timeout_ms": 0 })).await.ok()["output"], "free\n");
    let execs = daemon.get(&session.path("/execs")).await.ok();
    let detached = execs.as_array().expect("a list").iter().find(|exec| exec["exec_id"] == "detached");
    assert_eq!(detached.expect("it is known")["done"]["kind"], "never_ran", "{execs}");
    daemon.stop().await;
}

#[tokio::test]
async fn a_stream_tells_what_its_command_waits_for_and_when_it_begins() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let running = occupy(&session, "running").await;
    let mut waiting = session.stream(json!({ "cmd": "echo mine", "exec_id": "waiting" })).await;
    assert_eq!(waiting.next().await.expect("an event").name, "started");
    let queued = waiting.next().await.expect("an event");
    assert_eq!(queued.name, "queued");
    assert_eq!(queued.data, json!({ "exec_id": "waiting", "running_exec_id": "running" }));
    session.put("go", "").await.ok();
    let begun = waiting.next().await.expect("an event");
    assert_eq!((begun.name.as_str(), begun.data), ("running", json!({ "exec_id": "waiting" })));
    let (output, done) = waiting.finish().await;
    assert_eq!((output.as_slice(), &done.data["exit_code"]), (&b"mine\n"[..], &json!(0)));
    ends_well(running).await;
    // Lines of JSON have the same events; a command that does not wait has none of them.
    session.sh("rm go").await;
    let running = occupy(&session, "again").await;
    let lines = daemon.with_header("accept", "application/x-ndjson");
    let path = session.path("/exec/stream");
    let (answer, _) = tokio::join!(lines.post(&path, json!({ "cmd": "true", "exec_id": "lines" })), async {
        let path = session.path("/execs/lines");
        let known = async || (session.api.get(&path).await.status == 200).then_some(());
        wait_until("the command is known", LONG_DEADLINE, known).await;
        let mut follower = session.reattach("lines", 0).await;
        follower.until("queued").await;
        session.put("go", "").await.ok()
    });
    let names: Vec<String> = answer
        .text()
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect(line)["event"].as_str().expect("a name").to_owned())
        .collect();
    assert_eq!(names, ["started", "queued", "running", "done"]);
    ends_well(running).await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_waiting_command_is_cancelled_by_a_signal_and_the_running_one_goes_on() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let running = occupy(&session, "running").await;
    let signal = async |id: &str, signal: &str| {
        daemon.post(&session.path("/signal"), json!({ "signal": signal, "exec_id": id })).await
    };
    for (name, code) in [("INT", 130), ("TERM", 143), ("KILL", 137)] {
        let mut waiting = session.stream(json!({ "cmd": "touch ran", "exec_id": name })).await;
        waiting.until("queued").await;
        assert_eq!(signal(name, "USR1").await.refused(), Conflict);
        signal(name, name).await.ok();
        let (_, done) = waiting.finish().await;
        assert_eq!((&done.data["kind"], &done.data["exit_code"]), (&json!("never_ran"), &json!(code)), "{done:?}");
        assert_eq!(signal(name, name).await.refused(), Conflict, "it has ended");
    }
    session.put("go", "").await.ok();
    ends_well(running).await;
    assert_eq!(session.exec("test -e ran").await["exit_code"], 1);
    daemon.stop().await;
}
