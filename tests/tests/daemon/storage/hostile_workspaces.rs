//! Hostile workspaces: links, races, devices, pipes and huge directories in them, and a directory that somebody removes by
//! hand.

use e2e::daemon::{Ability, Daemon, is_local_only};
use e2e::{DEADLINE, is_root, procfs, skipped, wait_until};
use serde_json::json;
use shared_protocol::ErrorCode::{FileNotFound, WorkspaceNotFound};

/// Workspaces as directories, for stories that look at them from the host.
const DIRECTORIES: &str = "[workspaces]\nstorage = \"directory\"\n";

const SECRET: &str = "the other's secret";

async fn read(daemon: &Daemon, workspace: &str, path: &str) -> e2e::daemon::Answer {
    daemon.get(&format!("/v1/workspaces/{workspace}/fs/read?path={path}&max_bytes=100")).await
}

fn content(answer: &e2e::daemon::Answer) -> String {
    use base64::Engine as _;
    let json = answer.json();
    let bytes = base64::engine::general_purpose::STANDARD.decode(json["content_base64"].as_str().unwrap_or_default());
    String::from_utf8_lossy(&bytes.expect("base64")).into_owned()
}

#[tokio::test]
async fn a_workspace_leads_to_no_other() {
    let daemon = Daemon::start().await;
    let other = daemon.create(json!({ "workspace_id": "other" })).await;
    other.sh(&format!("echo {SECRET:?} > secret")).await;
    let session = daemon.create(json!({ "workspace_id": "mine" })).await;
    let root = daemon.data_dir().join("workspaces");
    let root = root.display();
    session
        .sh(&format!("ln -s ../other/secret a; ln -s {root}/other/secret b; ln -s {root}/other c; ln -s .. up"))
        .await;
    session.destroy().await;
    let paths = ["a", "b", "c/secret", "up/other/secret", "up/workspaces/other/secret", "../other/secret"];
    for path in paths {
        let answer = read(&daemon, "mine", path).await;
        assert_eq!(answer.status / 100, 4, "{path}: {}", answer.text());
    }
    // A write creates files only in the sandbox that performs it, and that sandbox is removed.
    for path in paths {
        daemon.post("/v1/workspaces/mine/fs/write", json!({ "path": path, "text": "overwritten" })).await;
    }
    assert_eq!(content(&read(&daemon, "other", "secret").await), format!("{SECRET}\n"));
    daemon.stop().await;
}

