//! Workspaces on the disks of sessions: limited by default, shared, kept over every end of the daemon, and apart from snapshots.

use e2e::daemon::{Daemon, Session, engine, loop_devices_of};
use e2e::{DEADLINE, LONG_DEADLINE, wait_until};
use serde_json::{Value, json};
use shared_protocol::ErrorCode::{Conflict, InvalidRequest, LimitReached};

use super::disks::{disk_bytes, has_disks};

const MIB: u64 = 1 << 20;

fn limited(mb: u64) -> e2e::daemon::DaemonBuilder {
    Daemon::builder().config(&format!("[workspaces]\nmax_mb = {mb}\n"))
}

async fn view(daemon: &Daemon, id: &str) -> Value {
    let list = daemon.get("/v1/workspaces").await.ok();
    let all = list["workspaces"].as_array().expect("a list");
    all.iter().find(|view| view["id"] == id).cloned().unwrap_or_else(|| panic!("no {id}: {list}"))
}

async fn in_workspace(daemon: &Daemon) -> Session {
    daemon.patient().create(json!({ "workspace_id": "w" })).await
}

/// Writes to a file until nothing more fits. Returns how many bytes it then has, and what the program said.
async fn fill(session: &Session, path: &str) -> (u64, String) {
    let cmd = format!("cat /dev/urandom > {path}; stat -c %s {path} 2>/dev/null || echo 0");
    let reply = session.ask(json!({ "cmd": cmd, "timeout_ms": 120_000 })).await.ok();
    let output = reply["output"].as_str().expect("text").to_owned();
    (output.trim().lines().last().and_then(|line| line.parse().ok()).unwrap_or_else(|| panic!("{output}")), output)
}

#[tokio::test]
async fn a_workspace_is_limited_although_nobody_configured_it() {
    if !has_disks("a_workspace_is_limited_although_nobody_configured_it") {
        return;
    }
    let daemon = Daemon::start().await;
    let session = in_workspace(&daemon).await;
    session.sh("head -c 3M /dev/urandom > file; sync").await;
    let found = view(&daemon, "w").await;
    assert_eq!((&found["kind"], &found["limit_bytes"]), (&json!("disk"), &json!(10_u64 << 30)), "{found}");
    assert!((3 * MIB..4 * MIB).contains(&found["size_bytes"].as_u64().expect("a size")), "{found}");
    assert!(found["created_at"].as_str().is_some_and(|time| time.starts_with("20")), "{found}");
    assert!(!daemon.data_dir().join("workspaces/w").exists());
    daemon.stop().await;
}

#[tokio::test]
async fn a_workspace_holds_what_it_may_and_a_full_one_hurts_nobody_else() {
    if !has_disks("a_workspace_holds_what_it_may_and_a_full_one_hurts_nobody_else") {
        return;
    }
    let daemon = limited(100).start().await;
    let (one, other) = (in_workspace(&daemon).await, in_workspace(&daemon).await);
    let neighbour = daemon.create(json!({ "workspace_id": "next" })).await;
    for round in 1..=2 {
        let (written, said) = fill(&one, "full").await;
        println!("round {round}: {written} bytes fit into 100 MiB");
        assert!((95 * MIB..=100 * MIB).contains(&written), "{written} in round {round}");
        assert!(said.contains("quota") || said.contains("space"), "{said}");
        // The same workspace is full for everyone who has it, by every way in.
        assert!(fill(&other, "more").await.0 < 5 * MIB);
        let put = other.put("uploaded", vec![7; 12 << 20]).await;
        assert_eq!(put.refused(), LimitReached, "{}", put.text());
        let text = "x".repeat(8 << 20);
        let write = daemon.post("/v1/workspaces/w/fs/write", json!({ "path": "c", "text": text })).await;
        assert!(write.status >= 400, "{}", write.text());
        // Nothing else is full.
        assert_eq!(one.sh("head -c 20M /dev/urandom > /tmp/own && echo own").await, "own\n");
        neighbour.sh("head -c 20M /dev/urandom > file && rm file").await;
        assert_eq!(other.sh("rm -f full more uploaded c && echo emptied").await, "emptied\n");
    }
    assert!(disk_bytes(&one).await < 60 * MIB, "a workspace is no part of the session's disk");
    assert_eq!(one.view().await["status"], "running");
    daemon.stop().await;
}

