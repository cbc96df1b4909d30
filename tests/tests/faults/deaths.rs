//! The daemon dies at each of its failpoints. Whatever it was doing, the next daemon makes the database, the runtime and the
//! host agree again.

use std::collections::BTreeSet;

use e2e::daemon::{Answer, Daemon, Session};
use e2e::{DEADLINE, is_soak, wait_until};
use hyper::Method;
use serde_json::{Value, json};

use crate::{agreed, reachable};

const TIMES: usize = 1;
const SOAK_TIMES: usize = 20;

fn small() -> Value {
    json!({ "resources": { "memory_mb": 64, "disk_mb": 16, "pids": 32 } })
}

fn id_of(answer: &Answer) -> String {
    answer.json()["id"].as_str().expect("a session has an id").to_owned()
}

/// Creates, uses and destroys sessions until the daemon dies. Returns the acknowledged sessions that must still exist.
async fn use_until_dead(daemon: &mut Daemon) -> BTreeSet<String> {
    let api = daemon.api().clone();
    let using = tokio::spawn(async move {
        let mut theirs = BTreeSet::new();
        // Any of these answers may never come.
        let keyed = api.with_header("idempotency-key", "kept");
        let kept = keyed.try_send(Method::POST, "/v1/sessions", small().to_string()).await;
        theirs.extend(kept.ok().filter(|answer| answer.status == 201).as_ref().map(id_of));
        loop {
            let mut short = small();
            short["ttl_seconds"] = json!(1);
            short["labels"] = json!({ "short": "yes" });
            short["workspace_id"] = json!("shared");
            let _ = api.try_send(Method::POST, "/v1/sessions", short.to_string()).await;
            let Ok(answer) = api.try_send(Method::POST, "/v1/sessions", small().to_string()).await else { break };
            let id = id_of(&answer);
            theirs.insert(id.clone());
            let exec = json!({ "cmd": "cd /tmp; echo well" }).to_string();
            let _ = api.try_send(Method::POST, &format!("/v1/sessions/{id}/exec"), exec).await;
            // From here on the session may be gone.
            theirs.remove(&id);
            if api.try_send(Method::DELETE, &format!("/v1/sessions/{id}"), "").await.is_err() {
                break;
            }
        }
        theirs
    });
    daemon.ended().await;
    using.await.expect("a client does not fail")
}

/// Checks that every acknowledged session runs, that every running session works, that the key stands for one session, and
/// that everything can be removed completely.
async fn is_whole(daemon: Daemon, acknowledged: &BTreeSet<String>, name: &str) {
    let there = agreed(&daemon).await;
    assert!(
        acknowledged.is_subset(&there),
        "after {name}: {acknowledged:?} were acknowledged, and there are {there:?}"
    );
    let crashed = daemon.get("/v1/sessions?status=crashed").await.ok();
    assert_eq!(crashed, json!([]), "after {name}: only the daemon died");
    for id in there {
        let session = Session { api: daemon.api().clone(), id };
        // A session with a lifetime of one second may be gone before this request.
        if session.view().await["labels"]["short"] != "yes" {
            assert_eq!(session.sh("echo well").await, "well\n", "after {name}");
        }
    }
    let keyed = daemon.with_header("idempotency-key", "kept");
    let (first, second) = (keyed.create(small()).await, keyed.create(small()).await);
    assert_eq!(first.id, second.id, "after {name}");
    assert_eq!(first.sh("echo well").await, "well\n", "after {name}");
    daemon.stop().await;
}

#[tokio::test]
async fn a_death_at_any_step_leaves_nothing_that_the_next_start_does_not_mend() {
    let _alone = crate::alone().await;
    // The failpoints of a start, of pools, of images, of snapshots and stops, and of workspaces on disks have their own stories.
    let apart = [
        "recover.",
        "claim.",
        "pool.",
        "image.",
        "snapshot.",
        "local.snapshot.",
        "docker.snapshot.",
        "docker.restore.",
        "stop.",
        "local.stop.",
        "docker.stop.",
        "start.",
        "workspace.disk.",
    ];
    let is_apart = |name: &&String| apart.iter().any(|prefix| name.starts_with(prefix));
    let names: Vec<&String> = reachable().filter(|name| !is_apart(name)).collect();
    assert!(names.len() >= 18, "{names:?}");
    for turn in 0..if is_soak() { SOAK_TIMES } else { TIMES } {
        for name in &names {
            // The daemon dies a little later each time.
            let nth = turn + if name.starts_with("store.") { 3 } else { 1 };
            let start = std::time::Instant::now();
            let mut daemon = Daemon::builder().failpoints(&format!("{name}=abort@{nth}")).start().await;
            let acknowledged = use_until_dead(&mut daemon).await;
            daemon.rebuild(|builder| builder.failpoints(""));
            is_whole(daemon.start_again(), &acknowledged, name).await;
            println!("{name} at {nth}: {:?}", start.elapsed());
        }
    }
}

#[tokio::test]
async fn a_death_during_recovery_is_mended_by_the_next_recovery() {
    let _alone = crate::alone().await;
    // Those of snapshots and stopped sessions have a story of their own.
    let apart = ["recover.snapshot", "recover.stopped"];
    let names: Vec<&String> =
        reachable().filter(|name| name.starts_with("recover.") && !apart.contains(&name.as_str())).collect();
    assert!(names.len() >= 5, "{names:?}");
    for _ in 0..if is_soak() { SOAK_TIMES } else { TIMES } {
        for name in &names {
            // There is one running sandbox, one workspace sandbox that no row owns, and one whose create is interrupted.
            let mut daemon = Daemon::builder().failpoints("create.made=abort@4").start().await;
            let kept = daemon.create(small()).await;
            let mut in_workspace = small();
            in_workspace["workspace_id"] = json!("w");
            daemon.create(in_workspace).await.destroy().await;
            daemon.get("/v1/workspaces/w/fs").await.ok();
            let _ = daemon.try_send(Method::POST, "/v1/sessions", small().to_string()).await;
            daemon.ended().await;
            daemon.rebuild(|builder| builder.failpoints(&format!("{name}=abort")));
            let (status, _) = daemon.start_in_vain().await;
            assert_eq!(status.code(), None, "{name} was not reached");
            daemon.rebuild(|builder| builder.failpoints(""));
            let daemon = daemon.start_again();
            let kept = BTreeSet::from([kept.id]);
            assert_eq!(agreed(&daemon).await, kept, "after {name}");
            is_whole(daemon, &kept, name).await;
        }
    }
}

#[tokio::test]
async fn a_commit_that_fails_fails_the_create_and_leaves_nothing() {
    let _alone = crate::alone().await;
    for name in reachable().filter(|name| name.contains(".create.") || *name == "store.commit") {
        let daemon = Daemon::builder().failpoints(&format!("{name}=error")).start().await;
        let refused = daemon.post("/v1/sessions", small()).await;
        assert_eq!(refused.status, 500, "{name}: {}", refused.text());
        assert!(refused.text().contains(name.as_str()), "the cause is told: {}", refused.text());
        assert!(agreed(&daemon).await.is_empty(), "{name}");
        wait_until("an empty list", DEADLINE, async || {
            (daemon.get("/v1/sessions").await.ok() == json!([])).then_some(())
        })
        .await;
        daemon.stop().await;
    }
}
