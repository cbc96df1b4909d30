//! The user that an image names: commands run as that one, and everything that is theirs belongs to it.

use e2e::daemon::registry::{Image, Layer, OwnRegistry};
use e2e::daemon::rootfs::{rootfs, tar_of};
use e2e::daemon::{Cove, Daemon};
use e2e::{DEADLINE, wait_until};
use serde_json::json;

use super::disks::has_disks;

/// An image with a user `app`, whose configuration names `user`.
async fn image(user: &str) -> OwnRegistry {
    let root = rootfs();
    let passwd = "root:x:0:0:root:/root:/bin/bash\napp:x:1234:2345::/srv/app:/bin/bash\n";
    std::fs::write(root.path().join("etc/passwd"), passwd).expect("our own directory");
    std::fs::write(root.path().join("etc/group"), "root:x:0:\napps:x:2345:\nstaff:x:50:\n").expect("our own directory");
    std::fs::create_dir_all(root.path().join("srv/app")).expect("our own directory");
    std::fs::write(root.path().join("srv/app/own"), "own\n").expect("our own directory");
    std::os::unix::fs::chown(root.path().join("srv/app/own"), Some(1234), Some(2345)).expect("our own directory");
    OwnRegistry::of(Image::new(&[Layer::gzip(&tar_of(root.path()))], json!({ "User": user })), |_| None).await
}

const WHO: &str = "id -u; id -g; echo $USER $HOME; [ -O /srv/app/own ] && echo own; true";

#[tokio::test]
async fn commands_run_as_the_user_of_the_image_and_own_what_they_write() {
    if !has_disks("commands_run_as_the_user_of_the_image_and_own_what_they_write") {
        return;
    }
    let daemon = Daemon::start().await;
    let registry = image("app").await;
    let session = daemon.create(json!({ "image": registry.name(), "workspace_id": "shared" })).await;
    assert_eq!(session.sh(WHO).await, "1234\n2345\napp /srv/app\nown\n");
    session.sh("echo w > /workspace/file; echo t > /tmp/file; cat /workspace/file /tmp/file").await;
    assert_ne!(session.exec("echo x > /etc/new").await["exit_code"], 0, "the root is read-only");
    assert_ne!(session.exec("ls /run/cove/state; echo x > /run/cove/x").await["exit_code"], 0, "the runner's files");
    let put = session.api.post(&session.path("/files/write"), json!({ "path": "/tmp/by-call", "content": "x" })).await;
    println!("a file call: {}", put.status);
    // Files of a workspace belong to whoever uses it.
    let other = daemon.create(json!({ "workspace_id": "shared" })).await;
    assert_eq!(other.sh("id -u; echo more >> /workspace/file; cat /workspace/file").await, "1000\nw\nmore\n");
    assert_eq!(session.sh("[ -O /workspace/file ] && cat /workspace/file").await, "w\nmore\n");
    // In a root that can be changed, the files of root are the user's, and what the user makes is root's in an image of it.
    let writer = daemon.create(json!({ "image": registry.name(), "writable_root": true })).await;
    assert_eq!(writer.sh("echo new > /etc/new; id -u").await, "1234\n");
    Cove::of(&daemon).run(&["image", "commit", &writer.id, "mine"]).await.ok();
    let copy = daemon.create(json!({ "image": "mine" })).await;
    assert_eq!(copy.sh(WHO).await, "1234\n2345\napp /srv/app\nown\n");
    let listed = copy.sh("ls -ln /etc/new").await;
    assert_eq!(listed.split_whitespace().collect::<Vec<_>>()[2..4], ["0", "2345"], "{listed}");
    // Root is asked for by the session and not by the image.
    let root = daemon.create(json!({ "image": registry.name(), "user": "root" })).await;
    assert_eq!(root.sh("id -u").await, "0\n");
    // A copy keeps the user, with its files.
    let made = session.api.post(&session.path("/snapshots"), json!({})).await.ok();
    let restored = daemon.create(json!({ "snapshot": made["id"] })).await;
    assert_eq!(restored.sh("id -u; [ -O /tmp/file ] && echo mine").await, "1234\nmine\n");
    for session in [session, other, writer, copy, root, restored] {
        session.destroy().await;
    }
    daemon.stop().await;
}

#[tokio::test]
async fn an_image_that_names_root_or_nobody_runs_as_the_ordinary_user_and_a_pool_gives_the_workspace_to_the_images() {
    let story =
        "an_image_that_names_root_or_nobody_runs_as_the_ordinary_user_and_a_pool_gives_the_workspace_to_the_images";
    if !has_disks(story) {
        return;
    }
    let daemon = Daemon::start().await;
    for (named, expected) in
        [("", "1000 1000\n"), ("root", "1000 1000\n"), ("0:0", "1000 1000\n"), ("nosuch", "1000 1000\n")]
    {
        let registry = image(named).await;
        let session = daemon.create(json!({ "image": registry.name() })).await;
        assert_eq!(session.sh("echo $(id -u) $(id -g)").await, expected, "{named:?}");
        session.destroy().await;
    }
    let registry = image("3000:staff").await;
    let name = registry.name();
    daemon.create(json!({ "image": name })).await.destroy().await;
    daemon.put(&format!("/v1/pools/{}", name.replace('/', "%2F")), json!({ "size": 1 })).await.ok();
    let filled = async || (daemon.get("/v1/pools").await.ok()[0]["idle"] == 1).then_some(());
    wait_until("a filled pool", DEADLINE, filled).await;
    let session = daemon.create(json!({ "image": name, "workspace_id": "pooled" })).await;
    assert_eq!(session.view().await["acquire_source"], "pool");
    let seen = session.sh("id -u; id -g; echo w > /workspace/file && cat /workspace/file").await;
    assert_eq!(seen, "3000\n50\nw\n");
    let other = daemon.create(json!({ "workspace_id": "pooled" })).await;
    assert_eq!(other.sh("[ -O /workspace/file ] && cat /workspace/file").await, "w\n");
    daemon.put(&format!("/v1/pools/{}", name.replace('/', "%2F")), json!({ "size": 0 })).await.ok();
    for session in [session, other] {
        session.destroy().await;
    }
    daemon.stop().await;
}
