//! Changes at a container engine that the daemon did not ask for. The stories run only on an engine.

use std::time::Duration;

use e2e::daemon::{Daemon, Leftovers, engine};
use e2e::{DEADLINE, skipped, wait_until};
use serde_json::json;
use shared_protocol::ErrorCode::{InvalidImage, InvalidRequest, SandboxLost};

/// The longest time for the daemon to notice that a session's container is gone.
const NOTICED_WITHIN: Duration = Duration::from_secs(10);

#[tokio::test]
async fn a_container_that_is_killed_or_removed_is_a_crashed_session_at_once() {
    let Some(engine) = engine() else { return skipped("a killed container", "the stories run on local") };
    let daemon = Daemon::start().await;
    for way in [&["kill"][..], &["rm", "-f"]] {
        let session = daemon.session().await;
        let mut stream = session.stream(json!({ "cmd": "echo begun; sleep 1000" })).await;
        stream.until("chunk").await;
        engine.docker(&[way, &[engine.container(&session.id).as_str()]].concat());
        let (_, last) = stream.finish().await;
        // Podman asks a container to end before it removes it: the runner may still report that a signal ended the command.
        let is_ended = way[0] == "rm" && last.name == "done" && last.data["exit_code"].as_i64() > Some(128);
        assert!(is_ended || (last.name == "error" && last.data["error_code"] == "SANDBOX_LOST"), "{way:?}: {last:?}");
        wait_until("the session is crashed", NOTICED_WITHIN, async || {
            (session.view().await["status"] == "crashed").then_some(())
        })
        .await;
        assert_eq!(session.ask(json!({ "cmd": "true" })).await.refused(), SandboxLost);
    }
    let data_dir = daemon.data_dir();
    wait_until("nothing is left", DEADLINE, async || {
        let left = Leftovers::of(&data_dir);
        (left.containers.is_empty() && left.directories.is_empty()).then_some(())
    })
    .await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_container_that_somebody_else_paused_goes_on() {
    let Some(engine) = engine() else { return skipped("a paused container", "the stories run on local") };
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let mut stream =
        session.stream(json!({ "cmd": "echo begun; until test -e go; do sleep 0.1; done; echo ended" })).await;
    stream.until("chunk").await;
    engine.docker(&["pause", &engine.container(&session.id)]);
    session.put("go", "").await.ok();
    assert_eq!(stream.until("done").await.data["exit_code"], 0);
    assert_eq!(session.sh("echo back").await, "back\n");
    daemon.stop().await;
}

#[tokio::test]
async fn what_cannot_be_made_is_refused_and_leaves_nothing() {
    let Some(_) = engine() else { return skipped("what an engine refuses", "the stories run on local") };
    let daemon = Daemon::start().await;
    for (request, code) in [
        (json!({ "image": "cove-there-is-no-such-image" }), InvalidImage),
        (json!({ "image": "../containers/json?all=1" }), InvalidImage),
        (json!({ "resources": { "disk_mb": 600, "memory_mb": 500 } }), InvalidRequest),
    ] {
        assert_eq!(daemon.post("/v1/sessions", request.clone()).await.refused(), code, "{request}");
    }
    let left = Leftovers::of(&daemon.data_dir());
    assert!(left.containers.is_empty() && left.directories.is_empty(), "{left:?}");
    daemon.stop().await;
}

/// The images of all other stories have a runner of their own.
#[tokio::test]
async fn an_image_without_a_runner_gets_ours() {
    let Some(_) = engine() else { return skipped("an image without a runner", "the stories run on local") };
    let daemon = Daemon::start().await;
    let session = daemon.create(json!({ "image": "debian:bookworm-slim" })).await;
    assert_eq!(session.sh("cat /proc/1/comm; id -u; pwd").await, "runner\n1000\n/workspace\n");
    assert_ne!(session.exec("ls /run/cove/private").await["exit_code"], 0, "commands come to the runner's socket");
    daemon.stop().await;
}

#[tokio::test]
async fn a_network_is_there_for_those_who_ask() {
    let Some(engine) = engine() else { return skipped("network full", "the stories run on local") };
    let daemon = Daemon::builder().env("COVE_DOCKER_NETWORK", "bridge").start().await;
    if !engine.has_network() {
        let refused = daemon.post("/v1/sessions", json!({ "network": "full" })).await;
        assert_eq!(refused.refused(), InvalidRequest, "{}", refused.text());
        assert!(refused.text().contains("--network=none"), "{}", refused.text());
        return daemon.stop().await;
    }
    let with = daemon.create(json!({ "network": "full" })).await;
    let without = daemon.session().await;
    let interfaces = "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' ' | sort | tr '\\n' ' '";
    assert_eq!(with.sh(interfaces).await, "eth0 lo ");
    assert_eq!(without.sh(interfaces).await, "lo ");
    daemon.stop().await;
}
