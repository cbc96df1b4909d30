//! Snapshots and copies: what a session has on its disk and in its shells is there again in another one, and only there.

use std::time::Instant;

use e2e::daemon::{Answer, Api, Cove, Daemon, Session, engine, snapshots_of};
use e2e::{is_soak, skipped};
use futures_util::future::join_all;
use serde_json::{Value, json};
use shared_protocol::ErrorCode::{Conflict, InvalidRequest, LimitReached, NotFound, SessionNotFound};

use super::disks::{has_disks, keeps_disks};

const MIB: u64 = 1 << 20;
const LARGE_SECONDS: u64 = 300;

/// Makes a snapshot and returns its view.
async fn snapshot(session: &Session, name: &str) -> Value {
    session.api.post(&session.path("/snapshots"), json!({ "name": name })).await.ok()
}

fn id_of(view: &Value) -> String {
    view["id"].as_str().expect("an id").to_owned()
}

async fn from(api: &Api, snapshot: &Value) -> Session {
    api.create(json!({ "snapshot": id_of(snapshot) })).await
}

async fn ask_fork(session: &Session, count: u32) -> Answer {
    session.api.post(&session.path("/fork"), json!({ "count": count })).await
}

async fn fork(session: &Session, count: u32) -> Vec<Session> {
    let made = ask_fork(session, count).await.ok();
    let of = |view: &Value| Session { api: session.api.clone(), id: id_of(view) };
    made["sessions"].as_array().expect("sessions").iter().map(of).collect()
}

fn small() -> Value {
    json!({ "resources": { "memory_mb": 64, "disk_mb": 64, "pids": 64 } })
}

#[tokio::test]
async fn a_snapshot_has_the_files_and_the_shells_of_its_session() {
    if !keeps_disks("a_snapshot_has_the_files_and_the_shells_of_its_session") {
        return;
    }
    let daemon = Daemon::start().await;
    let session =
        daemon.create(json!({ "env": { "GIVEN": "at the create", "OTHER": "old" }, "labels": { "a": "b" } })).await;
    session
        .sh("mkdir -p /workspace/deep/er && cd /workspace/deep/er && echo one > file && echo two > ~/home && echo three > /tmp/tmp; \
             export EXPORTED='x y'; PLAIN=$'a\\nb'; declare -A MAP=([k]=v); greet() { echo \"hello $1\"; }; \
             set -o pipefail; shopt -s extglob nullglob; shopt -u sourcepath; umask 027; alias ll='ls -l'")
        .await;
    session.api.post(&session.path("/shells"), json!({ "name": "second", "cwd": "/tmp" })).await.ok();
    session.ask(json!({ "cmd": "SECOND=2", "shell": "second" })).await.ok();
    let made = snapshot(&session, "first").await;
    assert_eq!(
        (&made["name"], &made["session_id"], &made["shells"]),
        (&json!("first"), &json!(session.id), &json!(["main", "second"]))
    );
    // The session itself goes on, and what it does now is not in the snapshot.
    assert_eq!(session.sh("rm -r /workspace/deep ~/home; PLAIN=later; cd /; echo goes on").await, "goes on\n");

    let copy = daemon.create(json!({ "snapshot": id_of(&made), "env": { "OTHER": "new" } })).await;
    assert_eq!(copy.view().await["cwd"], "/workspace/deep/er");
    assert_eq!(copy.sh("pwd; cat file ~/home /tmp/tmp").await, "/workspace/deep/er\none\ntwo\nthree\n");
    assert_eq!(
        copy.sh("echo \"$EXPORTED|$PLAIN|${MAP[k]}|$GIVEN|$OTHER\"; env | grep -c ^PLAIN=; true").await,
        "x y|a\nb|v|at the create|new\n0\n"
    );
    assert_eq!(
        copy.sh("env | grep ^EXPORTED=; greet you; umask; alias ll").await,
        "EXPORTED=x y\nhello you\n0027\nalias ll='ls -l'\n"
    );
    let options = "shopt -qo pipefail && shopt -q extglob && shopt -q nullglob && ! shopt -q sourcepath && ! shopt -qo errexit && echo same";
    assert_eq!(copy.sh(options).await, "same\n");
    let second = copy.ask(json!({ "cmd": "echo $SECOND; pwd", "shell": "second" })).await.ok();
    assert_eq!(second["output"], "2\n/tmp\n", "{second}");
    // Programs beside the shells have the variables of the create.
    assert_eq!(copy.run(&["sh", "-c", "echo $GIVEN, $OTHER"]).await["stdout"], "at the create, new\n");
    // A shell that dies in the copy comes back as everywhere.
    copy.exec("kill -9 $$").await;
    assert_eq!(copy.sh("greet again; shopt -q nullglob && pwd").await, "hello again\n/workspace/deep/er\n");
    daemon.stop().await;
}

