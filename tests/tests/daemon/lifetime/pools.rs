//! Pooled sandboxes: the next create gets one at once, as if it had been made for it, and nobody else has it before or
//! after.

use std::collections::BTreeSet;

use e2e::daemon::{Ability, Daemon, Session, engine, is_local_only, lacks};
use e2e::{LONG_DEADLINE, is_root, procfs, skipped, wait_until};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use shared_protocol::ErrorCode::{Conflict, InvalidImage, InvalidRequest};

const SECRET: &str = "a 'quoted' $secret";

async fn pool(daemon: &Daemon) -> Value {
    daemon.get("/v1/pools").await.ok()[0].clone()
}

/// The ids of the sandboxes that wait in pools.
async fn pooled(daemon: &Daemon) -> BTreeSet<String> {
    let list = daemon.get("/v1/sessions?status=pool_idle").await.ok();
    list.as_array().expect("a list").iter().map(|view| view["id"].as_str().expect("an id").to_owned()).collect()
}

async fn until_idle(daemon: &Daemon, count: u64) {
    wait_until("a filled pool", LONG_DEADLINE, async || {
        let view = pool(daemon).await;
        (view["idle"] == count && view["starting"] == 0).then_some(())
    })
    .await;
}

async fn with_pool(size: u64) -> Daemon {
    let daemon = Daemon::builder().config(&format!("[pool]\nbase = {size}\n")).start().await;
    until_idle(&daemon, size).await;
    daemon
}

#[tokio::test]
async fn a_create_gets_a_pooled_sandbox_with_its_variables_and_another_takes_its_place() {
    let daemon = with_pool(2).await;
    let waiting = pooled(&daemon).await;
    let session = daemon.create(json!({ "env": { "TOKEN": SECRET }, "labels": { "a": "b" } })).await;
    let view = session.view().await;
    assert_eq!((&view["acquire_source"], &view["status"]), (&json!("pool"), &json!("running")));
    assert!(waiting.contains(&session.id), "{} is none of {waiting:?}", session.id);
    assert_eq!(session.sh("printenv TOKEN; pwd; hostname").await, format!("{SECRET}\n/workspace\n{}\n", session.id));
    assert_eq!(session.run(&["printenv", "TOKEN"]).await["stdout"], format!("{SECRET}\n"));
    assert_eq!(daemon.get(&session.path("/execs")).await.ok().as_array().map(Vec::len), Some(2), "nothing ran before");
    until_idle(&daemon, 2).await;
    assert!(!pooled(&daemon).await.contains(&session.id));
    let view = pool(&daemon).await;
    assert_eq!((&view["hits"], &view["misses"]), (&json!(1), &json!(0)));
    let metrics = daemon.get("/metrics").await.text();
    for line in [
        "cove_pool_claims_total{image=\"base\",result=\"hit\"} 1",
        "cove_pool_refill_seconds_count{image=\"base\"} 3",
        "cove_session_creates_total{result=\"ok\",source=\"pool\"} 1",
        "cove_sessions{status=\"pool_idle\"} 2",
    ] {
        assert!(metrics.contains(line), "{line} is not in\n{metrics}");
    }
    daemon.stop().await;
}

#[tokio::test]
async fn a_pooled_sandbox_gets_the_workspace_of_its_session() {
    if is_local_only("a_pooled_sandbox_gets_the_workspace_of_its_session", "a container has its mounts from its start")
    {
        return;
    }
    workspace_at_the_claim(with_pool(2).await).await;
}

#[tokio::test]
async fn an_ordinary_users_pooled_sandbox_gets_the_workspace_of_its_session() {
    let story = "an_ordinary_users_pooled_sandbox_gets_the_workspace_of_its_session";
    if is_local_only(story, "whoever may use the engine is root") {
        return;
    }
    if !is_root() {
        return skipped("the daemon as another user", "needs root to become one");
    }
    let daemon = Daemon::builder().as_user(1000).config("[pool]\nbase = 2\n").start().await;
    until_idle(&daemon, 2).await;
    workspace_at_the_claim(daemon).await;
}

async fn workspace_at_the_claim(daemon: Daemon) {
    let first = daemon.create(json!({ "workspace_id": "shared", "env": { "A": "b" } })).await;
    assert_eq!(first.view().await["acquire_source"], "pool");
    assert_eq!(first.sh("pwd; echo $A; echo one > note; mkdir d; cd d; pwd").await, "/workspace\nb\n/workspace/d\n");
    let flags = first.sh("grep ' /workspace ' /proc/self/mountinfo | tail -n 1 | cut -d' ' -f6").await;
    assert!(flags.contains("nosuid") && flags.contains("nodev"), "{flags}");
    let second = daemon.create(json!({ "workspace_id": "shared" })).await;
    assert_eq!(second.view().await["acquire_source"], "pool");
    // The shell's directory, the absolute path and the file calls all mean the same place.
    assert_eq!(
        second.sh("cat note; cat /workspace/note; touch mine; stat -c %U mine note").await,
        "one\none\nsandbox\nsandbox\n"
    );
    assert_eq!(second.get("note").await.text(), "one\n");
    assert_eq!(second.run(&["cat", "note"]).await["stdout"], "one\n");
    for session in [first, second] {
        session.destroy().await;
    }
    until_idle(&daemon, 2).await;
    let later = daemon.create(json!({})).await;
    assert_eq!(later.sh("ls -A").await, "", "without a workspace there is nothing of anybody's");
    later.destroy().await;
    daemon.stop().await;
}