/// Simple quotas count what two files share for the first of them only.
#[tokio::test]
async fn a_session_cannot_lend_its_own_disk_to_a_workspace() {
    if !has_disks("a_session_cannot_lend_its_own_disk_to_a_workspace") {
        return;
    }
    let daemon = limited(20).start().await;
    let session = in_workspace(&daemon).await;
    session.sh("head -c 60M /dev/urandom > /tmp/large; head -c 5M /dev/urandom > /tmp/small; sync").await;
    let share = r#"python3 - <<'END'
import ctypes, errno, fcntl, os, struct
source = os.open("/tmp/large", os.O_RDONLY)
for name, number in [("FICLONE", 0x40049409), ("FICLONERANGE", 0x4020940d), ("FIDEDUPERANGE", 0xc0189436)]:
    target = os.open("/workspace/shared", os.O_RDWR | os.O_CREAT)
    argument = source if name == "FICLONE" else bytearray(struct.pack("qQQQ", source, 0, 0, 0) + bytes(64))
    try: fcntl.ioctl(target, number, argument); print(name, "works")
    except OSError as e: print(name, errno.errorcode[e.errno])
try: print(os.copy_file_range(source, target, 60 << 20), "bytes are shared")
except OSError as e: print("copy_file_range", errno.errorcode[e.errno])
END"#;
    let said = session.sh(share).await;
    assert_eq!(said, "FICLONE EPERM\nFICLONERANGE EPERM\nFIDEDUPERANGE EPERM\ncopy_file_range ENOSYS\n");
    assert_ne!(session.exec("cp /tmp/large /workspace/copy").await["exit_code"], 0);
    session.sh("rm -f /workspace/copy; cp /tmp/small /workspace/copy && cmp /tmp/small /workspace/copy; sync").await;
    let size = view(&daemon, "w").await["size_bytes"].as_u64().expect("a size");
    assert!((5 * MIB..=21 * MIB).contains(&size), "what a copy takes counts: {size}");
    daemon.stop().await;
}

#[tokio::test]
async fn what_is_in_a_workspace_outlives_every_end_of_the_daemon() {
    if !has_disks("what_is_in_a_workspace_outlives_every_end_of_the_daemon") {
        return;
    }
    let mut daemon = limited(100).start().await;
    let session = in_workspace(&daemon).await;
    session.sh("head -c 10M /dev/urandom > file; sha256sum file > sum; sync").await;
    let whole = async |daemon: &Daemon, when: &str| {
        let session = in_workspace(daemon).await;
        assert_eq!(session.sh("sha256sum -c --quiet sum && echo whole").await, "whole\n", "{when}");
        session.destroy().await;
        let found = view(daemon, "w").await;
        assert_eq!((&found["kind"], &found["limit_bytes"]), (&json!("disk"), &json!(100 * MIB)), "{when}: {found}");
    };
    // The sandbox ends with the daemon, and with it the loop device: as after a reboot, only the file is left.
    let pid = daemon.runner_pid(&session);
    daemon.kill().await;
    e2e::procfs::signal(pid, nix::sys::signal::Signal::SIGKILL);
    let data_dir = daemon.data_dir();
    wait_until("the device is free", LONG_DEADLINE, async || loop_devices_of(&data_dir).is_empty().then_some(())).await;
    let mut daemon = daemon.start_again();
    whole(&daemon, "after a kill").await;
    daemon.signal(nix::sys::signal::Signal::SIGINT);
    daemon.ended().await;
    assert!(daemon.data_dir().join("disks.img").exists());
    // Somebody restores the image alone, or loses what is beside it.
    std::fs::remove_dir_all(daemon.data_dir().join("workspaces")).expect("our own directory");
    let daemon = daemon.start_again();
    whole(&daemon, "without its record").await;
    assert_eq!(daemon.delete("/v1/workspaces/w").await.status, 200);
    let data_dir = daemon.data_dir();
    let mut daemon = daemon;
    daemon.signal(nix::sys::signal::Signal::SIGINT);
    daemon.ended().await;
    assert!(!data_dir.join("disks.img").exists(), "nothing needs it any more");
}

