//! What a kept session or a snapshot was made with, and what the daemon decides anew.

use e2e::daemon::rootfs::rootfs;
use e2e::daemon::{Cove, Daemon};
use serde_json::json;

use super::disks::has_disks;

#[tokio::test]
async fn what_the_daemon_says_takes_the_place_of_what_a_snapshot_has_and_what_the_client_says_of_both() {
    let story = "what_the_daemon_says_takes_the_place_of_what_a_snapshot_has_and_what_the_client_says_of_both";
    if !has_disks(story) {
        return;
    }
    let daemon = Daemon::start().await;
    let session = daemon.create(json!({ "resources": { "cpus": 1 }, "env": { "MINE": "1" } })).await;
    assert_eq!(session.sh("echo $OMP_NUM_THREADS; export SSL_CERT_FILE=/old CURL_CA_BUNDLE=/old").await, "1\n");
    let made = session.api.post(&session.path("/snapshots"), json!({})).await.ok();
    let values = "echo $OMP_NUM_THREADS $MINE $SSL_CERT_FILE $CURL_CA_BUNDLE";
    let same = daemon.create(json!({ "snapshot": made["id"] })).await;
    assert_eq!(same.sh(values).await, "1 1 /old /old\n");
    daemon.put("/v1/secrets/token", json!({ "value": "the-secret-value" })).await.ok();
    let inject = json!([{ "host": "api.example.com", "header": "Authorization", "value_from": "secret:token", "format": "Bearer {}" }]);
    let other = json!({
        "snapshot": made["id"], "resources": { "cpus": 2 }, "env": { "CURL_CA_BUNDLE": "/new" },
        "network": { "allow": ["api.example.com"] }, "inject": inject,
    });
    let other = daemon.create(other).await;
    let bundle = "/run/cove-trust/bundle.pem";
    assert_eq!(other.sh(values).await, format!("2 1 {bundle} /new\n"));
    let run = other.api.post(&other.path("/run"), json!({ "argv": ["sh", "-c", values] })).await.ok();
    assert_eq!(
        run["stdout"].as_str().or(run["output"].as_str()),
        Some(format!("2 1 {bundle} /new\n").as_str()),
        "{run}"
    );
    // What a client has said once stays, also in copies.
    let own = daemon.create(json!({ "resources": { "cpus": 1 }, "env": { "OMP_NUM_THREADS": "7" } })).await;
    let made = own.api.post(&own.path("/snapshots"), json!({})).await.ok();
    let copy = daemon.create(json!({ "snapshot": made["id"], "resources": { "cpus": 2 } })).await;
    assert_eq!(copy.sh("echo $OMP_NUM_THREADS").await, "7\n");
    for session in [session, same, other, own, copy] {
        session.destroy().await;
    }
    daemon.stop().await;
}

#[tokio::test]
async fn a_kept_session_has_the_root_that_it_was_made_with_whatever_its_images_name_means_now() {
    if !has_disks("a_kept_session_has_the_root_that_it_was_made_with_whatever_its_images_name_means_now") {
        return;
    }
    let daemon = Daemon::start().await;
    let session = daemon.create(json!({ "image": "base" })).await;
    assert_eq!(session.sh("ls /etc/mark 2>/dev/null; echo host").await, "host\n");
    let made = session.api.post(&session.path("/snapshots"), json!({})).await.ok();
    session.change("stop").await.ok();
    let root = rootfs();
    Cove::of(&daemon).run(&["image", "import", "base", root.path().to_str().expect("text")]).await.ok();
    let new = daemon.create(json!({ "image": "base" })).await;
    assert_eq!(new.sh("cat /etc/mark").await, "an image of its own\n", "the name means the imported image");
    session.change("start").await.ok();
    assert_eq!(session.sh("ls /etc/mark 2>/dev/null; echo host").await, "host\n");
    let copy = daemon.create(json!({ "snapshot": made["id"] })).await;
    assert_eq!(copy.sh("ls /etc/mark 2>/dev/null; echo host").await, "host\n");
    for session in [session, new, copy] {
        session.destroy().await;
    }
    daemon.stop().await;
}

#[tokio::test]
async fn a_repeated_create_answers_with_its_session_also_if_its_snapshot_is_gone() {
    if !has_disks("a_repeated_create_answers_with_its_session_also_if_its_snapshot_is_gone") {
        return;
    }
    let daemon = Daemon::start().await;
    let session = daemon.create(json!({})).await;
    let made = session.api.post(&session.path("/snapshots"), json!({})).await.ok();
    let keyed = daemon.with_header("idempotency-key", "once");
    let first = keyed.post("/v1/sessions", json!({ "snapshot": made["id"] })).await.ok();
    daemon.delete(&format!("/v1/snapshots/{}", made["id"].as_str().expect("an id"))).await.ok();
    let again = keyed.post("/v1/sessions", json!({ "snapshot": made["id"] })).await.ok();
    assert_eq!(again["id"], first["id"]);
    let other =
        daemon.with_header("idempotency-key", "other").post("/v1/sessions", json!({ "snapshot": made["id"] })).await;
    assert_eq!(other.status, 404);
    daemon.stop().await;
}
