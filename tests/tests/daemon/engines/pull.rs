//! Images that have to be pulled, from a registry on loopback. The stories run only on a container engine.

use std::net::TcpListener;

use e2e::daemon::registry::DebianRegistry;
use e2e::daemon::{Ability, Daemon, Engine, engine, lacks};
use e2e::skipped;
use serde_json::json;
use shared_protocol::ErrorCode::InvalidImage;

/// Makes an image of some megabytes that only the registry has afterwards.
fn has_alone(registry: &DebianRegistry, engine: &Engine) -> String {
    let name = format!("{}/story/pulled:1", registry.address);
    let container = format!("cove-story-{}", registry.address.replace(':', "-"));
    let fill = "head -c 8388608 /dev/urandom >/pulled";
    engine.docker(&[
        "run",
        "--network=none",
        "--runtime=runc",
        "--name",
        &container,
        "debian:bookworm-slim",
        "sh",
        "-c",
        fill,
    ]);
    engine.docker(&["commit", &container, &name]);
    engine.docker(&["rm", &container]);
    engine.docker(&["push", "--quiet", &name]);
    engine.docker(&["rmi", &name]);
    name
}

/// An address that was free a moment ago, and where nobody listens.
fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a free port").to_string()
}

#[tokio::test]
async fn an_image_that_is_configured_is_fetched_once_for_all_who_wait_and_its_progress_is_told() {
    let Some(engine) = engine() else { return skipped("a pull", "the stories run on local") };
    if lacks("a pull", Ability::OpenRegistry) {
        return;
    }
    let Some(registry) = DebianRegistry::start().await else {
        return skipped("a pull", "docker-registry is not installed");
    };
    let name = has_alone(&registry, engine);
    let daemon = Daemon::builder().env("COVE_DOCKER_PULL", "configured");
    let daemon = daemon.env("COVE_DOCKER_IMAGES", &format!("fetched={name}")).start().await;
    let (first, second) =
        tokio::join!(daemon.create(json!({ "image": "fetched" })), daemon.create(json!({ "image": "fetched" })));
    for session in [first, second] {
        assert_eq!(session.sh("stat -c %s /pulled").await, "8388608\n");
    }
    let log = daemon.log();
    assert_eq!(log.matches("pulling an image").count(), 1, "{log}");
    for step in ["Already exists", "Pull complete", "Digest: sha256:"] {
        assert!(log.contains(step), "nothing of {step:?}: {log}");
    }
    // An image that a client names is not pulled.
    let answer = daemon.post("/v1/sessions", json!({ "image": format!("{}/story/other:1", registry.address) })).await;
    assert_eq!(answer.refused(), InvalidImage);
    assert!(answer.text().contains("not pulled unasked"), "{}", answer.text());
    daemon.stop().await;
    engine.docker(&["rmi", &name]);
}

#[tokio::test]
async fn a_wrong_name_and_a_registry_that_is_not_there_are_told_in_clear_words() {
    let Some(_) = engine() else { return skipped("a pull that fails", "the stories run on local") };
    if lacks("a pull that fails", Ability::OpenRegistry) {
        return;
    }
    let Some(registry) = DebianRegistry::start().await else {
        return skipped("a pull that fails", "docker-registry is not installed");
    };
    let daemon = Daemon::builder().env("COVE_DOCKER_PULL", "any").start().await;
    let nowhere = free_address();
    for (image, why) in [
        (format!("{}/no/such:1", registry.address), "not found"),
        (format!("{nowhere}/no/such:1"), "connection refused"),
    ] {
        let answer = daemon.post("/v1/sessions", json!({ "image": image })).await;
        assert_eq!(answer.refused(), InvalidImage, "{}", answer.text());
        let message = answer.json()["message"].as_str().unwrap_or_default().to_owned();
        assert!(message.contains(&image) && message.contains("pulling it failed"), "{message}");
        assert!(message.contains(why), "{message}");
    }
    daemon.stop().await;
}
