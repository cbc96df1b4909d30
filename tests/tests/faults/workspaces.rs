//! The daemon dies, or a step fails, while a workspace is made on a disk or deleted. What was acknowledged is there afterwards.

use e2e::daemon::{Daemon, engine};
use e2e::{is_root, is_soak, skipped};
use hyper::Method;
use serde_json::{Value, json};

use crate::{agreed, reachable};

const TIMES: usize = 1;
const SOAK_TIMES: usize = 20;

fn has_disks(story: &str) -> bool {
    let has_btrfs = std::fs::read_to_string("/proc/filesystems").unwrap_or_default().contains("btrfs");
    let is_there = engine().is_none() && is_root() && has_btrfs;
    if !is_there {
        skipped(story, "workspaces are directories here");
    }
    is_there
}

fn in_workspace(id: &str) -> Value {
    json!({ "workspace_id": id, "resources": { "memory_mb": 64, "disk_mb": 32, "pids": 32 } })
}

fn points() -> Vec<&'static String> {
    let found: Vec<_> = reachable().filter(|name| name.starts_with("workspace.disk.")).collect();
    assert_eq!(found.len(), 4);
    found
}

async fn names(daemon: &Daemon) -> Vec<String> {
    let listed = daemon.get("/v1/workspaces").await.ok();
    let all = listed["workspaces"].as_array().expect("a list").iter();
    all.map(|view| view["id"].as_str().expect("an id").to_owned()).collect()
}

fn is_deletion(point: &str) -> bool {
    point.ends_with("deleting") || point.ends_with("discarded")
}

#[tokio::test]
async fn a_death_while_a_workspace_is_made_or_deleted_leaves_all_of_it_or_nothing() {
    if !has_disks("a_death_while_a_workspace_is_made_or_deleted_leaves_all_of_it_or_nothing") {
        return;
    }
    let _alone = crate::alone().await;
    for point in
        points().into_iter().flat_map(|point| (0..if is_soak() { SOAK_TIMES } else { TIMES }).map(move |_| point))
    {
        // The first workspace is made before, and has to be there whatever happens.
        let nth = if is_deletion(point) { 1 } else { 2 };
        let mut daemon = Daemon::builder().failpoints(&format!("{point}=abort@{nth}")).start().await;
        daemon.create(in_workspace("kept")).await.sh("echo content > file; sync").await;
        if is_deletion(point) {
            let session = daemon.create(in_workspace("w")).await;
            session.sh("echo x > file").await;
            session.destroy().await;
            assert!(daemon.try_send(Method::DELETE, "/v1/workspaces/w", "").await.is_err(), "{point} was not reached");
        } else {
            let created = daemon.try_send(Method::POST, "/v1/sessions", in_workspace("w").to_string()).await;
            assert!(created.is_err(), "{point} was not reached");
        }
        daemon.ended().await;
        daemon.rebuild(|builder| builder.failpoints(""));
        let daemon = daemon.start_again();
        agreed(&daemon).await;
        // A workspace that was half made is not there, one that was made is empty, and one that was half deleted is whole or gone.
        let there = names(&daemon).await;
        let expected: &[&str] = match point.as_str() {
            "workspace.disk.recorded" | "workspace.disk.discarded" => &["kept"],
            _ => &["kept", "w"],
        };
        assert_eq!(there, expected, "after {point}");
        let content = if point.ends_with("deleting") { "file\n" } else { "" };
        let session = daemon.create(in_workspace("w")).await;
        assert_eq!(session.sh("ls -A; echo y > new").await, content, "after {point}");
        let session = daemon.create(in_workspace("kept")).await;
        assert_eq!(session.sh("cat file").await, "content\n", "after {point}");
        daemon.delete("/v1/workspaces/w?force=1").await.ok();
        assert_eq!(names(&daemon).await, ["kept"], "after {point}");
        println!("{point}: well");
        daemon.stop().await;
    }
}

#[tokio::test]
async fn a_step_of_a_workspace_that_fails_says_so_and_the_next_call_completes_it() {
    if !has_disks("a_step_of_a_workspace_that_fails_says_so_and_the_next_call_completes_it") {
        return;
    }
    let _alone = crate::alone().await;
    for point in points() {
        let daemon = Daemon::builder().failpoints(&format!("{point}=error@1")).start().await;
        let created = daemon.post("/v1/sessions", in_workspace("w")).await;
        if is_deletion(point) {
            created.ok();
            let refused = daemon.delete("/v1/workspaces/w?force=1").await;
            assert_eq!(refused.status, 500, "{point}: {}", refused.text());
        } else {
            assert_eq!(created.status, 500, "{point}: {}", created.text());
            assert!(created.text().contains(point.as_str()), "the cause is told: {}", created.text());
        }
        let session = daemon.create(in_workspace("w")).await;
        assert_eq!(session.sh("echo x > file; cat file").await, "x\n", "after {point}");
        session.destroy().await;
        daemon.delete("/v1/workspaces/w").await.ok();
        assert_eq!(names(&daemon).await, Vec::<String>::new(), "after {point}");
        daemon.stop().await;
    }
}
