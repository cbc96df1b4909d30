//! Several API keys: each sees its own, the audit log tells who did what, and the Unix socket is another way in.

use std::os::unix::fs::PermissionsExt as _;

use e2e::daemon::{Api, Cove, Daemon, Session, Terminal};
use e2e::http::{Address, Connection};
use e2e::{DEADLINE, wait_until};
use http_body_util::Full;
use hyper::{Method, Request};
use serde_json::{Value, json};
use shared_protocol::ErrorCode;

/// Makes a key with a command and returns a client that has it.
async fn key(daemon: &Daemon, args: &[&str]) -> Api {
    let mut command = vec!["key", "create"];
    command.extend(args);
    let made = Cove::of(daemon).run(&command).await;
    daemon.api().with_key(Some(made.ok().trim()))
}

fn audit_log(daemon: &Daemon) -> String {
    std::fs::read_to_string(daemon.data_dir().join("audit.log")).unwrap_or_default()
}

#[tokio::test]
async fn keys_keep_what_they_own_apart_also_after_a_restart() {
    let daemon = Daemon::builder().keeps_sessions().start().await;
    let alice = key(&daemon, &["alice", "--max-sessions", "1"]).await;
    let bob = key(&daemon, &["bob"]).await;
    let session = alice.create(json!({ "workspace_id": "w" })).await;
    session.sh("echo mine > /workspace/file; echo secret-command").await;
    assert_eq!(alice.post("/v1/sessions", json!({})).await.refused(), ErrorCode::LimitReached);

    let daemon = daemon.restart().await;
    let (alice, bob) = (daemon.api().with_key(alice.key.as_deref()), daemon.api().with_key(bob.key.as_deref()));
    let path = format!("/v1/sessions/{}", session.id);
    assert_eq!(alice.get(&path).await.ok()["owner"], "alice");
    assert_eq!(bob.get(&path).await.refused(), ErrorCode::SessionNotFound);
    let exec = bob.post(&format!("{path}/exec"), json!({ "cmd": "true" })).await;
    assert_eq!(exec.refused(), ErrorCode::SessionNotFound);
    assert_eq!(bob.get("/v1/sessions").await.ok(), json!([]));
    assert_eq!(alice.post("/v1/sessions", json!({})).await.refused(), ErrorCode::LimitReached);
    // The same name is another workspace for another key.
    let other = bob.create(json!({ "workspace_id": "w" })).await;
    assert_eq!(other.sh("ls /workspace").await, "");
    assert_eq!(alice.get("/v1/workspaces/w/fs/read?path=file").await.ok()["content_base64"], "bWluZQo=");
    assert_eq!(bob.get("/v1/workspaces/alice:w/fs/read?path=file").await.refused(), ErrorCode::WorkspaceNotFound);
    assert_eq!(daemon.get("/v1/workspaces/alice:w/fs/read?path=file").await.ok()["content_base64"], "bWluZQo=");

    let exec = "/v1/sessions/{session_id}/exec";
    let is_there = |line: &Value| line["caller"] == "alice" && line["route"] == exec && line["status"] == 200;
    wait_until("the exec is in the audit log", DEADLINE, async || {
        let log = audit_log(&daemon);
        let mut lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.any(|line| is_there(&line) && line["ids"]["session_id"] == session.id).then_some(())
    })
    .await;
    let log = audit_log(&daemon);
    assert!(!log.contains("secret-command") && !log.contains(alice.key.as_deref().unwrap_or("?")), "{log}");
    assert!(daemon.log().contains("caller=\"alice\"") || daemon.log().contains("caller=alice"), "{}", daemon.log());
    for path in ["audit.log", "cove.db"] {
        let mode = std::fs::metadata(daemon.data_dir().join(path)).expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{path}");
    }
    other.destroy().await;
    Session { api: alice, ..session }.destroy().await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_removed_key_loses_its_streams_and_terminals_and_its_sessions_stay() {
    let daemon = Daemon::start().await;
    let alice = key(&daemon, &["alice"]).await;
    let session = alice.session().await;
    let mut stream = session.stream(json!({ "cmd": "echo begun; sleep 1000", "shell": "main" })).await;
    stream.until("chunk").await;
    let mut terminal = Terminal::open(&session, "shell=typed").await;
    terminal.keys("echo up-and-running\r").await;
    terminal.until("up-and-running").await;
    Cove::of(&daemon).run(&["key", "rm", "alice"]).await.ok();
    // The connection of the stream is cut: it ends without its last event.
    while let Ok(Some(event)) = stream.try_next().await {
        assert_ne!(event.name, "done");
    }
    terminal.closed().await;
    assert_eq!(alice.get("/v1/sessions").await.refused(), ErrorCode::Unauthorized);
    let listed = daemon.get("/v1/sessions").await.ok();
    assert_eq!((&listed[0]["id"], &listed[0]["owner"]), (&json!(session.id), &json!("alice")));
    assert_eq!(daemon.delete(&format!("/v1/sessions/{}", session.id)).await.ok(), json!({ "ok": true }));
    daemon.stop().await;
}

#[tokio::test]
async fn a_unix_socket_is_another_way_in_and_needs_a_key_too() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let path = folder.path().join("cove.sock");
    let url = format!("unix:{}", path.display());
    let mut daemon = Daemon::builder().arg("--socket").arg(&url).start().await;
    let session = daemon.session().await;
    let cove = Cove::of(&daemon).env("COVE_URL", &url);
    assert_eq!(cove.run(&["exec", &session.id, "echo over the socket"]).await.ok(), "over the socket\n");
    assert_eq!(cove.run(&["ps", "-q"]).await.ok().trim(), session.id);
    assert_eq!(std::fs::metadata(&path).expect("the socket").permissions().mode() & 0o777, 0o660);

    let mut connection = Connection::open(&Address::Unix(path.clone())).await.expect("a connection");
    let request = Request::builder().method(Method::GET).uri("/v1/sessions").header("host", "localhost");
    let answer = connection.send(request.body(Full::<bytes::Bytes>::default()).expect("a request")).await;
    assert_eq!(answer.expect("an answer").status(), 401);
    let uid = nix::unistd::getuid();
    wait_until("the log names the user", DEADLINE, async || {
        daemon.log().contains(&format!("peer=uid:{uid}")).then_some(())
    })
    .await;

    // A daemon that is killed leaves the file, and the next one replaces it. A clean stop removes it.
    daemon.kill().await;
    assert!(path.exists());
    let daemon = daemon.start_again();
    assert_eq!(cove.run(&["key", "ls", "--json"]).await.json()[0]["name"], "default");
    daemon.stop().await;
    assert!(!path.exists());
}
