//! Images that are made from sessions: what the session changed of its root is in them, and nothing else of it.

use std::path::Path;

use e2e::daemon::registry::{Image, Layer, OwnRegistry};
use e2e::daemon::rootfs::{put_program, rootfs, tar_of};
use e2e::daemon::{Cove, Daemon, Session};
use e2e::{DEADLINE, is_soak, skipped, wait_until};
use serde_json::{Value, json};
use shared_protocol::ErrorCode::{Conflict, Forbidden, InvalidImage, InvalidRequest, SessionNotFound};

use super::disks::has_disks;
use super::pull::{names_in, store};

/// A root file system with what these stories change files with.
fn with_tools() -> tempfile::TempDir {
    let root = rootfs();
    for program in ["chown", "ln", "mv"] {
        put_program(root.path(), &Path::new("/usr/bin").join(program));
    }
    for (directory, file) in [("data", "old"), ("srv", "gone"), ("srv/deep", "kept")] {
        std::fs::create_dir_all(root.path().join(directory)).expect("our own directory");
        std::fs::write(root.path().join(directory).join(file), "of the image\n").expect("our own directory");
    }
    root
}

async fn commit(session: &Session, name: &str) -> Value {
    let asked = json!({ "session_id": session.id, "image": name });
    let answer = session.api.post("/v1/images/commit", asked).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let text = answer.text();
    let last = text.lines().rfind(|line| line.starts_with("data: ")).expect("an event").to_owned();
    serde_json::from_str(last.trim_start_matches("data: ")).expect("JSON")
}

fn layers(daemon: &Daemon) -> usize {
    names_in(&store(daemon).join("layers")).iter().filter(|name| !name.ends_with(".json")).count()
}

/// Changes of each kind in a root, by root.
const CHANGES: &str = "cd / && echo new > /srv/new && ln -s new /srv/link && ln /srv/new /srv/same && rm /srv/gone \
    && rm -r /data && mkdir /data && echo own > /data/own && chown 33:34 /srv/deep/kept && mv /srv/deep /srv/moved \
    && echo root > /root/file && echo tmp > /tmp/file && echo home > /home/sandbox/file && echo w > /workspace/file \
    && mkdir -p /opt/a/b && echo opt > /opt/a/b/c";

/// What a session on the image sees of them.
const SEEN: &str = "cat /srv/new /srv/link /srv/same /data/own /opt/a/b/c; ls /srv /data; ls -A /tmp /workspace /home/sandbox; \
    ls -ln /srv/moved/kept";

const EXPECTED: &str = "new\nnew\nnew\nown\nopt\n/data:\nown\n\n/srv:\nlink\nmoved\nnew\nsame\n\
    /home/sandbox:\n\n/tmp:\n\n/workspace:\n";