#[tokio::test]
async fn what_one_copy_writes_no_other_sees_and_the_end_of_the_parent_hurts_nobody() {
    if !keeps_disks("what_one_copy_writes_no_other_sees_and_the_end_of_the_parent_hurts_nobody") {
        return;
    }
    let daemon = Daemon::start().await;
    let parent = daemon.create(json!({ "labels": { "family": "one" }, "ttl_seconds": 600 })).await;
    parent
        .sh("cd /workspace; head -c 20M /dev/urandom > shared; sha256sum shared > ~/sum; WHO=parent; echo parent > who")
        .await;
    let copies = fork(&parent, 3).await;
    for (number, copy) in copies.iter().enumerate() {
        assert_eq!(copy.view().await["labels"]["family"], "one");
        assert_eq!(copy.sh(&format!("echo $WHO; WHO={number}; echo {number} > who; head -c 1M /dev/zero | dd of=shared conv=notrunc bs=1M seek={number} 2>/dev/null")).await, "parent\n");
    }
    assert_eq!(parent.sh("cat who; sha256sum -c --quiet ~/sum && echo whole").await, "parent\nwhole\n");
    let made = snapshot(&parent, "kept").await;
    parent.destroy().await;
    for (number, copy) in copies.iter().enumerate() {
        let own = "cat who; echo $WHO; for part in 0 1 2; do dd if=shared bs=1M skip=$part count=1 2>/dev/null | tr -d '\\0' | wc -c; done";
        let zeroed: Vec<String> = (0..3).map(|part| if part == number { "0".into() } else { String::new() }).collect();
        let output = copy.sh(own).await;
        let lines: Vec<&str> = output.lines().collect();
        assert_eq!(lines[..2], [number.to_string(), number.to_string()], "{output}");
        for (part, expected) in zeroed.iter().enumerate() {
            assert_eq!(lines[2 + part] == "0", expected == "0", "copy {number} has the writes of another: {output}");
        }
    }
    let listed: Value = daemon.get("/v1/snapshots").await.ok();
    assert_eq!(listed["snapshots"].as_array().map(Vec::len), Some(1), "nobody sees the snapshot of the fork: {listed}");
    let again = from(daemon.api(), &made).await;
    assert_eq!(again.sh("cat who; sha256sum -c --quiet ~/sum && echo whole").await, "parent\nwhole\n");
    // The snapshot goes, and the session that came from it stays whole.
    daemon.delete(&format!("/v1/snapshots/{}", id_of(&made))).await.ok();
    assert_eq!(daemon.get(&format!("/v1/snapshots/{}", id_of(&made))).await.refused(), NotFound);
    assert_eq!(again.sh("sha256sum -c --quiet ~/sum && echo whole").await, "whole\n");
    assert_eq!(snapshots_of(&daemon.data_dir()), Vec::<String>::new());
    daemon.stop().await;
}

#[tokio::test]
async fn a_hundred_copies_of_one_session_run_side_by_side() {
    if !keeps_disks("a_hundred_copies_of_one_session_run_side_by_side") {
        return;
    }
    let count = if is_soak() { 100 } else { 12 };
    let daemon = Daemon::start().await;
    let parent = daemon.patient().create(small()).await;
    // The files of a container are a part of its memory.
    let size = if engine().is_some() { "5M" } else { "30M" };
    parent.sh(&format!("cd /workspace; echo parent > file; head -c {size} /dev/urandom > big; NAME=parent")).await;
    let copies = fork(&parent, count).await;
    assert_eq!(copies.len(), usize::try_from(count).expect("small"));
    join_all(copies.iter().map(|copy| copy.sh("echo $HOSTNAME > file; sync"))).await;
    let read =
        join_all(copies.iter().map(|copy| async move { (copy.sh("cat file; hostname; echo $NAME").await, &copy.id) }))
            .await;
    for (read, _) in &read {
        assert!(read.ends_with("parent\n"), "{read}");
    }
    let mut hosts: Vec<&str> = read.iter().map(|(read, _)| read.lines().nth(1).expect("a host name")).collect();
    hosts.sort_unstable();
    hosts.dedup();
    assert_eq!(hosts.len(), copies.len(), "each copy is a machine of its own");
    assert_eq!(parent.sh("cat file").await, "parent\n");
    daemon.stop().await;
}

