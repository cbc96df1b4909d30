//! The daemon of somebody who is not root: what the kernel allows, and nothing left of it either.

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
    let session = daemon.session().await;
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
    let facts = crate::probe::probe(&daemon, &session).await;
    // Without a range of ids there is one user in the sandbox, who is the runner as well; without a cgroup of its own nothing
    // is limited by one. `doctor` says so.
    let needs_root = ["no way to signal init", "no tracing of init", "an ordinary user", "read-only root"];
    let failed: Vec<_> = crate::probe::failed(&facts).into_iter().filter(|name| !needs_root.contains(name)).collect();
    assert!(failed.is_empty(), "{failed:?} failed: {facts:#}");
    // What is made for the sandbox in memory is its one user's; nothing of the host is.
    let writable = facts["writable"].as_array().expect("a list");
    assert!(writable.iter().all(|place| place == "/dev" || place == "/run"), "{writable:?}");
    daemon.stop().await;
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
