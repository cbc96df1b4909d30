//! Snapshots of containers: files that are in memory, a root that is the engine's, and images that stay as long as somebody needs them.

use std::path::Path;
use std::process::Command;

use e2e::daemon::{Daemon, Engine, Session, engine, snapshots_of};
use e2e::skipped;
use serde_json::{Value, json};
use shared_protocol::ErrorCode::{InvalidImage, InvalidRequest};

const MIB: u64 = 1 << 20;

async fn snapshot(session: &Session) -> Value {
    session.api.post(&session.path("/snapshots"), json!({})).await.ok()
}

fn id_of(view: &Value) -> String {
    view["id"].as_str().expect("an id").to_owned()
}

/// The name with which the daemon marks what it has at the engine.
fn instance(daemon: &Daemon) -> String {
    std::fs::read_to_string(daemon.data_dir().join("cgroup")).expect("a name").trim().to_owned()
}

#[tokio::test]
async fn every_kind_of_file_is_in_the_copy_as_it_was() {
    let Some(engine) = engine() else {
        return skipped("every_kind_of_file_is_in_the_copy_as_it_was", "the stories run on local");
    };
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    session
        .sh("cd /workspace; mkdir -p 'a b/c' locked shared; echo x > 'a b/c/file'; ln 'a b/c/file' twin; ln -s /etc/passwd link; \
             ln -s nowhere dangling; mkfifo pipe; echo secret > locked/f; chmod 000 locked/f; chmod 500 locked; chmod 2775 shared; \
             chmod 4711 twin; truncate -s 1G sparse; printf end | dd of=sparse bs=1 seek=500000000 conv=notrunc status=none; \
             : > empty; touch -d '2001-02-03 04:05:06.789012345 UTC' empty 'a b'; printf 'x%.0s' {1..200} > long; \
             mv long \"$(printf 'n%.0s' {1..250})\"; echo $'odd\\nname' > $'odd\\n\\xffname'; echo t > /tmp/t; echo v > /var/tmp/v; echo h > ~/h; \
             echo s > /dev/shm/s; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"/workspace/socket\")'; chmod 700 ~")
        .await;
    let described = "cd /workspace; find . ! -name socket -printf '%p|%y|%m|%U:%G|%s|%T@|%l|%n\\n' | LC_ALL=C sort | grep -av '^\\.|'; \
                     cat twin /tmp/t /var/tmp/v ~/h; tail -c +500000001 sparse | head -c 3; stat -c %a ~ /tmp /workspace; \
                     [ $(du -k sparse | cut -f1) -lt 1000 ] && echo sparse; [ 'a b/c/file' -ef twin ] && echo one";
    let before = session.sh(described).await;
    // gVisor counts holes as well.
    let end = if engine.is_gvisor() { "one\n" } else { "sparse\none\n" };
    assert!(before.contains("|4711|1000:1000|2|") && before.ends_with(end), "{before}");
    let copy = daemon.create(json!({ "snapshot": id_of(&snapshot(&session).await) })).await;
    assert_eq!(copy.sh(described).await, before);
    assert_eq!(copy.sh("ls /dev/shm /workspace/socket 2>&1 | grep -c 'No such'; ls /dev/shm | wc -l").await, "1\n0\n");
    assert_eq!(copy.sh("chmod 600 /workspace/locked/f; cat /workspace/locked/f").await, "secret\n");
    daemon.stop().await;
}