#[tokio::test]
async fn a_deleted_workspace_gives_its_space_back_to_the_host() {
    if !has_disks("a_deleted_workspace_gives_its_space_back_to_the_host") {
        return;
    }
    let daemon = Daemon::start().await;
    let image = daemon.data_dir().join("disks.img");
    let allocated = || std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(&image).expect("the image")) * 512;
    let before = allocated();
    let session = in_workspace(&daemon).await;
    session.sh("head -c 300M /dev/urandom > file; mkdir -p a/b; chmod 0 a; sync").await;
    assert!(allocated() > before + 290 * MIB);
    assert_eq!(daemon.delete("/v1/workspaces/w").await.refused(), Conflict);
    daemon.delete("/v1/workspaces/w?force=1").await.ok();
    assert_eq!(daemon.get("/v1/workspaces").await.ok()["workspaces"], json!([]));
    wait_until("the space is free", LONG_DEADLINE * 2, async || (allocated() < before + 50 * MIB).then_some(())).await;
    let fresh = in_workspace(&daemon).await;
    assert_eq!(fresh.sh("ls -A").await, "");
    daemon.stop().await;
}

#[tokio::test]
async fn a_snapshot_has_nothing_of_a_workspace_and_a_pooled_sandbox_gets_one() {
    if !has_disks("a_snapshot_has_nothing_of_a_workspace_and_a_pooled_sandbox_gets_one") {
        return;
    }
    let daemon = Daemon::builder().config("[pool]\nbase = 1\n[workspaces]\nmax_mb = 50\n").start().await;
    wait_until("a filled pool", DEADLINE, async || (daemon.get("/v1/pools").await.ok()[0]["idle"] == 1).then_some(()))
        .await;
    let session = in_workspace(&daemon).await;
    assert_eq!(session.view().await["acquire_source"], "pool");
    assert_eq!(session.sh("touch mine; stat -c '%u %g' mine .; pwd").await, "1000 1000\n1000 1000\n/workspace\n");
    let mount = session.sh("grep ' /workspace ' /proc/self/mountinfo | tail -n 1").await;
    assert!(["nosuid", "nodev", "idmapped", " btrfs "].iter().all(|word| mount.contains(word)), "{mount}");
    let (written, _) = fill(&session, "full").await;
    assert!((47 * MIB..=50 * MIB).contains(&written), "{written}");
    let snapshot = daemon.post(&session.path("/snapshots"), json!({})).await.ok();
    assert!(snapshot["disk_bytes"].as_u64().expect("a size") < 10 * MIB, "{snapshot}");
    let copy = daemon.create(json!({ "snapshot": snapshot["id"] })).await;
    assert_eq!(copy.sh("ls -A /workspace").await, "");
    let again = daemon.create(json!({ "snapshot": snapshot["id"], "workspace_id": "w" })).await;
    assert_eq!(again.sh("ls -A /workspace").await, "full\nmine\n");
    daemon.stop().await;
}

#[tokio::test]
async fn a_workspace_stays_what_it_was_made_as_and_is_never_replaced_by_an_empty_one() {
    if !has_disks("a_workspace_stays_what_it_was_made_as_and_is_never_replaced_by_an_empty_one") {
        return;
    }
    let mut daemon = Daemon::builder().config("[workspaces]\nstorage = \"directory\"\n").start().await;
    daemon.create(json!({ "workspace_id": "plain" })).await.sh("echo plain > file").await;
    assert_eq!(view(&daemon, "plain").await["kind"], "directory");
    assert_eq!(view(&daemon, "plain").await["limit_bytes"], json!(null));
    let next = async |daemon: &mut Daemon, config: &str| {
        daemon.signal(nix::sys::signal::Signal::SIGINT);
        daemon.ended().await;
        daemon.rebuild(|builder| builder.config(config));
    };
    next(&mut daemon, "").await;
    let mut daemon = daemon.start_again();
    let session = daemon.create(json!({ "workspace_id": "plain" })).await;
    assert_eq!(session.sh("cat file").await, "plain\n");
    daemon.create(json!({ "workspace_id": "w" })).await.sh("echo on disk > file; sync").await;
    let kinds = [view(&daemon, "plain").await["kind"].clone(), view(&daemon, "w").await["kind"].clone()];
    assert_eq!(kinds, [json!("directory"), json!("disk")]);
    // Without disks, the workspace cannot be had. It is not made again, and cannot be deleted.
    next(&mut daemon, "[local]\ndisk = \"tmpfs\"\n").await;
    let mut daemon = daemon.start_again();
    let refused = daemon.post("/v1/sessions", json!({ "workspace_id": "w" })).await;
    assert_eq!(refused.refused(), Conflict, "{}", refused.text());
    assert!(refused.text().contains("local.disk"), "{}", refused.text());
    assert_eq!(daemon.get("/v1/workspaces/w/fs").await.refused(), Conflict);
    assert_eq!(daemon.delete("/v1/workspaces/w").await.refused(), Conflict);
    assert_eq!(view(&daemon, "w").await["size_bytes"], json!(null));
    next(&mut daemon, "").await;
    let daemon = daemon.start_again();
    let session = daemon.create(json!({ "workspace_id": "w" })).await;
    assert_eq!(session.sh("cat file").await, "on disk\n");
    daemon.stop().await;
}

