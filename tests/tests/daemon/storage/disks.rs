//! Disks: what a session writes is on the host's disk, within its own limit, and is gone with the session.

use e2e::daemon::{Cove, Daemon, Session, engine, loop_devices_of};
use e2e::{LONG_DEADLINE, is_root, skipped, wait_until};
use nix::sys::statvfs::statvfs;
use serde_json::{Value, json};
use shared_protocol::ErrorCode::{InvalidRequest, LimitReached};

const MIB: u64 = 1 << 20;

/// Whether sessions have disks here. Prints the skip.
pub fn has_disks(story: &str) -> bool {
    if engine().is_some() {
        skipped(story, "containers keep their files in memory");
    } else if !is_root() {
        skipped(story, "an ordinary user's sandboxes keep their files in memory");
    } else if !std::fs::read_to_string("/proc/filesystems").unwrap_or_default().contains("btrfs") {
        skipped(story, "the kernel has no btrfs");
    } else {
        return true;
    }
    false
}

/// Whether sessions can be snapshotted, forked and stopped here. Prints the skip.
pub fn keeps_disks(story: &str) -> bool {
    engine().is_some() || has_disks(story)
}

/// The session at the next daemon.
fn again(daemon: &Daemon, session: &Session) -> Session {
    Session { api: daemon.api().clone(), id: session.id.clone() }
}

fn free_bytes(daemon: &Daemon) -> u64 {
    let status = statvfs(&daemon.data_dir()).expect("the data directory");
    status.blocks_available() * status.fragment_size()
}

pub async fn disk_bytes(session: &Session) -> u64 {
    let stats: Value = session.api.get(&session.path("/stats")).await.ok();
    stats["disk_bytes"].as_u64().expect("a number")
}

/// Writes to a file until nothing more fits, and returns how many bytes it then has.
async fn fill(session: &Session, path: &str) -> u64 {
    let cmd = format!("cat /dev/urandom > {path}; stat -c %s {path} 2>/dev/null || echo 0");
    let reply = session.ask(json!({ "cmd": cmd, "timeout_ms": 120_000 })).await.ok();
    let output = reply["output"].as_str().expect("text").to_owned();
    output.trim().lines().last().and_then(|line| line.parse().ok()).unwrap_or_else(|| panic!("{output}"))
}

#[tokio::test]
async fn three_gibibytes_fit_into_a_session_that_asked_for_nothing() {
    if !has_disks("three_gibibytes_fit_into_a_session_that_asked_for_nothing") {
        return;
    }
    let daemon = Daemon::start().await;
    let session = daemon.patient().session().await;
    assert_eq!(session.view().await["resources"]["disk_mb"], 10 << 10);
    let written = session
        .ask(json!({ "cmd": "head -c 3G /dev/zero > /workspace/big && stat -c %s /workspace/big", "timeout_ms": 300_000 }))
        .await
        .ok();
    assert_eq!(written["output"], format!("{}\n", 3_u64 << 30), "{written}");
    daemon.stop().await;
}

#[tokio::test]
async fn a_disk_holds_what_was_asked_for_and_can_be_emptied_and_filled_again() {
    if !has_disks("a_disk_holds_what_was_asked_for_and_can_be_emptied_and_filled_again") {
        return;
    }
    let daemon = Daemon::start().await;
    // The disk is larger than the memory.
    let resources = json!({ "memory_mb": 96, "disk_mb": 200 });
    let session = daemon.patient().create(json!({ "resources": resources })).await;
    let neighbour = daemon.create(json!({ "resources": { "disk_mb": 20 } })).await;
    neighbour.sh("head -c 15M /dev/urandom > /workspace/own; sha256sum /workspace/own > /tmp/sum").await;
    for round in 1..=2 {
        let written = fill(&session, "/workspace/full").await;
        println!("round {round}: {written} bytes fit into 200 MiB");
        assert!((190 * MIB..=200 * MIB).contains(&written), "{written} bytes in round {round}");
        assert!((190 * MIB..=201 * MIB).contains(&disk_bytes(&session).await));
        // The other directories are parts of the same disk.
        assert!(fill(&session, "/tmp/more").await < 10 * MIB);
        let put = session.put("uploaded", vec![7; 12 << 20]).await;
        assert_eq!(put.refused(), LimitReached, "{}", put.text());
        assert_eq!(neighbour.sh("sha256sum -c --quiet /tmp/sum && echo whole").await, "whole\n");
        assert_eq!(session.sh("rm -f /workspace/full /tmp/more && echo emptied").await, "emptied\n");
    }
    assert_eq!(session.view().await["status"], "running");
    daemon.stop().await;
}

