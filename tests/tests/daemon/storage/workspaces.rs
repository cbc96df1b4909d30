//! Workspaces: named directories that outlive sessions, and that are as hostile as the programs that ran in them.

use e2e::daemon::{Ability, Daemon, lacks};
use serde_json::{Value, json};
use shared_protocol::ErrorCode::{Conflict, FileNotFound, InvalidRequest, WorkspaceNotFound};

async fn read(daemon: &Daemon, path: &str) -> String {
    use base64::Engine as _;
    let view = daemon.get(&format!("/v1/workspaces/shared/fs/read?path={path}")).await.ok();
    let bytes = base64::engine::general_purpose::STANDARD.decode(view["content_base64"].as_str().expect("content"));
    String::from_utf8(bytes.expect("base64")).expect("text")
}

async fn write(daemon: &Daemon, path: &str, text: &str) -> e2e::daemon::Answer {
    daemon.post("/v1/workspaces/shared/fs/write", json!({ "path": path, "text": text })).await
}

async fn listed(daemon: &Daemon) -> Value {
    let list = daemon.get("/v1/workspaces").await.ok()["workspaces"].clone();
    list.as_array()
        .expect("a list")
        .iter()
        .map(|view| json!([view["id"], view["sessions"].as_array().map(Vec::len)]))
        .collect()
}

#[tokio::test]
async fn a_workspace_is_shared_by_sessions_and_outlives_them() {
    let daemon = Daemon::start().await;
    let one = daemon.create(json!({ "workspace_id": "shared" })).await;
    let other = daemon.create(json!({ "workspace_id": "shared" })).await;
    assert_eq!(one.view().await["workspace_id"], "shared");
    one.sh("echo from one > note; mkdir d; chmod 700 d; echo x > d/f").await;
    assert_eq!(
        other.sh("cat note; cat d/f; echo from other >> note; cat note").await,
        "from one\nx\nfrom one\nfrom other\n"
    );
    assert_eq!(one.sh("cat note; rm -r d").await, "from one\nfrom other\n");
    // Nothing else is shared.
    one.sh("echo x > /tmp/mine").await;
    assert_eq!(other.sh("ls /tmp/mine 2>/dev/null; true").await, "");
    assert_eq!(listed(&daemon).await, json!([["shared", 2]]));
    one.destroy().await;
    other.destroy().await;
    assert_eq!(listed(&daemon).await, json!([["shared", 0]]));
    let later = daemon.create(json!({ "workspace_id": "shared" })).await;
    assert_eq!(later.sh("cat note").await, "from one\nfrom other\n");
    daemon.stop().await;
}

#[tokio::test]
async fn a_workspace_is_there_after_a_restart() {
    let daemon = Daemon::start().await;
    let session = daemon.create(json!({ "workspace_id": "shared" })).await;
    session.sh("echo kept > note").await;
    let daemon = daemon.restart().await;
    assert_eq!(listed(&daemon).await, json!([["shared", 0]]));
    let session = daemon.create(json!({ "workspace_id": "shared" })).await;
    assert_eq!(session.sh("cat note").await, "kept\n");
    daemon.stop().await;
}

#[tokio::test]
async fn files_of_a_workspace_are_to_be_had_without_a_session() {
    let daemon = Daemon::start().await;
    let session = daemon.create(json!({ "workspace_id": "shared" })).await;
    session.sh("echo from inside > note; mkdir -p d/e; echo deep > d/e/f").await;
    session.destroy().await;
    assert_eq!(read(&daemon, "note").await, "from inside\n");
    assert_eq!(read(&daemon, "d/e/f").await, "deep\n");
    write(&daemon, "new/file", "from outside\n").await.ok();
    let list = daemon.get("/v1/workspaces/shared/fs?recursive=1").await.ok();
    let paths: Vec<&str> =
        list["entries"].as_array().expect("a list").iter().filter_map(|e| e["path"].as_str()).collect();
    assert_eq!(paths, ["d", "d/e", "d/e/f", "new", "new/file", "note"]);
    assert_eq!(daemon.get("/v1/workspaces/shared/fs/read?path=no").await.refused(), FileNotFound);
    assert_eq!(daemon.get("/v1/workspaces/nobody/fs").await.refused(), WorkspaceNotFound);
    let again = daemon.create(json!({ "workspace_id": "shared" })).await;
    // Files that came from outside belong to the user inside.
    assert_eq!(again.sh("cat new/file; echo more >> new/file; rm new/file && echo mine").await, "from outside\nmine\n");
    daemon.stop().await;
}