/// Another program fills the host's disk, which the reserve cannot prevent. The worst is a file system that cannot be written to.
#[tokio::test]
async fn a_full_host_loses_nothing_that_was_synced_and_the_next_start_goes_on() {
    let story = "a_full_host_loses_nothing_that_was_synced_and_the_next_start_goes_on";
    if !has_disks(story) {
        return;
    }
    let Some(host) = SmallHost::mounted() else {
        return e2e::skipped(story, "needs mkfs.ext4 and loop devices");
    };
    let config = "[sessions]\nhost_reserve_disk_mb = 100\n[workspaces]\nstorage = \"disk\"\n";
    let mut daemon = Daemon::builder().config(config).data_dir(&host.place().join("data")).start().await;
    let session = in_workspace(&daemon).await;
    session.sh("head -c 20M /dev/urandom > file; sha256sum file > sum; sync file sum .").await;
    let filler = host.fill();
    let refused = daemon.post("/v1/sessions", json!({ "workspace_id": "next" })).await;
    assert_eq!(refused.refused(), LimitReached, "{}", refused.text());
    let lost = session.exec("dd if=/dev/urandom of=more bs=1M count=20 conv=fsync").await;
    assert_ne!(lost["exit_code"], 0, "what cannot be kept is not acknowledged: {lost}");
    std::fs::remove_file(filler).expect("our own file");
    daemon.signal(nix::sys::signal::Signal::SIGINT);
    daemon.ended().await;
    let daemon = daemon.start_again();
    let session = in_workspace(&daemon).await;
    let whole = "sha256sum -c --quiet sum && echo whole; dd if=/dev/zero of=new bs=1M count=20 conv=fsync 2> /dev/null && echo writable";
    assert_eq!(session.sh(whole).await, "whole\nwritable\n");
    daemon.stop().await;
    drop(host);
}

/// A small file system for a data directory, mounted until it is dropped.
struct SmallHost(tempfile::TempDir);

impl SmallHost {
    fn mounted() -> Option<Self> {
        let host = Self(tempfile::Builder::new().prefix("cove-host-").tempdir().expect("a temporary directory"));
        let (image, place) = (host.0.path().join("host.img"), host.place());
        std::fs::File::create(&image).and_then(|file| file.set_len(700 * MIB)).expect("our own file");
        std::fs::create_dir(&place).expect("our own directory");
        let run = |program: &str, words: &[&std::ffi::OsStr]| {
            std::process::Command::new(program).args(words).output().is_ok_and(|done| done.status.success())
        };
        let is_made = run("mkfs.ext4", &["-q".as_ref(), image.as_os_str()])
            && run("mount", &["-o".as_ref(), "loop".as_ref(), image.as_os_str(), place.as_os_str()]);
        is_made.then_some(host)
    }

    fn place(&self) -> std::path::PathBuf {
        self.0.path().join("disk")
    }

    /// Fills it to the last byte, and returns the file that does.
    fn fill(&self) -> std::path::PathBuf {
        use std::io::Write as _;
        let path = self.place().join("filler");
        let mut file = std::fs::File::create(&path).expect("our own file");
        while file.write_all(&[1; 1 << 16]).is_ok() {}
        path
    }
}

impl Drop for SmallHost {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(self.place()).status();
    }
}

#[tokio::test]
async fn a_key_has_at_most_as_many_workspaces_as_it_may() {
    if engine().is_some() {
        return;
    }
    let daemon = Daemon::builder().config("[workspaces]\nmax_per_owner = 2\n").start().await;
    for id in ["a", "b", "a"] {
        daemon.create(json!({ "workspace_id": id })).await.destroy().await;
    }
    let refused = daemon.post("/v1/sessions", json!({ "workspace_id": "c" })).await;
    assert_eq!((refused.status, refused.refused()), (429, LimitReached), "{}", refused.text());
    assert!(refused.text().contains("max_per_owner"), "{}", refused.text());
    daemon.delete("/v1/workspaces/a").await.ok();
    daemon.create(json!({ "workspace_id": "c" })).await;
    assert_eq!(daemon.post("/v1/sessions", json!({ "workspace_id": "../x" })).await.refused(), InvalidRequest);
    daemon.stop().await;
}