#[tokio::test]
async fn a_session_cannot_have_more_files_than_its_disk_holds() {
    if !has_disks("a_session_cannot_have_more_files_than_its_disk_holds") {
        return;
    }
    let daemon = Daemon::start().await;
    let session = daemon.patient().create(json!({ "resources": { "disk_mb": 16 } })).await;
    let bomb = "python3 -c 'import os\nn=0\ntry:\n  while n < 10**6:\n    os.close(os.open(\"/workspace/\" + \"n\" * 100 + str(n), os.O_CREAT | os.O_WRONLY)); n += 1\nexcept OSError as e: print(n, e.errno)'";
    let reply = session.ask(json!({ "cmd": bomb, "timeout_ms": 120_000 })).await.ok();
    let output = reply["output"].as_str().expect("text");
    println!("files in 16 MiB, and the error: {output}");
    let made: u64 = output.split(' ').next().and_then(|word| word.parse().ok()).expect("a limit was reached");
    assert!((1000..200_000).contains(&made), "{output}");
    assert!(disk_bytes(&session).await <= 17 * MIB);
    // Subvolumes have limits of their own, so a program must not make any.
    let subvolume = "python3 -c 'import fcntl, os\ntry: fcntl.ioctl(os.open(\"/workspace\", os.O_RDONLY), 0x5000940e, bytearray(8) + b\"s\" + bytes(4087))\nexcept OSError as e: print(e.errno)'";
    assert_eq!(session.sh(subvolume).await, format!("{}\n", nix::libc::EPERM));
    let reply = session.ask(json!({ "cmd": "cd /workspace && find . -mindepth 1 -delete && echo x > one && cat one", "timeout_ms": 60_000 })).await.ok();
    assert_eq!(reply["output"], "x\n", "{reply}");
    daemon.stop().await;
}

#[tokio::test]
async fn a_kill_of_the_daemon_leaves_the_disk_and_its_limit_as_they_are() {
    if !has_disks("a_kill_of_the_daemon_leaves_the_disk_and_its_limit_as_they_are") {
        return;
    }
    let mut daemon = Daemon::builder().keeps_sessions().start().await;
    let session = daemon.create(json!({ "resources": { "disk_mb": 50 } })).await;
    session.sh("head -c 20M /dev/urandom > /workspace/file; sha256sum /workspace/file > /tmp/sum; sync").await;
    daemon.kill().await;
    assert_eq!(loop_devices_of(&daemon.data_dir()).len(), 1, "its sandbox still uses it");
    let daemon = daemon.start_again();
    assert_eq!(loop_devices_of(&daemon.data_dir()).len(), 1, "the next daemon uses the same");
    let session = again(&daemon, &session);
    assert_eq!(session.sh("sha256sum -c --quiet /tmp/sum && echo whole").await, "whole\n");
    assert!((20 * MIB..=21 * MIB).contains(&disk_bytes(&session).await));
    let written = fill(&session, "/workspace/rest").await;
    assert!((26 * MIB..=30 * MIB).contains(&written), "{written}");
    let other = daemon.session().await;
    assert_eq!(other.sh("echo another > /tmp/x; cat /tmp/x").await, "another\n");
    daemon.stop().await;
}