#[tokio::test]
async fn a_database_that_is_written_during_a_snapshot_is_whole_in_the_copy() {
    if !keeps_disks("a_database_that_is_written_during_a_snapshot_is_whole_in_the_copy") {
        return;
    }
    let daemon = Daemon::start().await;
    let session = daemon.patient().session().await;
    let writer = "import sqlite3, os\n\
        db = sqlite3.connect('/workspace/db', isolation_level=None)\n\
        db.execute('CREATE TABLE t (n INTEGER PRIMARY KEY, text TEXT)')\n\
        db.execute('CREATE INDEX by_text ON t (text)')\n\
        n = 0\n\
        while True:\n\
        \x20   db.execute('BEGIN')\n\
        \x20   for _ in range(50): db.execute('INSERT INTO t (text) VALUES (hex(randomblob(200)))')\n\
        \x20   db.execute('DELETE FROM t WHERE n % 7 = ?', (n % 7,))\n\
        \x20   db.execute('COMMIT')\n\
        \x20   n += 1\n\
        \x20   if n == 20: open('/tmp/busy', 'w').close()\n";
    session.put("writer.py", writer).await.ok();
    session.sh("python3 /workspace/writer.py >/tmp/log 2>&1 & until [ -e /tmp/busy ]; do :; done").await;
    let check = "python3 -c 'import sqlite3; db = sqlite3.connect(\"/workspace/db\"); print(db.execute(\"PRAGMA integrity_check\").fetchone()[0], db.execute(\"SELECT count(*) FROM t\").fetchone()[0] > 0)'";
    for round in 0..3 {
        let made = snapshot(&session, &format!("round {round}")).await;
        let copy = from(&session.api, &made).await;
        assert_eq!(copy.sh("pgrep -c python3 || true").await, "0\n", "processes are not part of a snapshot");
        assert_eq!(copy.sh(check).await, "ok True\n", "round {round}");
        copy.destroy().await;
    }
    assert_eq!(
        session.sh("pgrep -c -f writer.py; cat /tmp/log").await,
        "1\n",
        "the writer goes on after each snapshot"
    );
    daemon.stop().await;
}

#[tokio::test]
async fn a_copy_has_no_more_room_than_it_was_given() {
    if !has_disks("a_copy_has_no_more_room_than_it_was_given") {
        return;
    }
    let daemon = Daemon::start().await;
    let parent = daemon.patient().create(json!({ "resources": { "disk_mb": 60 } })).await;
    parent.sh("head -c 30M /dev/urandom > /workspace/have; sync").await;
    let made = snapshot(&parent, "thirty").await;
    let held = made["disk_bytes"].as_u64().expect("a number");
    assert!((30 * MIB..32 * MIB).contains(&held), "{made}");
    let id = id_of(&made);
    let with_disk = |mb: u64| json!({ "snapshot": id, "resources": { "disk_mb": mb } });
    for small in [1, 20, 30] {
        let refused = daemon.post("/v1/sessions", with_disk(small)).await;
        assert_eq!(refused.refused(), InvalidRequest);
        assert!(refused.text().contains("must be at least 3"), "{}", refused.text());
    }
    for (mb, room) in [(60, 30), (40, 10)] {
        let copy = daemon.patient().create(with_disk(mb)).await;
        let stats =
            || async { copy.api.get(&copy.path("/stats")).await.ok()["disk_bytes"].as_u64().expect("a number") };
        let has = stats().await;
        assert!((30 * MIB..32 * MIB).contains(&has), "what it shares counts too: {has}");
        let cmd = "cat /dev/urandom > /workspace/more; stat -c %s /workspace/more";
        let filled = copy.ask(json!({ "cmd": cmd, "timeout_ms": 120_000 })).await.ok();
        let output = filled["output"].as_str().expect("text").trim();
        let written: u64 =
            output.lines().last().and_then(|line| line.parse().ok()).unwrap_or_else(|| panic!("{output}"));
        assert!(((room - 4) * MIB..=room * MIB).contains(&written), "{written} bytes more in {mb} MiB");
        // A copy of the copy has still less.
        let deeper = snapshot(&copy, "deeper").await;
        assert!(deeper["disk_bytes"].as_u64().expect("a number") > (mb - 5) * MIB, "{deeper}");
        copy.destroy().await;
    }
    daemon.stop().await;
}

