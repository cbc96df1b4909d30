//! Compares the wire types with the frozen `schema/runner.json`: a change there affects everyone who speaks the protocol.
//! After an intended change, `UPDATE_SCHEMA=1 cargo test -p shared-protocol` writes the file again.

use schemars::schema_for;
use serde_json::{Value, json};

use super::*;
use crate::{ErrorBody, ErrorCode, ExecId, ShellName};

fn schemas() -> Value {
    json!({
        "ClaimRequest": schema_for!(ClaimRequest),
        "ErrorBody": schema_for!(ErrorBody),
        "ExecRequest": schema_for!(ExecRequest),
        "ExecView": schema_for!(ExecView),
        "FileView": schema_for!(FileView),
        "Frame": schema_for!(Frame),
        "GatherLine": schema_for!(GatherLine),
        "HealthView": schema_for!(HealthView),
        "InputRequest": schema_for!(InputRequest),
        "ListView": schema_for!(ListView),
        "OpenShellRequest": schema_for!(OpenShellRequest),
        "PortList": schema_for!(PortList),
        "ResizeRequest": schema_for!(ResizeRequest),
        "RestoreRequest": schema_for!(RestoreRequest),
        "RunRequest": schema_for!(RunRequest),
        "ShellEndView": schema_for!(ShellEndView),
        "ShellView": schema_for!(ShellView),
        "SignalRequest": schema_for!(SignalRequest),
        "StdinView": schema_for!(StdinView),
        "WatchFrame": schema_for!(WatchFrame),
        "WroteView": schema_for!(WroteView),
    })
}

#[test]
fn the_wire_is_the_frozen_schema() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/schema/runner.json");
    let now = serde_json::to_string_pretty(&schemas()).unwrap() + "\n";
    if std::env::var_os("UPDATE_SCHEMA").is_some() {
        std::fs::write(path, &now).unwrap();
    }
    let frozen = std::fs::read_to_string(path).unwrap();
    assert!(now == frozen, "the wire types differ from schema/runner.json; see the top of this file");
}

/// Checks the exact bytes, which the schema does not fix. Clients in other languages are written against these lines.
#[test]
fn frames_look_as_documented() {
    let exec_id = ExecId::new("e-1").unwrap();
    let lines = [
        (
            Frame::Started { exec_id: exec_id.clone(), shell: Some(ShellName::main()) },
            r#"{"type":"started","exec_id":"e-1","shell":"main"}"#,
        ),
        (Frame::Queued { running_exec_id: exec_id.clone() }, r#"{"type":"queued","running_exec_id":"e-1"}"#),
        (
            Frame::Output {
                stream: Stream::Merged,
                offset: 7,
                at_ms: Some(5),
                payload: Payload::Text { data: "a\n".into() },
            },
            r#"{"type":"output","stream":"merged","offset":7,"at_ms":5,"data":"a\n"}"#,
        ),
        (
            Frame::Output {
                stream: Stream::Tty,
                offset: 0,
                at_ms: None,
                payload: Payload::Base64 { data_base64: "/w==".into() },
            },
            r#"{"type":"output","stream":"tty","offset":0,"data_base64":"/w=="}"#,
        ),
        (Frame::Gap { offset: 9, bytes: 3 }, r#"{"type":"gap","offset":9,"bytes":3}"#),
        (Frame::AwaitingInput, r#"{"type":"awaiting_input"}"#),
        (
            Frame::Error(ErrorBody::new(ErrorCode::ShellNotFound, "no shell named x")),
            r#"{"type":"error","error_code":"SHELL_NOT_FOUND","message":"no shell named x"}"#,
        ),
        (
            Frame::Exit(ExecOutcome {
                exec_id,
                kind: OutcomeKind::TimedOut,
                exit_code: 124,
                signal: None,
                cwd: Some("/".into()),
                output_bytes: 12,
                timed_out: true,
                shell_restarted: false,
                oom_killed: false,
                awaiting_input: true,
                duration_ms: 1000,
                reason: None,
            }),
            r#"{"type":"exit","exec_id":"e-1","kind":"timed_out","exit_code":124,"cwd":"/","output_bytes":12,"timed_out":true,"shell_restarted":false,"oom_killed":false,"awaiting_input":true,"duration_ms":1000}"#,
        ),
    ];
    for (frame, line) in lines {
        assert_eq!(String::from_utf8(frame.to_line()).unwrap(), format!("{line}\n"));
        assert_eq!(parse_frame(line.as_bytes()).unwrap(), frame);
    }
}

#[test]
fn lines_of_a_watch_look_as_documented() {
    let change = FileChange {
        kind: ChangeKind::Moved,
        path: "b".into(),
        path_base64: None,
        from: Some("a".into()),
        from_base64: None,
        is_dir: false,
    };
    for (frame, line) in [
        (WatchFrame::Ready { truncated: false }, r#"{"event":"ready","truncated":false}"#),
        (WatchFrame::Change(change), r#"{"event":"change","kind":"moved","path":"b","from":"a","is_dir":false}"#),
        (WatchFrame::Overflow, r#"{"event":"overflow"}"#),
        (WatchFrame::Ended { reason: WatchEnd::Deleted }, r#"{"event":"ended","reason":"deleted"}"#),
        (
            WatchFrame::Error(ErrorBody::new(ErrorCode::LimitReached, "m")),
            r#"{"event":"error","error_code":"LIMIT_REACHED","message":"m"}"#,
        ),
    ] {
        assert_eq!(serde_json::to_string(&frame).unwrap(), line);
        assert_eq!(serde_json::from_str::<WatchFrame>(line).unwrap(), frame);
    }
}
