//! The daemon of an ordinary user: it isolates as far as the kernel allows, and leaves nothing behind either.

use e2e::daemon::{Ability, Daemon, Terminal, lacks};
use e2e::{is_root, skipped};
use serde_json::json;

const SOMEBODY: u32 = 1000;

#[tokio::test]
async fn an_ordinary_user_has_sandboxes_too() {
    if lacks("an_ordinary_user_has_sandboxes_too", Ability::OrdinaryUsers) {
        return;
    }
    if !is_root() {
        return skipped(
            "the daemon as another user",
            "needs root to become one; the other stories are about this user",
        );
    }
    let daemon = Daemon::builder().as_user(SOMEBODY).start().await;
    let refused = daemon.post("/v1/sessions", json!({ "writable_root": true })).await;
    assert_eq!(refused.refused(), shared_protocol::ErrorCode::InvalidRequest, "{}", refused.text());
    let session = daemon.session().await;
    // Its disk is a part of its memory.
    assert_eq!(session.view().await["resources"]["disk_mb"], 1024);
    assert_eq!(session.sh("df --output=fstype /tmp | tail -n 1").await, "tmpfs\n");
    assert_eq!(session.sh("cd /tmp; echo hello; id -u").await, "hello\n1000\n");
    assert_eq!(session.sh("pwd").await, "/tmp\n");
    session.put("a/file", "content").await.ok();
    assert_eq!(session.sh("cat /workspace/a/file").await, "content");
    assert_eq!(session.get("a/file").await.text(), "content");
    assert_eq!(session.run(&["echo", "ran"]).await["stdout"], "ran\n");
    let mut terminal = Terminal::open(&session, "").await;
    terminal.keys("echo typed-$((1+1))\r").await;
    terminal.until("typed-2").await;
    drop(terminal);
    let timed_out = session.ask(json!({ "cmd": "sleep 1000", "timeout_ms": 200 })).await.ok();
    assert_eq!(timed_out["exit_code"], 124, "{timed_out}");
    session.destroy().await;
    daemon.stop().await;
}

#[tokio::test]
async fn an_ordinary_users_sandbox_is_closed_as_well() {
    if lacks("an_ordinary_users_sandbox_is_closed_as_well", Ability::OrdinaryUsers) {
        return;
    }
    if !is_root() {
        return skipped(
            "the daemon as another user",
            "needs root to become one; the other stories are about this user",
        );
    }
    let daemon = Daemon::builder().as_user(SOMEBODY).start().await;
    let session = daemon.session().await;
    let facts = super::probe::probe(&daemon, &session).await;
    // Without a range of ids there is one user in the sandbox, who is also the runner; without a cgroup of its own, cgroup
    // limits do not apply. `doctor` says so.
    let needs_root =
        ["no way to signal init", "no tracing of init", "an ordinary user", "read-only root", "devices of its own"];
    let failed: Vec<_> = super::probe::failed(&facts).into_iter().filter(|name| !needs_root.contains(name)).collect();
    assert!(failed.is_empty(), "{failed:?} failed: {facts:#}");
    // Files that are made for the sandbox in memory belong to its one user; no file of the host does.
    let writable = facts["writable"].as_array().expect("a list");
    assert!(writable.iter().all(|place| place == "/dev" || place == "/run"), "{writable:?}");
    daemon.stop().await;
}

/// Commands are the user who owns the root. If the root is not read-only, Landlock still keeps them from writing to it.
#[tokio::test]
async fn landlock_holds_where_a_mount_should_be_read_only_and_is_not() {
    if lacks("landlock_holds_where_a_mount_should_be_read_only_and_is_not", Ability::OrdinaryUsers) {
        return;
    }
    if !is_root() {
        return skipped("the daemon as another user", "needs root to become one");
    }
    let mut root_is_writable = Vec::new();
    for off in ["\"read_only_root\"", "\"read_only_root\", \"landlock\""] {
        let config = format!("[local]\ndisabled_protections = [{off}]\n");
        let daemon = Daemon::builder().as_user(SOMEBODY).config(&config).start().await;
        let session = daemon.session().await;
        let facts = super::probe::probe(&daemon, &session).await;
        root_is_writable.push(facts["writable"].as_array().expect("a list").contains(&json!("/")));
        daemon.stop().await;
        if facts["landlock"].as_i64() < Some(2) {
            return skipped("a second wall", "this kernel has no Landlock, or an early one");
        }
    }
    assert_eq!(root_is_writable, [false, true]);
}

#[tokio::test]
async fn an_ordinary_users_workspace_outlives_its_sessions() {
    if lacks("an_ordinary_users_workspace_outlives_its_sessions", Ability::OrdinaryUsers) {
        return;
    }
    if !is_root() {
        return skipped(
            "the daemon as another user",
            "needs root to become one; the other stories are about this user",
        );
    }
    let daemon = Daemon::builder().as_user(SOMEBODY).start().await;
    let session = daemon.create(json!({ "workspace_id": "mine" })).await;
    session.sh("mkdir d; echo kept > d/f").await;
    session.destroy().await;
    let again = daemon.create(json!({ "workspace_id": "mine" })).await;
    assert_eq!(again.sh("cat d/f").await, "kept\n");
    again.destroy().await;
    daemon.delete("/v1/workspaces/mine").await.ok();
    daemon.stop().await;
}