#[tokio::test]
async fn a_writable_root_is_part_of_a_snapshot_and_a_workspace_is_not() {
    if !has_disks("a_writable_root_is_part_of_a_snapshot_and_a_workspace_is_not") {
        return;
    }
    let daemon = Daemon::start().await;
    let created = daemon.post("/v1/sessions", json!({ "writable_root": true, "workspace_id": "w" })).await;
    if created.status == 400 {
        skipped("a_writable_root_is_part_of_a_snapshot_and_a_workspace_is_not", &created.text());
        return;
    }
    let session = Session { api: daemon.api().clone(), id: id_of(&created.ok()) };
    session.sh("echo root > /opt/file; rm /usr/bin/yes; echo 'user:x:1:1::/:/bin/sh' >> /etc/passwd; echo w > /workspace/file").await;
    let made = snapshot(&session, "root").await;
    assert_eq!(made["writable_root"], true);
    let copy = from(daemon.api(), &made).await;
    let seen = "cat /opt/file; ls /usr/bin/yes 2>&1 | grep -c 'No such'; tail -1 /etc/passwd; cat /etc/hostname; ls /workspace | wc -l";
    assert_eq!(
        copy.sh(seen).await,
        format!("root\n1\nuser:x:1:1::/:/bin/sh\n{}\n0\n", copy.id),
        "the workspace was not asked for"
    );
    let with_workspace = daemon.create(json!({ "snapshot": id_of(&made), "workspace_id": "w" })).await;
    assert_eq!(with_workspace.sh("cat /workspace/file /opt/file").await, "w\nroot\n");
    let fork = &fork(&session, 1).await[0];
    assert_eq!(
        fork.sh("cat /workspace/file; echo changed > /workspace/file").await,
        "w\n",
        "a fork uses the same workspace"
    );
    assert_eq!(session.sh("cat /workspace/file").await, "changed\n");
    let elsewhere = session.api.post(&session.path("/fork"), json!({ "workspace_id": "v" })).await.ok();
    let elsewhere = Session { api: daemon.api().clone(), id: id_of(&elsewhere["sessions"][0]) };
    assert_eq!(elsewhere.sh("ls /workspace | wc -l").await, "0\n");
    daemon.stop().await;
}

#[tokio::test]
async fn a_copy_of_a_session_of_root_is_roots_too() {
    if !has_disks("a_copy_of_a_session_of_root_is_roots_too") {
        return;
    }
    let daemon = Daemon::start().await;
    let created = daemon.post("/v1/sessions", json!({ "user": "root" })).await;
    if created.status == 400 {
        skipped("a_copy_of_a_session_of_root_is_roots_too", &created.text());
        return daemon.stop().await;
    }
    let session = Session { api: daemon.api().clone(), id: id_of(&created.ok()) };
    session.sh("cd /root; echo kept > file; chown 33:44 file; echo made > /etc/made; useradd -m somebody").await;
    let made = snapshot(&session, "root").await;
    assert_eq!(made["user"], "root");
    let mut copies = fork(&session, 1).await;
    copies.push(from(daemon.api(), &made).await);
    for copy in &copies {
        let reply = copy.exec("id -u; pwd; cat file /etc/made; stat -c %u:%g file; su somebody -c whoami").await;
        assert_eq!(reply["output"], "0\n/root\nkept\nmade\n33:44\nsomebody\n", "{reply}");
    }
    daemon.stop().await;
}

