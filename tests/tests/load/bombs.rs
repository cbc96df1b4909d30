//! A session that uses up its own resources does not disturb the daemon and other sessions.

use std::time::{Duration, Instant};

use e2e::daemon::bombs::BOMBS;
use e2e::daemon::{Ability, Daemon, Session};
use e2e::{LONG_DEADLINE, is_root, skipped, wait_until};
use serde_json::json;
use shared_protocol::ErrorCode;

/// The longest that a destroy may take. It is a bound of the daemon's, far above what it needs: times are measured by
/// `bench neighbours`.
const DESTROY_DEADLINE: Duration = Duration::from_secs(20);

const OUTLIVED: &str = "a session that goes on after its limit of memory";

/// The p99 of commands of a session: at least `count` of them, and as long as `lasts` returns true.
async fn p99(session: &Session, count: usize, mut lasts: impl FnMut() -> bool) -> Duration {
    let mut times = Vec::with_capacity(count);
    while times.len() < count || lasts() {
        let start = Instant::now();
        session.sh("true").await;
        times.push(start.elapsed());
    }
    times.sort();
    times[times.len() * 99 / 100]
}

#[tokio::test]
async fn a_bomb_in_one_session_is_felt_by_no_other() {
    if !is_root() {
        return skipped("bombs", "limits by cgroups need root");
    }
    let _alone = crate::alone().await;
    let daemon = Daemon::start().await;
    let neighbour = daemon.session().await;
    let idle = p99(&neighbour, 1000, || false).await;
    for (name, bomb) in BOMBS {
        let resources = json!({ "cpus": 0.5, "memory_mb": 128, "pids": 64, "disk_mb": 64 });
        let session = daemon.create(json!({ "resources": resources })).await;
        let exploding = {
            let session = session.clone();
            tokio::spawn(async move { session.ask(json!({ "cmd": bomb, "timeout_ms": 8000 })).await })
        };
        let during = p99(&neighbour, 200, || !exploding.is_finished()).await;
        let answer = exploding.await.expect("the request ends");
        let told = if answer.status == 502 && !Ability::LimitSurvived.is_there(OUTLIVED) {
            "its session is lost".to_owned()
        } else {
            summary(&answer.ok())
        };
        println!("{name}: neighbour's p99 {during:?}, idle {idle:?}; the bomb: {told}");
        assert_eq!(neighbour.sh("echo alive").await, "alive\n", "after {name}");
        assert_eq!(daemon.get("/healthz").await.status, 200, "after {name}");
        // The session itself is usable afterwards, or reports clearly that it is gone.
        let after = session.ask(json!({ "cmd": "rm -rf /tmp/* /workspace/*; echo usable", "timeout_ms": 10000 })).await;
        assert!(after.status == 200 || after.status == 502, "after {name}: {} {}", after.status, after.text());
        println!(
            "{name}: its own session afterwards: {} {}",
            after.status,
            after.text().chars().take(120).collect::<String>()
        );
        let start = Instant::now();
        if after.status == 502 && !Ability::CrashHeardOf.is_there("a destroy within its time after a crash") {
            let _ = session.api.delete(&session.path("")).await;
            let directory = daemon.data_dir().join("containers").join(&session.id);
            wait_until("the sandbox is removed", LONG_DEADLINE, async || (!directory.exists()).then_some(())).await;
            println!("{name}: removed in {:?}", start.elapsed());
            continue;
        }
        session.destroy().await;
        println!("{name}: destroyed in {:?}", start.elapsed());
        assert!(start.elapsed() < DESTROY_DEADLINE, "{name}: destroyed in {:?}", start.elapsed());
    }
    daemon.stop().await;
}

fn summary(reply: &serde_json::Value) -> String {
    let output: String = reply["output"].as_str().unwrap_or_default().chars().take(60).collect();
    format!("exit {} oom {} timed out {} {output:?}", reply["exit_code"], reply["oom_killed"], reply["timed_out"])
}

#[tokio::test]
async fn a_command_killed_for_memory_is_said_to_be() {
    if !is_root() {
        return skipped("memory limits", "need root");
    }
    let _alone = crate::alone().await;
    let daemon = Daemon::start().await;
    let session = daemon.create(json!({ "resources": { "memory_mb": 100, "disk_mb": 20 } })).await;
    let answer = session.ask(json!({ "cmd": "python3 -c 'x = bytearray(300 << 20)'" })).await;
    if answer.status != 200 && !Ability::LimitSurvived.is_there(OUTLIVED) {
        assert_eq!(answer.refused(), ErrorCode::SandboxLost, "{}", answer.text());
        let view = wait_until("its end is known", LONG_DEADLINE, async || {
            Some(session.view().await).filter(|view| view["status"] != "running")
        });
        assert_eq!(view.await["status"], "crashed");
        assert_eq!(daemon.session().await.sh("echo another").await, "another\n");
        return daemon.stop().await;
    }
    let reply = answer.ok();
    if Ability::OomTold.is_there("oom_killed") {
        assert_eq!(reply["oom_killed"], true, "{reply}");
        assert_eq!(reply["exit_code"], 137, "{reply}");
    } else {
        assert_ne!(reply["exit_code"], 0, "{reply}");
    }
    assert_eq!(session.sh("echo still here").await, "still here\n");
    assert_eq!(session.view().await["status"], "running");
    daemon.stop().await;
}