#[tokio::test]
async fn a_link_in_a_workspace_leads_nowhere_on_the_host() {
    let daemon = Daemon::start().await;
    let session = daemon.create(json!({ "workspace_id": "shared" })).await;
    let data = daemon.data_dir();
    let data = data.display();
    session.sh(&format!("ln -s /etc/shadow shadow; ln -s /etc etc; ln -s {data}/api-key key; ln -s {data} data; ln -s ../../api-key up; ln -s / root; mkfifo fifo; echo x > plain")).await;
    session.destroy().await;
    let before = std::fs::read_to_string(daemon.data_dir().join("api-key")).expect("a key");
    let shadow = std::fs::read("/etc/shadow").ok();
    for path in [
        "shadow",
        "etc/shadow",
        "key",
        "data/api-key",
        "up",
        "root/etc/shadow",
        "../../api-key",
        "fifo",
        "root/proc/self/environ",
    ] {
        if path.contains("/proc/") && lacks(path, Ability::InitHidden) {
            continue;
        }
        let answer = daemon.get(&format!("/v1/workspaces/shared/fs/read?path={path}")).await;
        // The target of a link may exist in the sandbox that reads it, which sees nothing of the host.
        let is_ours = answer.status == 200 && answer.json()["content_base64"] == "b3ZlcndyaXR0ZW4=";
        assert!((400..500).contains(&answer.status) || is_ours, "{path}: {} {}", answer.status, answer.text());
        let answer = write(&daemon, path, "overwritten").await;
        println!("writing {path}: {}", answer.status);
    }
    for path in ["etc", "data", "root", "../..", "/etc"] {
        let answer = daemon.get(&format!("/v1/workspaces/shared/fs?path={path}")).await;
        let text = answer.text();
        assert!(!text.contains("daemon.json"), "{path}: {text}");
    }
    assert_eq!(write(&daemon, "etc/cove-test", "x").await.status / 100, 4);
    assert!(!std::path::Path::new("/etc/cove-test").exists());
    assert_eq!(std::fs::read_to_string(daemon.data_dir().join("api-key")).expect("a key"), before);
    assert_eq!(std::fs::read("/etc/shadow").ok(), shadow);
    daemon.stop().await;
}

#[tokio::test]
async fn a_workspace_in_use_is_not_deleted_unless_it_must_be() {
    let daemon = Daemon::start().await;
    let session = daemon.create(json!({ "workspace_id": "shared" })).await;
    session.sh("mkdir d; echo x > d/f; chmod 000 d; ln -s / root").await;
    assert_eq!(daemon.delete("/v1/workspaces/shared").await.refused(), Conflict);
    assert_eq!(session.sh("echo alive").await, "alive\n");
    daemon.delete("/v1/workspaces/shared?force=1").await.ok();
    assert_eq!(session.view().await["status"], "destroyed");
    assert_eq!(listed(&daemon).await, json!([]));
    assert_eq!(daemon.delete("/v1/workspaces/shared").await.refused(), WorkspaceNotFound);
    assert!(std::path::Path::new("/etc/passwd").exists());
    let fresh = daemon.create(json!({ "workspace_id": "shared" })).await;
    assert_eq!(fresh.sh("ls -A").await, "");
    fresh.destroy().await;
    daemon.delete("/v1/workspaces/shared").await.ok();
    for bad in ["..", "%2e%2e", "a%2Fb", "-x"] {
        assert_eq!(daemon.delete(&format!("/v1/workspaces/{bad}")).await.refused(), InvalidRequest, "{bad}");
    }
    daemon.stop().await;
}