#[tokio::test]
async fn either_all_copies_are_made_or_none() {
    if !keeps_disks("either_all_copies_are_made_or_none") {
        return;
    }
    let daemon = Daemon::builder().config("[sessions]\nmax_sessions = 4\n").start().await;
    let parent = daemon.create(small()).await;
    let refused = ask_fork(&parent, 4).await;
    assert_eq!(refused.refused(), LimitReached);
    assert!(refused.text().contains("none of the 4 copies"), "{}", refused.text());
    let left = daemon.get("/v1/sessions").await.ok();
    assert_eq!(left.as_array().map(Vec::len), Some(1), "{left}");
    assert_eq!(parent.sh("echo well").await, "well\n");
    assert_eq!(fork(&parent, 3).await.len(), 3, "there is room for three");
    daemon.stop().await;
}

#[tokio::test]
async fn another_key_sees_no_snapshot_and_each_owner_has_a_limit() {
    if !keeps_disks("another_key_sees_no_snapshot_and_each_owner_has_a_limit") {
        return;
    }
    let daemon = Daemon::builder().config("[snapshots]\nmax_per_owner = 2\n").start().await;
    let key = async |name: &str| {
        let made = daemon.post("/v1/keys", json!({ "name": name, "role": "user" })).await.ok();
        daemon.with_key(Some(made["secret"].as_str().expect("a secret")))
    };
    let (alice, bob) = (key("alice").await, key("bob").await);
    let session = alice.create(small()).await;
    let made = snapshot(&session, "mine").await;
    assert_eq!(made["owner"], "alice");
    let path = format!("/v1/snapshots/{}", id_of(&made));
    assert_eq!(bob.get("/v1/snapshots").await.ok()["snapshots"], json!([]));
    assert_eq!(bob.get(&path).await.refused(), NotFound);
    assert_eq!(bob.delete(&path).await.refused(), NotFound);
    assert_eq!(bob.post("/v1/sessions", json!({ "snapshot": id_of(&made) })).await.refused(), NotFound);
    for call in ["snapshots", "fork", "stop", "start"] {
        assert_eq!(bob.post(&session.path(&format!("/{call}")), json!({})).await.refused(), SessionNotFound, "{call}");
    }
    // An admin makes a snapshot of the session for its owner, and sees all.
    let by_admin = daemon.post(&session.path("/snapshots"), json!({})).await.ok();
    assert_eq!(by_admin["owner"], "alice");
    assert_eq!(daemon.get("/v1/snapshots").await.ok()["snapshots"].as_array().map(Vec::len), Some(2));
    let refused = session.api.post(&session.path("/snapshots"), json!({})).await;
    assert_eq!(refused.refused(), LimitReached, "{}", refused.text());
    assert_eq!(fork(&session, 2).await.len(), 2, "a fork needs no place for a snapshot");
    alice.delete(&path).await.ok();
    snapshot(&session, "another").await;
    daemon.stop().await;
}

#[tokio::test]
async fn what_cannot_be_is_refused_with_the_reason() {
    if !keeps_disks("what_cannot_be_is_refused_with_the_reason") {
        return;
    }
    let daemon = Daemon::start().await;
    let session = daemon.create(small()).await;
    let made = id_of(&snapshot(&session, "one").await);
    let refused = async |path: &str, body: Value, why: &str| {
        let answer = daemon.post(path, body).await;
        assert!(answer.text().contains(why), "{why}: {}", answer.text());
        answer.refused()
    };
    let (fork, snapshots) = (session.path("/fork"), session.path("/snapshots"));
    assert_eq!(refused(&fork, json!({ "count": 0 }), "1 to 100").await, InvalidRequest);
    assert_eq!(refused(&fork, json!({ "count": 101 }), "1 to 100").await, InvalidRequest);
    assert_eq!(refused(&fork, json!({ "cuont": 1 }), "cuont").await, InvalidRequest);
    assert_eq!(refused(&snapshots, json!({ "name": "a\nb" }), "control").await, InvalidRequest);
    assert_eq!(refused(&snapshots, json!({ "name": "" }), "1 to 128").await, InvalidRequest);
    assert_eq!(refused("/v1/sessions", json!({ "snapshot": "snap-none" }), "no snapshot").await, NotFound);
    assert_eq!(refused("/v1/sessions", json!({ "snapshot": "../x" }), "snapshot id").await, InvalidRequest);
    for (field, value) in [
        ("image", json!("host")),
        ("runtime", json!(if engine().is_some() { "local" } else { "docker" })),
        ("writable_root", json!(true)),
        ("user", json!("root")),
    ] {
        assert_eq!(refused("/v1/sessions", json!({ "snapshot": made, field: value }), field).await, InvalidRequest);
    }
    session.change("stop").await.ok();
    assert_eq!(refused(&snapshots, json!({}), "is stopped").await, Conflict);
    assert_eq!(refused(&fork, json!({}), "is stopped").await, Conflict);
    session.destroy().await;
    daemon.stop().await;
    if !has_disks("what_cannot_be_is_refused_with_the_reason, in memory") {
        return;
    }
    // Where files are in memory, the answer says what to do.
    let daemon = Daemon::builder().config("[local]\ndisk = \"tmpfs\"\n").start().await;
    let session = daemon.session().await;
    for call in ["snapshots", "fork", "stop"] {
        let answer = daemon.post(&session.path(&format!("/{call}")), json!({})).await;
        assert_eq!(answer.refused(), InvalidRequest, "{call}");
        assert!(answer.text().contains("local.disk"), "{}", answer.text());
    }
    assert_eq!(session.sh("echo well").await, "well\n");
    daemon.stop().await;
}