#[tokio::test]
async fn the_end_of_a_session_frees_its_space_on_the_host() {
    if !has_disks("the_end_of_a_session_frees_its_space_on_the_host") {
        return;
    }
    let daemon = Daemon::start().await;
    let image = daemon.data_dir().join("disks.img");
    let allocated = || std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(&image).expect("the image")) * 512;
    let before = allocated();
    let session = daemon.patient().session().await;
    session.sh("head -c 300M /dev/urandom > /workspace/file; sync").await;
    let during = allocated();
    assert!(during > before + 290 * MIB, "{before} {during}");
    session.destroy().await;
    wait_until("the space is free again", LONG_DEADLINE * 2, async || (allocated() < before + 50 * MIB).then_some(()))
        .await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_start_after_a_crash_removes_the_disks_of_sessions_that_are_gone() {
    if !has_disks("a_start_after_a_crash_removes_the_disks_of_sessions_that_are_gone") {
        return;
    }
    let mut daemon = Daemon::builder().keeps_sessions().start().await;
    let kept = daemon.session().await;
    let gone = daemon.session().await;
    kept.sh("echo kept > /workspace/file").await;
    gone.sh("head -c 100M /dev/urandom > /workspace/file; sync").await;
    let pid = daemon.runner_pid(&gone);
    daemon.kill().await;
    e2e::procfs::signal(pid, nix::sys::signal::Signal::SIGKILL);
    let daemon = daemon.start_again();
    assert_eq!(again(&daemon, &kept).sh("cat /workspace/file").await, "kept\n");
    let fresh = daemon.session().await;
    // All disks are on one file system, so its size shows what is left of the other.
    wait_until("the other disk is gone", LONG_DEADLINE, async || {
        let used = fresh.sh("df --output=used -B1M /tmp | tail -n 1").await;
        (used.trim().parse::<u64>().expect("a number") < 60).then_some(())
    })
    .await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_create_is_refused_before_the_hosts_disk_is_full() {
    if !has_disks("a_create_is_refused_before_the_hosts_disk_is_full") {
        return;
    }
    let mut daemon = Daemon::builder().keeps_sessions().start().await;
    let session = daemon.session().await;
    let free_mb = free_bytes(&daemon) / MIB;
    daemon.kill().await;
    // More than the host has free, so its reserve is touched already.
    let config = format!("[sessions]\nhost_reserve_disk_mb = {}\n", free_mb + 4096);
    daemon.rebuild(|builder| builder.config(&config));
    let daemon = daemon.start_again();
    let refused = daemon.post("/v1/sessions", json!({})).await;
    assert_eq!((refused.status, refused.refused()), (429, LimitReached), "{}", refused.text());
    assert!(refused.text().contains("kept for the host"), "{}", refused.text());
    assert_eq!(again(&daemon, &session).sh("echo works").await, "works\n");
    daemon.stop().await;
}

#[tokio::test]
async fn the_disks_of_all_sessions_together_are_limited() {
    if !has_disks("the_disks_of_all_sessions_together_are_limited") {
        return;
    }
    let config = "[local]\ndisk_total_mb = 300\n[sessions]\ndisk_overcommit = 2\ndefault_disk_mb = 200\n";
    let daemon = Daemon::builder().config(config).start().await;
    let (one, other) = (daemon.patient().session().await, daemon.session().await);
    // 600 MiB are promised at most.
    let third = daemon.create(json!({ "resources": { "disk_mb": 150 } })).await;
    let refused = daemon.post("/v1/sessions", json!({ "resources": { "disk_mb": 100 } })).await;
    assert_eq!((refused.status, refused.refused()), (429, LimitReached), "{}", refused.text());
    assert!(refused.text().contains("MiB of disk"), "{}", refused.text());
    // All of them are full before each has what it was promised. Everything else goes on.
    let mut written = 0;
    for session in [&one, &other, &third] {
        written += fill(session, "/workspace/full").await;
    }
    println!("{} MiB fit into 300", written / MIB);
    assert!(written < 300 * MIB, "{written}");
    assert_eq!(other.sh("echo usable; rm /workspace/full && echo removed").await, "usable\nremoved\n");
    assert_eq!(daemon.get("/healthz").await.status, 200);
    one.destroy().await;
    daemon.stop().await;
}

#[tokio::test]
async fn files_can_be_kept_in_memory_and_then_the_disk_is_a_part_of_it() {
    if engine().is_some() {
        return skipped("local.disk", "a setting of the local runtime");
    }
    let daemon = Daemon::builder().config("[local]\ndisk = \"tmpfs\"\n").start().await;
    let session = daemon.session().await;
    assert_eq!(
        session.view().await["resources"],
        json!({ "cpus": 1.0, "memory_mb": 2048, "pids": 256, "disk_mb": 1024 })
    );
    assert_eq!(session.sh("df --output=fstype /workspace | tail -n 1").await, "tmpfs\n");
    let refused = daemon.post("/v1/sessions", json!({ "resources": { "memory_mb": 64, "disk_mb": 65 } })).await;
    assert_eq!(refused.refused(), InvalidRequest);
    assert!(!daemon.data_dir().join("disks.img").exists());
    daemon.stop().await;
}

#[tokio::test]
async fn a_disk_that_this_host_cannot_have_is_refused_at_the_start() {
    if !has_disks("a_disk_that_this_host_cannot_have_is_refused_at_the_start") {
        return;
    }
    let mut daemon = Daemon::start().await;
    daemon.signal(nix::sys::signal::Signal::SIGTERM);
    daemon.ended().await;
    daemon.rebuild(|builder| builder.config("[local]\ndisk = \"btrfs\"\n"));
    let on_btrfs = nix::sys::statfs::statfs(&daemon.data_dir())
        .is_ok_and(|found| found.filesystem_type() == nix::sys::statfs::BTRFS_SUPER_MAGIC);
    if on_btrfs {
        return skipped("local.disk = \"btrfs\" without btrfs", "the data directory is on btrfs");
    }
    let (status, said) = daemon.start_in_vain().await;
    assert!(!status.success() && said.contains("not on btrfs"), "{status} {said}");
}

#[tokio::test]
async fn the_doctor_says_where_disks_are_and_what_is_kept_for_the_host() {
    if !has_disks("the_doctor_says_where_disks_are_and_what_is_kept_for_the_host") {
        return;
    }
    let daemon = Daemon::start().await;
    let findings = Cove::of(&daemon).run(&["doctor", "--json"]).await.json();
    let of = |name: &str| {
        let findings = findings.as_array().or(findings["findings"].as_array()).expect("a list");
        findings
            .iter()
            .find(|finding| finding["name"] == name)
            .cloned()
            .unwrap_or_else(|| panic!("no {name}: {findings:?}"))
    };
    let disk = of("disk limit");
    assert_eq!(disk["state"], "enforced", "{disk}");
    assert!(disk["detail"].as_str().is_some_and(|text| text.contains("kept for the host")), "{disk}");
    assert!(of("promises")["detail"].as_str().is_some_and(|text| text.contains("times the disk")), "{findings}");
    daemon.stop().await;
}

#[tokio::test]
async fn a_data_directory_on_btrfs_with_quotas_has_disks_without_an_image() {
    if !has_disks("a_data_directory_on_btrfs_with_quotas_has_disks_without_an_image") {
        return;
    }
    let Some(place) = Btrfs::mounted() else { return };
    let data_dir = place.folder.path().join("disk/data");
    let daemon = Daemon::builder().data_dir(&data_dir).start().await;
    let session = daemon.patient().create(json!({ "resources": { "disk_mb": 50 } })).await;
    assert!(!data_dir.join("disks.img").exists());
    let written = fill(&session, "/workspace/full").await;
    assert!((47 * MIB..=50 * MIB).contains(&written), "{written}");
    assert_eq!(session.sh("rm /workspace/full; touch x; stat -c %u x; id -u").await, "1000\n1000\n");
    session.destroy().await;
    let left = std::fs::read_dir(data_dir.join("disks/sessions")).expect("the directory of disks").count();
    assert_eq!(left, 0);
    daemon.stop().await;
}

/// A story's own btrfs with quotas.
struct Btrfs {
    folder: tempfile::TempDir,
}

impl Btrfs {
    fn mounted() -> Option<Self> {
        let folder = tempfile::Builder::new().prefix("cove-btrfs-").tempdir().expect("a temporary directory");
        let (image, disk) = (folder.path().join("image"), folder.path().join("disk"));
        std::fs::create_dir(&disk).expect("our own directory");
        std::fs::File::create(&image).and_then(|file| file.set_len(1 << 30)).expect("our own file");
        let place = Self { folder };
        let run = |program: &str, words: &[&std::ffi::OsStr]| {
            std::process::Command::new(program).args(words).output().is_ok_and(|done| done.status.success())
        };
        let is_made = run("mkfs.btrfs", &["-q".as_ref(), image.as_os_str()])
            && run("mount", &["-o".as_ref(), "loop".as_ref(), image.as_os_str(), disk.as_os_str()])
            && run("btrfs", &["quota".as_ref(), "enable".as_ref(), disk.as_os_str()]);
        if !is_made {
            skipped("a data directory on btrfs", "needs mkfs.btrfs and loop devices");
            return None;
        }
        Some(place)
    }
}

impl Drop for Btrfs {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(self.folder.path().join("disk")).status();
    }
}