#[tokio::test]
async fn a_session_on_an_image_of_layers_becomes_an_image_with_its_changes_and_what_its_image_says() {
    if !has_disks("a_session_on_an_image_of_layers_becomes_an_image_with_its_changes_and_what_its_image_says") {
        return;
    }
    let config = json!({ "Env": ["GREETING=hello"], "WorkingDir": "/srv" });
    let registry = OwnRegistry::of(Image::new(&[Layer::gzip(&tar_of(with_tools().path()))], config), |_| None).await;
    let daemon = Daemon::start().await;
    let cove = Cove::of(&daemon);
    let session = daemon.create(json!({ "image": registry.name(), "user": "root" })).await;
    session.sh(CHANGES).await;
    session.sh("X=kept").await;
    cove.run(&["image", "commit", &session.id, "mine"]).await.ok();
    assert_eq!(session.sh("echo $X; echo later > /srv/later").await, "kept\n", "the session goes on");

    let listed = cove.run(&["image", "ls", "--json"]).await.json();
    let of = |name: &str| listed.as_array().expect("a list").iter().find(|image| image["name"] == name).cloned();
    let mine = of("mine").expect("it is listed");
    assert_eq!(mine["source"], "commit");
    assert!(mine["shared_bytes"].as_u64() > Some(0), "it shares its image's layers: {mine}");
    let details = cove.run(&["image", "inspect", "mine"]).await.json();
    let from = details["committed_from"].as_str().expect("text");
    assert!(from.contains(&session.id) && from.contains(&registry.name()), "{details}");
    assert_eq!(details["config"]["Env"], json!(["GREETING=hello"]));

    // The image is there without the session, and without the image that it came from.
    session.destroy().await;
    daemon.delete(&format!("/v1/images/{}", registry.name().replace('/', "%2F"))).await.ok();
    cove.run(&["image", "prune"]).await.ok();
    let copy = daemon.create(json!({ "image": "mine" })).await;
    assert_eq!(copy.sh("echo $GREETING; pwd").await, "hello\n/srv\n");
    let seen = copy.sh(SEEN).await;
    assert!(seen.starts_with(EXPECTED), "{seen}");
    let owner: Vec<&str> = seen.lines().last().expect("a line").split_whitespace().collect();
    assert_eq!(owner[2..4], ["33", "34"], "{seen}");
    // An image of an image.
    let again = daemon.create(json!({ "image": "mine", "user": "root" })).await;
    again.sh("cat /root/file; rm /srv/new /srv/same; echo second > /srv/second").await;
    assert_eq!(commit(&again, "second").await["name"], "second");
    let second = daemon.create(json!({ "image": "second" })).await;
    assert_eq!(second.sh("ls /srv; cat /srv/second").await, "link\nmoved\nsecond\nsecond\n");
    assert_eq!(copy.sh("ls /srv").await, "link\nmoved\nnew\nsame\n", "what one writes no other sees");
    for session in [copy, again, second] {
        session.destroy().await;
    }
    for image in ["mine", "second"] {
        cove.run(&["image", "rm", image]).await.ok();
    }
    cove.run(&["image", "prune"]).await.ok();
    assert_eq!(layers(&daemon), 0, "nothing is left of them");
    daemon.stop().await;
}

#[tokio::test]
async fn a_stopped_or_paused_session_of_the_ordinary_user_on_an_imported_image_becomes_an_image() {
    if !has_disks("a_stopped_or_paused_session_of_the_ordinary_user_on_an_imported_image_becomes_an_image") {
        return;
    }
    let daemon = Daemon::start().await;
    let cove = Cove::of(&daemon);
    let root = with_tools();
    cove.run(&["image", "import", "base", root.path().to_str().expect("text")]).await.ok();
    let session = daemon.create(json!({ "image": "base", "writable_root": true })).await;
    session.sh("echo new > /srv/new; echo changed > /etc/mark; rm -r /data").await;
    session.change("stop").await.ok();
    commit(&session, "stopped").await;
    assert_eq!(session.view().await["status"], "stopped");
    session.change("start").await.ok();
    session.sh("echo again > /srv/again").await;
    session.change("pause").await.ok();
    commit(&session, "paused").await;
    assert_eq!(session.view().await["status"], "paused");
    // Both are over one copy of the imported image.
    assert_eq!(layers(&daemon), 1 + 2 * 2);
    session.destroy().await;
    cove.run(&["image", "rm", "base"]).await.ok();

    for (image, expected) in [("stopped", "deep\ngone\nnew\n"), ("paused", "again\ndeep\ngone\nnew\n")] {
        let reader = daemon.create(json!({ "image": image })).await;
        let seen = reader.sh("ls /srv; cat /srv/new /etc/mark; ls -d /data 2>&1; ls -ln /srv/new").await;
        let (names, rest) = seen.split_at(expected.len());
        assert!(names == expected && rest.starts_with("new\nchanged\n") && rest.contains("No such file"), "{seen}");
        let owner: Vec<&str> = rest.lines().last().expect("a line").split_whitespace().collect();
        assert_eq!(owner[2..4], ["0", "0"], "it is a file of the image's root, as those beside it: {seen}");
        let writer = daemon.create(json!({ "image": image, "writable_root": true })).await;
        assert_eq!(writer.sh("echo more >> /srv/new; cat /srv/new").await, "new\nmore\n");
        let by_root = daemon.create(json!({ "image": image, "user": "root" })).await;
        assert_eq!(by_root.sh("echo more >> /srv/new; cat /srv/new").await, "new\nmore\n");
        for session in [reader, writer, by_root] {
            session.destroy().await;
        }
    }
    daemon.stop().await;
}