#[tokio::test]
async fn the_command_line_makes_lists_uses_and_removes_snapshots() {
    if !keeps_disks("the_command_line_makes_lists_uses_and_removes_snapshots") {
        return;
    }
    let daemon = Daemon::start().await;
    let session = daemon.create(small()).await;
    session.sh("echo kept > /workspace/file").await;
    let cove = Cove::of(&daemon);
    let id = cove.run(&["snapshot", "create", &session.id, "--name", "tests pass"]).await.ok();
    let listed = cove.run(&["snapshot", "ls"]).await.ok();
    assert!(listed.contains(id.trim()) && listed.contains("tests pass"), "{listed}");
    assert_eq!(cove.run(&["run", "--snapshot", id.trim(), "--", "cat", "/workspace/file"]).await.ok(), "kept\n");
    let copies = cove.run(&["fork", &session.id, "--count", "2"]).await.ok();
    assert_eq!(copies.lines().count(), 2, "{copies}");
    assert_eq!(cove.run(&["stop", &session.id]).await.ok(), format!("{}\n", session.id));
    assert!(cove.run(&["ps"]).await.ok().lines().any(|line| line.contains(&session.id) && line.contains("stopped")));
    assert_eq!(cove.run(&["start", &session.id]).await.ok(), format!("{}\n", session.id));
    assert_eq!(session.sh("cat /workspace/file").await, "kept\n");
    assert_eq!(cove.run(&["snapshot", "rm", id.trim()]).await.ok(), id);
    daemon.stop().await;
}

/// Prints how long a fork of a session with much on its disk takes to its first command, beside a cold create. Nothing is asserted of
/// times.
#[tokio::test]
async fn a_copy_of_a_large_disk_is_there_as_fast_as_a_new_session() {
    if !has_disks("a_copy_of_a_large_disk_is_there_as_fast_as_a_new_session") {
        return;
    }
    let gib: u64 = if is_soak() { 2 } else { 1 };
    let daemon = Daemon::start().await;
    let parent = daemon.patient().session().await;
    let write = format!("for n in $(seq {gib}); do head -c 1G /dev/zero | tr '\\0' x > /workspace/$n; done; sync");
    parent.ask(json!({ "cmd": write, "timeout_ms": LARGE_SECONDS * 1000 })).await.ok();
    let (mut cold, mut forked) = (Vec::new(), Vec::new());
    for _ in 0..7 {
        let start = Instant::now();
        let session = daemon.session().await;
        session.sh("true").await;
        cold.push(start.elapsed());
        session.destroy().await;
        let start = Instant::now();
        let copy = &fork(&parent, 1).await[0];
        copy.sh("true").await;
        forked.push(start.elapsed());
        assert_eq!(copy.sh("cat /workspace/* | wc -c").await, format!("{}\n", gib << 30));
        copy.destroy().await;
    }
    cold.sort();
    forked.sort();
    println!("to the first command, median of 7: cold create {:?}, fork of {gib} GiB {:?}", cold[3], forked[3]);
    daemon.stop().await;
}