/// A link may lead to a file of the sandbox that reads it, so that sandbox must have none.
#[tokio::test]
async fn a_link_in_a_workspace_shows_no_file_outside_of_it() {
    let daemon = Daemon::start().await;
    let session = daemon.create(json!({ "workspace_id": "mine" })).await;
    session.sh("ln -s /etc/passwd link; ln -s / root; ln -s /proc/version kernel").await;
    session.sh("echo mine > file; ln -s /workspace/file own; ln -s root/workspace/own far").await;
    let shown = session.sh("cat link root/etc/passwd kernel").await;
    assert!(shown.contains("root:"), "the control: the links lead to files for a command: {shown}");
    let leads_nowhere = async |when: &str| {
        for path in ["link", "root/etc/passwd", "kernel", "root/proc/self/status", "/etc/passwd", "/proc/1/status"] {
            let answer = read(&daemon, "mine", path).await;
            assert_eq!(answer.status, 404, "{path} {when}: {}", answer.text());
        }
        for path in ["file", "own", "far", "/workspace/file"] {
            assert_eq!(content(&read(&daemon, "mine", path).await), "mine\n", "{path} {when}");
        }
        let root = daemon.get("/v1/workspaces/mine/fs?path=/").await.ok();
        let names: Vec<&str> =
            root["entries"].as_array().expect("a list").iter().filter_map(|entry| entry["path"].as_str()).collect();
        assert_eq!(names, ["workspace"], "{when}");
    };
    leads_nowhere("while a session runs").await;
    session.destroy().await;
    leads_nowhere("without a session").await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_session_that_stops_every_process_it_can_does_not_hold_up_the_files_of_its_workspace() {
    let daemon = Daemon::start().await;
    let session = daemon.create(json!({ "workspace_id": "mine" })).await;
    session.sh("echo kept > note").await;
    session.ask(json!({ "cmd": "while :; do kill -STOP -1; done", "detach": true })).await.ok();
    for _ in 0..20 {
        let answer = read(&daemon, "mine", "note").await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(content(&answer), "kept\n");
    }
    daemon.post("/v1/workspaces/mine/fs/write", json!({ "path": "new", "text": "x" })).await.ok();
    session.destroy().await;
    daemon.stop().await;
}

/// Somebody has mounted a file system inside a workspace. Its programs and devices must not work in a sandbox.
#[tokio::test]
async fn a_mount_inside_a_workspace_reaches_no_sandbox_without_its_restrictions() {
    let story = "a_mount_inside_a_workspace_reaches_no_sandbox_without_its_restrictions";
    if is_local_only(story, "a container's workspace is the engine's mount") {
        return;
    }
    if !is_root() {
        return skipped(story, "only root can mount a file system");
    }
    let daemon = Daemon::builder().config("[pool]\nbase = 1\n[workspaces]\nstorage = \"directory\"\n").start().await;
    let first = daemon.create(json!({ "workspace_id": "mine" })).await;
    first.sh("mkdir sub").await;
    first.destroy().await;
    wait_until("a filled pool", DEADLINE, async || (daemon.get("/v1/pools").await.ok()[0]["idle"] == 1).then_some(()))
        .await;
    let place = daemon.data_dir().join("workspaces/mine/sub");
    let mounted = Mounted::tmpfs(&place);
    let mode = nix::sys::stat::Mode::from_bits_truncate(0o666);
    let zero = nix::sys::stat::makedev(1, 5);
    nix::sys::stat::mknod(&place.join("zero"), nix::sys::stat::SFlag::S_IFCHR, mode, zero).expect("a device");
    // A claimed sandbox gets its workspace late, and one with other resources than the pool's starts with it.
    for (resources, source) in [(json!({}), "pool"), (json!({ "pids": 77 }), "cold")] {
        let session = daemon.create(json!({ "workspace_id": "mine", "resources": resources })).await;
        assert_eq!(session.view().await["acquire_source"], source);
        let device = session.exec("head -c 1 sub/zero | wc -c").await;
        assert_eq!(
            device["output"].as_str().map(str::trim_end).and_then(|text| text.lines().last()),
            Some("0"),
            "{device}"
        );
        let mounts = session.sh("grep ' /workspace' /proc/self/mountinfo").await;
        for mount in mounts.lines() {
            assert!(mount.contains("nosuid") && mount.contains("nodev"), "{mounts}");
        }
        session.destroy().await;
    }
    drop(mounted);
    daemon.stop().await;
}

/// A file system that is mounted until it is dropped.
struct Mounted(std::path::PathBuf);

impl Mounted {
    fn tmpfs(place: &std::path::Path) -> Self {
        let mounted = std::process::Command::new("mount").args(["-t", "tmpfs", "tmpfs"]).arg(place).status();
        assert!(mounted.is_ok_and(|status| status.success()), "{} is mounted", place.display());
        Self(place.to_owned())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let unmounted = std::process::Command::new("umount").arg("--lazy").arg(&self.0).status();
        if !unmounted.is_ok_and(|status| status.success()) {
            eprintln!("could not unmount {}", self.0.display());
        }
    }
}

/// A process keeps swapping a directory for a link, to hit the moment between a check and an open.
#[tokio::test]
async fn a_race_with_who_is_inside_leads_nowhere() {
    let daemon = Daemon::builder().config(DIRECTORIES).start().await;
    let other = daemon.create(json!({ "workspace_id": "other" })).await;
    other.sh(&format!("mkdir d; echo {SECRET:?} > d/f")).await;
    let session = daemon.create(json!({ "workspace_id": "mine" })).await;
    let target = daemon.data_dir().join("workspaces/other/d");
    let swap = format!(
        "mkdir real; echo mine > real/f; ln -s {} link; cp -r real d; while true; do rm -rf d; ln -s {} d; rm d; cp -r real d; done",
        target.display(),
        target.display()
    );
    session.ask(json!({ "cmd": swap, "detach": true })).await;
    let mut mine = 0;
    for n in 0..150 {
        let answer = read(&daemon, "mine", "d/f").await;
        match answer.status {
            200 => {
                let text = content(&answer);
                assert!(text == "mine\n" || text.is_empty() || text == "written", "read {text:?}");
                mine += 1;
            }
            400..=499 => {}
            other => panic!("{other}: {}", answer.text()),
        }
        let path = if n % 2 == 0 { "d/f" } else { "d/new" };
        daemon.post("/v1/workspaces/mine/fs/write", json!({ "path": path, "text": "written" })).await;
    }
    assert!(mine > 0, "the directory was never met as it is");
    assert_eq!(other.sh("cat d/f; ls d").await, format!("{SECRET}\nf\n"));
    daemon.stop().await;
}

#[tokio::test]
async fn a_device_or_a_pipe_in_a_workspace_is_not_read() {
    let story = "a_device_or_a_pipe_in_a_workspace_is_not_read";
    if is_local_only(story, "a container's workspace is the engine's mount") {
        return;
    }
    if !is_root() {
        return skipped(story, "only root can make a device");
    }
    let daemon = Daemon::builder().config(DIRECTORIES).start().await;
    let session = daemon.create(json!({ "workspace_id": "mine" })).await;
    session.sh("mkfifo pipe; chmod 666 pipe; touch own").await;
    // No process inside can do this, but a restored backup could.
    let directory = daemon.data_dir().join("workspaces/mine");
    let zero = nix::sys::stat::makedev(1, 5);
    let mode = nix::sys::stat::Mode::from_bits_truncate(0o666);
    nix::sys::stat::mknod(&directory.join("zero"), nix::sys::stat::SFlag::S_IFCHR, mode, zero).expect("a device");
    let owner = std::fs::metadata(directory.join("own")).expect("a file");
    let (uid, gid) = (std::os::unix::fs::MetadataExt::uid(&owner), std::os::unix::fs::MetadataExt::gid(&owner));
    std::os::unix::fs::chown(directory.join("zero"), Some(uid), Some(gid)).expect("our own file");
    let by_hand = session.exec("head -c 1 zero").await;
    assert_ne!(by_hand["exit_code"], 0, "a device of the host works inside: {by_hand}");
    session.destroy().await;
    for path in ["zero", "pipe"] {
        let answer = read(&daemon, "mine", path).await;
        assert_eq!(answer.status / 100, 4, "{path}: {}", answer.text());
    }
    daemon.delete("/v1/workspaces/mine").await.ok();
    daemon.stop().await;
}

/// The most that the daemon may grow while it deletes names of 6 MB: half of them.
const MAX_GROWTH_KIB: u64 = 3 << 10;

/// Makes the kernel count the daemon's largest size anew, and returns its size now, in KiB.
fn forget_peak(daemon: &Daemon) -> u64 {
    std::fs::write(format!("/proc/{}/clear_refs", daemon.pid()), "5").expect("our own process");
    procfs::status_kib(daemon.pid(), "VmRSS")
}

#[tokio::test]
async fn a_huge_directory_is_listed_within_bounds_counted_or_not_and_deleted() {
    let daemon = Daemon::builder().config(DIRECTORIES).start().await;
    let session = daemon.create(json!({ "workspace_id": "mine" })).await;
    session.sh("head -c 1000000 /dev/zero > large").await;
    let listed = daemon.get("/v1/workspaces").await.ok();
    assert!(listed["workspaces"][0]["size_bytes"].as_u64() >= Some(1_000_000), "{listed}");
    // The shell makes the files itself, with a timeout that is long enough for a slow machine. Each name has 106 bytes.
    let many = "mkdir many; cd many; seq -f $(printf 'n%.0s' {1..100})%06.0f 60000 | xargs touch; cd ..";
    let request = json!({ "cmd": many, "timeout_ms": 120_000 });
    daemon.api().patient().post(&session.path("/exec"), request).await.ok();
    session.destroy().await;
    let listed = daemon.get("/v1/workspaces").await.ok();
    assert_eq!(listed["workspaces"][0]["size_bytes"], json!(null), "{listed}");
    let files = daemon.get("/v1/workspaces/mine/fs?path=many").await;
    assert_eq!(files.status, 200, "{}", files.text());
    let view = files.json();
    let count = view["entries"].as_array().expect("a list").len();
    assert!(count == 60_000 || view["truncated"] == true, "{count} of 60000, and nothing is said of the rest");
    let before = forget_peak(&daemon);
    daemon.delete("/v1/workspaces/mine").await.ok();
    let grown = procfs::status_kib(daemon.pid(), "VmHWM").saturating_sub(before);
    println!("deleting 6 MB of names: the daemon grew by {grown} KiB");
    assert!(grown < MAX_GROWTH_KIB, "{grown} KiB, so the names were all in memory");
    daemon.stop().await;
}

#[tokio::test]
async fn a_directory_that_somebody_removes_under_a_session_is_empty_for_it_and_new_for_others() {
    let daemon = Daemon::builder().config(DIRECTORIES).start().await;
    let session = daemon.create(json!({ "workspace_id": "mine" })).await;
    session.sh("echo x > note; mkdir d; cd d").await;
    std::fs::remove_dir_all(daemon.data_dir().join("workspaces/mine")).expect("our own directory");
    // The session and its shell continue; there is only no directory left to write to.
    assert_eq!(session.sh("echo alive").await, "alive\n");
    assert_eq!(session.sh("ls -A /workspace").await, "");
    assert_ne!(session.exec("echo y > /workspace/new").await["exit_code"], 0);
    assert_eq!(session.put("new", "y").await.refused(), FileNotFound);
    assert_eq!(session.sh("echo elsewhere > /tmp/f; cat /tmp/f").await, "elsewhere\n");
    assert_eq!(daemon.get("/v1/workspaces").await.ok()["workspaces"], json!([]));
    assert_eq!(daemon.get("/v1/workspaces/mine/fs").await.refused(), WorkspaceNotFound);
    assert_eq!(daemon.delete("/v1/workspaces/mine").await.refused(), WorkspaceNotFound);
    let fresh = daemon.create(json!({ "workspace_id": "mine" })).await;
    assert_eq!(fresh.sh("ls -A; echo z > note; cat note").await, "z\n");
    assert_eq!(session.sh("ls -A /workspace").await, "", "two different directories");
    session.destroy().await;
    assert_eq!(fresh.sh("cat note").await, "z\n");
    daemon.stop().await;
}

#[tokio::test]
async fn many_sessions_use_one_workspace_at_once() {
    const SESSIONS: usize = 6;
    let daemon = Daemon::start().await;
    let mut sessions = Vec::new();
    for _ in 0..SESSIONS {
        sessions.push(daemon.create(json!({ "workspace_id": "shared" })).await);
    }
    // Each session appends under a lock that all of them see, and reads what all of them wrote.
    let is_one_file = Ability::SharedLocks.is_there("one file that several sessions append to");
    let work = sessions.iter().enumerate().map(|(n, session)| async move {
        let file = if is_one_file { "all".to_owned() } else { format!("all-{n}") };
        session.sh(&format!("for i in $(seq 50); do flock lock sh -c 'echo {n} >> {file}'; done")).await
    });
    futures_util::future::join_all(work).await;
    for session in &sessions {
        assert_eq!(session.sh("cat all* | wc -l").await.trim(), (SESSIONS * 50).to_string());
    }
    let refused = daemon.delete("/v1/workspaces/shared").await;
    assert_eq!(refused.status, 409, "{}", refused.text());
    assert!(sessions.iter().all(|session| refused.text().contains(&session.id)), "{}", refused.text());
    daemon.delete("/v1/workspaces/shared?force=true").await.ok();
    wait_until("all are gone", DEADLINE, async || (daemon.get("/v1/sessions").await.ok() == json!([])).then_some(()))
        .await;
    assert_eq!(daemon.get("/v1/workspaces").await.ok()["workspaces"], json!([]));
    daemon.stop().await;
}

/// The data directory is on a file system with project quotas.
#[tokio::test]
async fn a_workspace_holds_no_more_than_its_quota() {
    let story = "a_workspace_holds_no_more_than_its_quota";
    if !is_root() {
        return skipped(story, "only root can mount a file system");
    }
    let directory = tempfile::Builder::new().prefix("cove-e2e-").tempdir().expect("a temporary directory");
    let disk = match QuotaDisk::mount(directory.path()) {
        Ok(disk) => disk,
        Err(why) => return skipped(story, &why),
    };
    let daemon = Daemon::builder().config("[workspaces]\nmax_mb = 8\n").start_in(directory);
    let session = daemon.create(json!({ "workspace_id": "mine" })).await;
    session.sh("head -c 6000000 /dev/zero > a").await;
    let full = session.exec("head -c 6000000 /dev/zero > b").await;
    assert_ne!(full["exit_code"], 0, "{full}");
    assert!(session.put("c", vec![0; 6_000_000]).await.status >= 400);
    assert_eq!(session.sh("rm -f b; cat a | wc -c").await, "6000000\n");
    // A sandbox cannot change its quota project, and another workspace has its own.
    let other = daemon.create(json!({ "workspace_id": "other" })).await;
    other.sh("head -c 6000000 /dev/zero > a").await;
    let listed = daemon.get("/v1/workspaces").await.ok();
    assert!(listed["workspaces"][0]["size_bytes"].as_u64() >= Some(6_000_000), "{listed}");
    other.destroy().await;
    session.destroy().await;
    daemon.delete("/v1/workspaces/mine").await.ok();
    let again = daemon.create(json!({ "workspace_id": "mine" })).await;
    again.sh("head -c 6000000 /dev/zero > a").await;
    daemon.stop().await;
    drop(disk);
}

/// A file system with project quotas, mounted at `data` in a directory until it is dropped.
struct QuotaDisk(std::path::PathBuf);

impl QuotaDisk {
    fn mount(directory: &std::path::Path) -> Result<Self, String> {
        let (image, place) = (directory.join("disk"), directory.join("data"));
        std::fs::File::create(&image).and_then(|file| file.set_len(128 << 20)).map_err(|e| e.to_string())?;
        std::fs::create_dir(&place).map_err(|e| e.to_string())?;
        let run = |program: &str, arguments: &[&std::ffi::OsStr]| {
            let output = std::process::Command::new(program).args(arguments).output();
            let output = output.map_err(|e| format!("{program}: {e}"))?;
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            if output.status.success() { Ok(()) } else { Err(format!("{program}: {said}")) }
        };
        let make = ["-q", "-O", "quota,project", "-E", "quotatype=prjquota"].map(std::ffi::OsStr::new);
        run("mkfs.ext4", &[&make[..], &[image.as_os_str()]].concat())?;
        let options = ["-o", "loop,prjquota"].map(std::ffi::OsStr::new);
        run("mount", &[&options[..], &[image.as_os_str(), place.as_os_str()]].concat())
            .map_err(|why| format!("this kernel has no quotas for ext4: {why}"))?;
        Ok(Self(place))
    }
}

impl Drop for QuotaDisk {
    fn drop(&mut self) {
        let unmounted = std::process::Command::new("umount").arg(&self.0).status();
        if !unmounted.is_ok_and(|status| status.success()) {
            eprintln!("could not unmount {}", self.0.display());
        }
    }
}