#[tokio::test]
async fn programs_and_the_jobs_of_a_shell_do_not_notice_a_snapshot() {
    let story = "programs_and_the_jobs_of_a_shell_do_not_notice_a_snapshot";
    match engine() {
        None => return skipped(story, "the stories run on local"),
        Some(engine) if engine.is_gvisor() => {
            return skipped(
                story,
                "with gVisor a snapshot can suspend the program in the foreground, as the guide says",
            );
        }
        Some(_) => {}
    }
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    session.sh("mkfifo /tmp/end").await;
    // Somebody has stopped this program before. It is no job of the shell, which would report it.
    let stop_a_child = "exec >/dev/null 2>&1; sleep 1000 & kill -STOP $!; echo $! > /tmp/stopped";
    session.run(&["sh", "-c", stop_a_child]).await;
    // A shell that takes its job for a suspended one would go on with the status 147.
    let cmd =
        "set -m; echo begun; cat /tmp/end; echo status $?; bash -c 'cat /tmp/end; exit 7' | cat; echo ${PIPESTATUS[0]}";
    let mut stream = session.stream(json!({ "cmd": cmd, "timeout_ms": 100_000 })).await;
    while stream.next().await.expect("output").name != "chunk" {}
    for _ in 0..3 {
        snapshot(&session).await;
    }
    session.run(&["sh", "-c", "echo one > /tmp/end"]).await;
    snapshot(&session).await;
    session.run(&["sh", "-c", "echo two > /tmp/end"]).await;
    let mut printed = Vec::new();
    loop {
        let event = stream.next().await.expect("an end");
        match event.name.as_str() {
            "chunk" => printed.extend(event.bytes()),
            "done" => break,
            other => panic!("{other}: {event:?}"),
        }
    }
    assert_eq!(String::from_utf8_lossy(&printed), "one\nstatus 0\ntwo\n7\n");
    assert_eq!(
        session.sh("ps -o stat= -p $(cat /tmp/stopped) | cut -c1; kill -9 $(cat /tmp/stopped)").await,
        "T\n",
        "it stays stopped"
    );
    daemon.stop().await;
}

#[tokio::test]
async fn a_snapshot_that_does_not_fit_is_refused_and_counts_what_it_holds() {
    if engine().is_none() {
        return skipped("a_snapshot_that_does_not_fit_is_refused_and_counts_what_it_holds", "the stories run on local");
    }
    let daemon = Daemon::builder().config("[snapshots]\nmax_mb_per_owner = 50\n").start().await;
    let session = daemon.create(json!({ "resources": { "memory_mb": 512, "disk_mb": 60 } })).await;
    session.sh("head -c 30M /dev/urandom > /workspace/have").await;
    let made = snapshot(&session).await;
    let held = made["disk_bytes"].as_u64().expect("a number");
    assert!((30 * MIB..31 * MIB).contains(&held), "{made}");
    let with_disk = |mb: u64| json!({ "snapshot": id_of(&made), "resources": { "disk_mb": mb } });
    let refused = daemon.post("/v1/sessions", with_disk(20)).await;
    assert!(refused.text().contains("do not fit into disk_mb 20"), "{}", refused.text());
    assert_eq!(refused.refused(), InvalidRequest);
    let copy = daemon.create(with_disk(40)).await;
    let filled = copy.exec("head -c 20M /dev/urandom > /workspace/more; stat -c %s /workspace/more").await;
    let written: u64 = filled["output"].as_str().and_then(|text| text.lines().last()?.parse().ok()).expect("a size");
    assert!((9 * MIB..=10 * MIB).contains(&written), "what it inherits counts: {written} more bytes");
    let refused = session.api.post(&session.path("/snapshots"), json!({})).await;
    assert!(refused.status == 429 && refused.text().contains("the limit is 50 MiB"), "{}", refused.text());
    assert_eq!(snapshots_of(&daemon.data_dir()), [id_of(&made)], "nothing is left of what was too much");
    daemon.stop().await;
}

/// Builds an image whose `/opt` everybody may write to.
fn open_image(engine: &Engine, directory: &Path, tag: &str) {
    let text = "FROM debian:bookworm-slim\nENV FROM_IMAGE=1\nRUN chmod 777 /opt && echo image > /opt/image && chmod 666 /opt/image\n";
    std::fs::write(directory.join("Dockerfile"), text).expect("our own directory");
    let built = Command::new("docker")
        .env("DOCKER_BUILDKIT", "0")
        .args(["--host", &format!("unix://{}", engine.socket()), "build", "--network", "none", "--tag", tag])
        .arg(directory)
        .output()
        .expect("docker is installed");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
}