#[tokio::test]
async fn pooled_sandboxes_are_nobodys_sessions() {
    let daemon = with_pool(1).await;
    assert_eq!(daemon.get("/v1/sessions").await.ok(), json!([]));
    let id = pooled(&daemon).await.pop_first().expect("a pooled sandbox");
    let sandbox = Session { api: daemon.api().clone(), id };
    assert_eq!(sandbox.view().await["status"], "pool_idle");
    assert_eq!(sandbox.ask(json!({ "cmd": "true" })).await.refused(), Conflict);
    daemon.stop().await;
}

#[tokio::test]
async fn what_was_somebodys_is_never_anybody_elses() {
    let daemon = with_pool(1).await;
    let mut seen = BTreeSet::new();
    for _ in 0..3 {
        let session = daemon.create(json!({})).await;
        assert!(seen.insert(session.id.clone()), "{} came again", session.id);
        assert_eq!(session.sh("ls -A /tmp /workspace | grep left; echo left > /tmp/left; true").await, "");
        session.destroy().await;
        until_idle(&daemon, 1).await;
    }
    daemon.stop().await;
}

#[tokio::test]
async fn a_pool_is_made_changed_and_ended_by_its_users() {
    let daemon = Daemon::start().await;
    assert_eq!(daemon.get("/v1/pools").await.ok(), json!([]));
    let made = daemon.put("/v1/pools/base", json!({ "size": 2 })).await.ok();
    assert_eq!((&made["image"], &made["size"]), (&json!("base"), &json!(2)));
    until_idle(&daemon, 2).await;
    daemon.put("/v1/pools/base", json!({ "size": 1 })).await.ok();
    until_idle(&daemon, 1).await;
    let nope = daemon.put("/v1/pools/nope", json!({ "size": 1 })).await;
    if engine().is_some() {
        // The daemon asks the engine for an image only when it uses the image.
        wait_until("it says why none waits", LONG_DEADLINE, async || {
            let pools = daemon.get("/v1/pools").await.ok();
            let failure =
                pools.as_array()?.iter().find(|pool| pool["image"] == "nope")?["failure"].as_str()?.to_owned();
            failure.contains("nope").then_some(())
        })
        .await;
        daemon.put("/v1/pools/nope", json!({ "size": 0 })).await.ok();
    } else {
        assert_eq!(nope.refused(), InvalidImage);
    }
    assert_eq!(daemon.put("/v1/pools/base", json!({ "size": 1001 })).await.refused(), InvalidRequest);
    assert_eq!(daemon.put("/v1/pools/base", json!({ "size": 1, "runtime": "none" })).await.refused(), InvalidRequest);
    daemon.put("/v1/pools/base", json!({ "size": 0 })).await.ok();
    wait_until("no pool", LONG_DEADLINE, async || {
        let pools = daemon.get("/v1/pools").await.ok();
        (pools == json!([]) && pooled(&daemon).await.is_empty()).then_some(())
    })
    .await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_dead_pooled_sandbox_is_never_given() {
    let daemon = with_pool(1).await;
    let id = pooled(&daemon).await.pop_first().expect("a pooled sandbox");
    let dead = Session { api: daemon.api().clone(), id };
    procfs::signal(daemon.runner_pid(&dead), Signal::SIGKILL);
    let session = daemon.create(json!({})).await;
    assert_eq!(session.sh("echo alive").await, "alive\n");
    until_idle(&daemon, 1).await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_pooled_sandbox_that_hangs_is_given_up_for_a_cold_create() {
    if lacks("a_pooled_sandbox_that_hangs_is_given_up_for_a_cold_create", Ability::RunnerOnHost) {
        return;
    }
    let daemon = with_pool(1).await;
    let id = pooled(&daemon).await.pop_first().expect("a pooled sandbox");
    let hung = Session { api: daemon.api().clone(), id };
    procfs::signal(daemon.runner_pid(&hung), Signal::SIGSTOP);
    let session = daemon.create(json!({ "env": { "A": "b" } })).await;
    assert_eq!(session.view().await["acquire_source"], "cold");
    assert_eq!(session.sh("echo $A").await, "b\n");
    until_idle(&daemon, 1).await;
    daemon.stop().await;
}

#[tokio::test]
async fn pooled_sandboxes_make_room_for_a_session_that_does_not_fit_the_pool() {
    let config = "[sessions]\nmax_sessions = 2\n[pool]\nbase = 2\n";
    let daemon = Daemon::builder().config(config).start().await;
    until_idle(&daemon, 2).await;
    let other = json!({ "resources": { "pids": 100 } });
    let first = daemon.create(other.clone()).await;
    let second = daemon.create(other.clone()).await;
    assert_eq!((first.sh("echo 1").await, second.sh("echo 2").await), ("1\n".into(), "2\n".into()));
    assert_eq!(daemon.post("/v1/sessions", other).await.refused(), shared_protocol::ErrorCode::LimitReached);
    first.destroy().await;
    until_idle(&daemon, 1).await;
    daemon.stop().await;
}

#[tokio::test]
async fn pooled_sandboxes_outlive_the_daemon_that_started_them() {
    let mut daemon = with_pool(2).await;
    let claimed = daemon.create(json!({ "env": { "A": "b" } })).await;
    until_idle(&daemon, 2).await;
    let before = pooled(&daemon).await;
    daemon.signal(Signal::SIGKILL);
    daemon.ended().await;
    let daemon = daemon.start_again();
    until_idle(&daemon, 2).await;
    assert_eq!(pooled(&daemon).await, before, "others were started in their place");
    let claimed = Session { api: daemon.api().clone(), id: claimed.id };
    assert_eq!(claimed.sh("echo $A").await, "b\n");
    assert_eq!(claimed.view().await["acquire_source"], "pool");
    let next = daemon.create(json!({})).await;
    assert!(before.contains(&next.id), "it did not come from the pool");
    assert_eq!(next.sh("echo ok").await, "ok\n");
    for session in [claimed, next] {
        session.destroy().await;
    }
    daemon.stop().await;
}