#[tokio::test]
async fn what_cannot_be_committed_is_refused_and_leaves_nothing() {
    if !has_disks("what_cannot_be_committed_is_refused_and_leaves_nothing") {
        return;
    }
    let daemon = Daemon::start().await;
    let cove = Cove::of(&daemon);
    let root = with_tools();
    cove.run(&["image", "import", "mine", root.path().to_str().expect("text")]).await.ok();
    let fixed = daemon.create(json!({ "image": "mine" })).await;
    let session = daemon.create(json!({ "image": "mine", "user": "root" })).await;
    let ask =
        async |id: &str, name: &str| daemon.post("/v1/images/commit", json!({ "session_id": id, "image": name })).await;
    let refused = ask(&fixed.id, "new").await;
    assert!(refused.text().contains("writable_root"), "{}", refused.text());
    assert_eq!(refused.refused(), InvalidRequest);
    assert_eq!(ask(&session.id, "mine").await.refused(), Conflict);
    for bad in ["", "a b", "../x", "mine:latest", "a/b"] {
        assert_eq!(ask(&session.id, bad).await.refused(), InvalidRequest, "{bad:?}");
    }
    assert_eq!(ask("nosuch", "new").await.refused(), SessionNotFound);
    // Images are everybody's, so a user may not make them, also from its own session.
    let key = daemon.post("/v1/keys", json!({ "name": "alice", "role": "user" })).await.ok()["secret"].clone();
    let user = daemon.api().with_key(key.as_str());
    let own = user.create(json!({ "image": "mine", "user": "root" })).await;
    let by_user = user.post("/v1/images/commit", json!({ "session_id": own.id, "image": "new" })).await;
    assert_eq!(by_user.refused(), Forbidden);
    // No session could start from an image without bash.
    session.sh("rm /bin/bash").await;
    let answer = ask(&session.id, "new").await.text();
    assert!(answer.contains("event: error") && answer.contains("no bash"), "{answer}");
    let by_command = cove.run(&["image", "commit", &session.id, "new"]).await;
    assert!(by_command.code == 1 && by_command.stderr.contains("no bash"), "{by_command:?}");
    assert_eq!((layers(&daemon), names_in(&store(&daemon).join("references")).len()), (0, 0));
    let snapshots = daemon.data_dir().join("snapshots");
    wait_until("the copies to be gone", DEADLINE, async || names_in(&snapshots).is_empty().then_some(())).await;
    assert_eq!(daemon.post("/v1/sessions", json!({ "image": "new" })).await.refused(), InvalidImage);
    for session in [fixed, session, own] {
        session.destroy().await;
    }
    daemon.stop().await;
}

#[tokio::test]
async fn a_session_on_the_hosts_own_system_becomes_an_image_of_its_own() {
    let story = "a_session_on_the_hosts_own_system_becomes_an_image_of_its_own";
    if !has_disks(story) {
        return;
    }
    if !is_soak() {
        return skipped(story, "it copies the host's programs; run it with --soak");
    }
    let daemon = Daemon::start().await;
    let session = daemon.create(json!({ "image": "host", "user": "root" })).await;
    session
        .sh("echo '#!/bin/sh\necho tool' > /usr/bin/tool; chmod +x /usr/bin/tool; rm /usr/bin/env; useradd alice")
        .await;
    session.sh("echo own > /etc/own; rm -r /usr/share/doc; mkdir /usr/share/doc").await;
    commit(&session, "system").await;
    session.destroy().await;
    let copy = daemon.create(json!({ "image": "system" })).await;
    assert_eq!(
        copy.sh("tool; cat /etc/own; id -un alice; ls -A /usr/share/doc; ls /usr/bin/env 2>/dev/null; true").await,
        "tool\nown\nalice\n"
    );
    assert_ne!(copy.sh("cat /etc/hostname 2>/dev/null || hostname").await.trim(), session.id);
    copy.destroy().await;
    daemon.stop().await;
}