#[tokio::test]
async fn a_writable_root_becomes_an_image_that_goes_with_the_last_who_needs_it() {
    let story = "a_writable_root_becomes_an_image_that_goes_with_the_last_who_needs_it";
    let Some(engine) = engine() else { return skipped(story, "the stories run on local") };
    let (directory, tag) =
        (tempfile::tempdir().expect("a directory"), format!("cove-story-open:{}", std::process::id()));
    open_image(engine, directory.path(), &tag);
    let daemon = Daemon::builder().config("[docker]\nroot_quota = false\n").start().await;
    let root = json!({ "image": tag, "writable_root": true, "env": { "OLD": "1", "KEPT": "2" } });
    let session = daemon.create(root).await;
    session.sh("echo one > /opt/file; rm /opt/image; echo home > ~/file").await;
    if engine.is_gvisor() {
        let refused = daemon.post(&session.path("/snapshots"), json!({})).await;
        assert_eq!(refused.refused(), InvalidRequest);
        assert!(refused.text().contains("gVisor keeps the changes"), "{}", refused.text());
        assert_eq!(session.sh("cat /opt/file").await, "one\n");
        return daemon.stop().await;
    }
    let first = snapshot(&session).await;
    session.sh("echo two > /opt/file").await;
    let copy = daemon.create(json!({ "snapshot": id_of(&first), "env": { "KEPT": "new" } })).await;
    let seen = "cat /opt/file ~/file; ls /opt; echo $OLD $KEPT $FROM_IMAGE $COVE_RUNNER_AWAIT_RESTORE";
    assert_eq!(copy.sh(seen).await, "one\nhome\nfile\n1 new 1\n");
    copy.sh("echo three > /opt/third").await;
    let second = snapshot(&copy).await;
    // Whoever came from a snapshot does not need it any more, and neither does the image of another one.
    daemon.delete(&format!("/v1/snapshots/{}", id_of(&first))).await.ok();
    assert_eq!(copy.sh("cat /opt/file /opt/third").await, "one\nthree\n");
    copy.destroy().await;
    let again = daemon.create(json!({ "snapshot": id_of(&second) })).await;
    assert_eq!(again.sh("cat /opt/file /opt/third").await, "one\nthree\n");
    for round in 1..3 {
        again.change("stop").await.ok();
        again.change("start").await.ok();
        assert_eq!(
            again.sh("cat /opt/third; echo -n $ROUND; ROUND=$((ROUND + 1))").await,
            match round {
                1 => "three\n".to_owned(),
                _ => format!("three\n{}", round - 1),
            }
        );
    }
    // The image of a snapshot is no image for clients.
    let name = format!("localhost/{}/snapshot:{}", instance(&daemon), id_of(&second));
    let full = engine.docker(&["inspect", "--type", "image", "--format", "{{.Id}}", &name]);
    let short = full.trim_start_matches("sha256:").get(..12).expect("an id").to_owned();
    for image in [name, full, short] {
        let refused = daemon.post("/v1/sessions", json!({ "image": image })).await;
        assert!(refused.text().contains("belongs to a snapshot"), "{image}: {}", refused.text());
        assert_eq!(refused.refused(), InvalidImage);
    }
    let listed = daemon.get("/v1/images").await.text();
    assert!(!listed.contains(&instance(&daemon)), "{listed}");
    // The image itself goes, and the sessions from it do not notice.
    engine.docker(&["rmi", "-f", &tag]);
    daemon.delete(&format!("/v1/snapshots/{}", id_of(&second))).await.ok();
    again.change("stop").await.ok();
    again.change("start").await.ok();
    assert_eq!(again.sh("cat /opt/third").await, "three\n");
    again.destroy().await;
    session.destroy().await;
    let left = engine.docker(&["images", "-a", "--filter", &format!("label=cove.data-dir={}", instance(&daemon))]);
    assert_eq!(left.lines().count(), 1, "only the head of the table: {left}");
    daemon.stop().await;
}
