//! Sessions whose commands are root: root of the sandbox and nowhere else. The probe runs in them too, tries what only root could
//! try, and runs with the same rights where nothing protects, to show that it would notice.

use std::path::Path;
use std::process::Command;

use e2e::daemon::rootfs::rootfs;
use e2e::daemon::{Ability, Daemon, Session, engine, is_local_only, lacks};
use e2e::{LONG_DEADLINE, is_root, procfs, skipped, wait_until};
use serde_json::{Value, json};

use super::beacon::Beacon;
use super::probe::{EPERM, failed, probe};

/// CHOWN DAC_OVERRIDE FOWNER FSETID KILL SETGID SETUID SETFCAP.
const CAPABILITIES: &str = "00000000800000fb";

const EINVAL: i64 = 22;

/// Checks of the probe that are about ordinary users. Those below take their place.
const OF_ORDINARY_USERS: [&str; 4] = ["no capability", "no capability to gain", "an ordinary user", "read-only root"];

/// What root is kept from, by name, and whether these facts show it.
fn checks(facts: &Value) -> Vec<(&'static str, bool)> {
    let root = &facts["root"];
    let error = |name: &str| root[name].as_i64().expect("a number");
    let is_refused = |names: &[&str]| names.iter().all(|name| error(name) != 0);
    let capability = |name: &str| facts["status"][name].as_str().expect("a line of status").to_owned();
    let scratch = root["scratch"].as_object().expect("an object");
    vec![
        (
            "few capabilities, and no more to gain",
            ["CapPrm", "CapEff", "CapBnd"].iter().all(|name| capability(name) == CAPABILITIES)
                && capability("CapInh") == "0000000000000000"
                && error("every_capability") == EPERM,
        ),
        ("no devices", is_refused(&["mknod_disk", "mknod_memory"])),
        (
            "nothing of init's",
            is_refused(&["init_root", "init_directory", "init_descriptors", "init_memory", "init_limits"]),
        ),
        ("no namespace of others", is_refused(&["init_namespace", "setns"])),
        ("no other id map", root["new_map"].as_array().is_some_and(|both| both.iter().all(|one| *one != 0))),
        (
            "no settings of the kernel",
            root["sysctl"].as_array().is_some_and(|all| all.iter().all(|one| *one != 0)) && error("sysrq") != 0,
        ),
        ("no modules", error("module") == EPERM && error("unload") != 0 && error("unload") != 2),
        ("no restart of the machine", error("reboot") == EPERM),
        ("no other host name", error("hostname") != 0),
        ("no file by its handle", error("handle") == EPERM),
        ("nothing of the runner's files", scratch.values().all(|one| *one != 0)),
        ("no way to become the runner", [error("become_runner"), error("give_to_runner")] == [EINVAL; 2]),
        ("no more than its limits", is_refused(&["nice", "open_files", "oom_score"])),
    ]
}

fn failed_of_root(facts: &Value) -> Vec<&'static str> {
    checks(facts).into_iter().filter(|(_, passed)| !passed).map(|(name, _)| name).collect()
}

/// Whether to skip a story about root. Prints the skip.
fn is_not_for_us(story: &str) -> bool {
    if is_local_only(story, "root is refused there") {
        return true;
    }
    if !is_root() {
        skipped(story, "the daemon needs root, or subordinate ids");
    }
    !is_root()
}

#[tokio::test]
async fn root_of_a_sandbox_is_root_nowhere_else() {
    if is_not_for_us("the probe as root") {
        return;
    }
    let daemon = Daemon::start().await;
    for writable in [true, false] {
        let create = json!({ "user": "root", "writable_root": writable });
        let session = daemon.patient().create(create).await;
        let view = session.view().await;
        assert_eq!((&view["user"], &view["writable_root"]), (&json!("root"), &json!(writable)));
        let facts = probe(&daemon, &session).await;
        assert_eq!(facts["uid"], 0);
        let mut failed = failed(&facts);
        failed.retain(|check| !OF_ORDINARY_USERS.contains(check));
        failed.extend(failed_of_root(&facts));
        assert!(failed.is_empty(), "{failed:?} failed with writable_root {writable}: {facts:#}");
        let places = if writable { json!([]) } else { json!(["/", "/usr", "/etc"]) };
        assert_eq!(facts["read_only_places"], places);
        // On the host, a process of root is a user that nobody else is.
        session.sh("sleep 1000 & echo ok").await;
        let inside = procfs::descendants(daemon.runner_pid(&session));
        let users: Vec<u32> = inside.iter().map(|process| owner(process.pid)).collect();
        assert!(users.len() >= 2 && users.iter().all(|uid| *uid >= 0x7000_0000), "{users:?}");
        assert!(!users.contains(&owner(daemon.runner_pid(&session))), "commands and the runner are the same user");
        session.destroy().await;
    }
    daemon.stop().await;
}

/// The user of a process.
fn owner(pid: i32) -> u32 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:")).expect("every process has one");
    line.split_whitespace().next().expect("four numbers").parse().expect("a number")
}

/// If a protection is turned off, its checks fail for root as well.
#[tokio::test]
async fn the_probe_notices_when_a_protection_is_off_for_root() {
    if is_not_for_us("the probe's controls as root") || lacks("the probe's controls", Ability::ProtectionsOff) {
        return;
    }
    let controls: [(&str, &[&str]); 6] = [
        ("seccomp", &["seccomp", "no dangerous calls", "no netlink but routes", "no tracing of what runs already"]),
        ("network", &["loopback only"]),
        ("masks", &["masked proc"]),
        ("own_inodes", &["devices of its own"]),
        ("private_pids", &["no other processes"]),
        ("capabilities", &["a runner with few capabilities"]),
    ];
    for (protection, expected) in controls {
        let config = format!("[local]\ndisabled_protections = [\"{protection}\"]\n");
        let daemon = Daemon::builder().config(&config).start().await;
        let session = daemon.patient().create(json!({ "user": "root" })).await;
        let failed = failed(&probe(&daemon, &session).await);
        for check in expected {
            assert!(failed.contains(check), "without {protection}, {check:?} still passes: {failed:?}");
        }
        daemon.stop().await;
    }
}

/// Namespaces of the probe's own keep the control from harming the host. Nothing else is kept from it.
const UNPROTECTED: [&str; 8] = ["--fork", "--pid", "--mount-proc", "--mount", "--uts", "--ipc", "--net", "--"];

/// With root's rights on the host, every check fails that a session of root passes.
#[tokio::test]
async fn the_probe_of_the_hosts_root_can_do_what_that_of_a_session_cannot() {
    if engine().is_some() || !is_root() {
        return skipped("the probe of the host's root", "needs root");
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let beacon = Beacon::below_usr();
    // The directory that stands for the runner's is on a file system of its own.
    let script = "mount -t tmpfs none /run && mkdir /run/cove && cd \"$1\" && shift && exec \"$@\"";
    let output = Command::new("unshare")
        .args(UNPROTECTED)
        .args(["sh", "-c", script, "sh"])
        .arg(directory.path())
        .arg(env!("CARGO_BIN_EXE_probe"))
        .args([Path::new("0"), beacon.path(), Path::new("/etc/hostname")])
        .output()
        .expect("unshare is installed");
    let facts: Value = serde_json::from_slice(&output.stdout).expect("the probe prints JSON");
    let passed: Vec<_> = checks(&facts).into_iter().filter(|(_, passed)| *passed).map(|(name, _)| name).collect();
    assert_eq!(passed, [""; 0], "{facts:#}");
}

#[tokio::test]
async fn root_cannot_harm_its_runner_and_its_session_goes_on() {
    if is_not_for_us("root against its runner") {
        return;
    }
    let daemon = Daemon::start().await;
    let session = daemon.patient().create(json!({ "user": "root" })).await;
    session.sh("cd /tmp; export KEPT=1").await;
    let runner = procfs::process(daemon.runner_pid(&session)).expect("it runs");
    for attack in [
        "kill -9 1",
        "kill -STOP 1",
        "rm -rf /run/cove",
        "mv /run/cove /run/away",
        "chmod -R 777 /run/cove",
        "chown -R root /run/cove",
        "echo 1000 > /proc/1/oom_score_adj",
        "echo x > /proc/1/mem",
        "ls /proc/1/fd",
        "cat /run/cove/*/*",
    ] {
        let reply = session.exec(&format!("{attack} 2>/dev/null")).await;
        assert_ne!(reply["exit_code"], 0, "{attack}: {reply}");
    }
    assert_eq!(session.sh("pwd; echo $KEPT").await, "/tmp\n1\n");
    // Everything that root may signal: its own shell is among it, and a new one takes its place.
    session.exec("kill -9 -1").await;
    assert_eq!(session.sh("id -un").await, "root\n");
    assert!(procfs::is_alive(&runner), "the runner is the same");
    daemon.stop().await;
}

#[tokio::test]
async fn root_makes_users_becomes_them_and_owns_what_it_writes() {
    if is_not_for_us("users of a session") {
        return;
    }
    let daemon = Daemon::start().await;
    let session = daemon.patient().create(json!({ "user": "root" })).await;
    assert_eq!(
        session.sh("id -u; id -g; id -un; echo $HOME; stat -c %U /usr/bin /etc /root").await,
        "0\n0\nroot\n/root\nroot\nroot\nroot\n"
    );
    session.sh("useradd -m somebody && groupadd team && usermod -aG team somebody").await;
    let became = session
        .sh("su somebody -c 'id -un; id -Gn; touch /home/somebody/f /usr/no 2>/dev/null; ls /home/somebody'")
        .await;
    assert_eq!(became, "somebody\nsomebody team\nf\n");
    assert_eq!(
        session.sh("touch f; chown somebody:team f; stat -c '%U %G' f; chown 65534:65534 f; stat -c '%u %g' f").await,
        "somebody team\n65534 65534\n"
    );
    // The file API is root as well, and so is a run.
    session.put("/etc/by-api", "written").await.ok();
    assert_eq!(session.sh("stat -c %U /etc/by-api; cat /etc/by-api").await, "root\nwritten");
    assert_eq!(session.run(&["id", "-u"]).await["stdout"], "0\n");
    assert!(!Path::new("/etc/by-api").exists(), "it is on the host");
    daemon.stop().await;
}

#[tokio::test]
async fn a_workspace_belongs_to_the_user_of_each_session() {
    if is_not_for_us("a workspace of root") {
        return;
    }
    let daemon = Daemon::start().await;
    let create = |user: &str| json!({ "user": user, "workspace_id": "shared" });
    let ordinary = daemon.create(create("default")).await;
    ordinary.sh("echo one > by-user; mkdir dir").await;
    let root = daemon.patient().create(create("root")).await;
    assert_eq!(
        root.sh("stat -c %U . by-user dir; echo two >> by-user; echo three > dir/by-root").await,
        "root\nroot\nroot\n"
    );
    let seen =
        ordinary.sh("cat by-user; stat -c %u dir/by-root; echo four >> dir/by-root; cat dir/by-root; rm -r dir").await;
    assert_eq!(seen, "one\ntwo\n1000\nthree\nfour\n");
    daemon.stop().await;
}

#[tokio::test]
async fn a_session_of_root_is_one_after_a_restart_and_takes_no_pooled_sandbox() {
    if is_not_for_us("a restart with a session of root") {
        return;
    }
    let mut daemon = Daemon::builder().config("[pool]\nbase = 1\n").start().await;
    wait_until("a filled pool", LONG_DEADLINE, async || {
        (daemon.get("/v1/pools").await.ok()[0]["idle"] == 1).then_some(())
    })
    .await;
    let pooled = daemon.patient().create(json!({ "user": "root", "writable_root": false })).await;
    assert_eq!(pooled.view().await["acquire_source"], "cold", "the sandbox in the pool is an ordinary user's");
    let session = daemon.patient().create(json!({ "user": "root" })).await;
    session.sh("echo kept > /etc/kept; cd /root").await;
    daemon.kill().await;
    let daemon = daemon.start_again();
    let session = Session { api: daemon.api().clone(), id: session.id };
    assert_eq!(session.view().await["user"], "root");
    assert_eq!(session.sh("id -u; pwd; cat /etc/kept").await, "0\n/root\nkept\n");
    daemon.stop().await;
}

#[tokio::test]
async fn in_an_image_root_owns_the_files_of_root() {
    if is_not_for_us("root in an image") {
        return;
    }
    let daemon = Daemon::start().await;
    let root = rootfs();
    let cove = e2e::daemon::Cove::of(&daemon);
    cove.run(&["image", "import", "mine", root.path().to_str().expect("text")]).await.ok();
    let session = daemon.patient().create(json!({ "image": "mine", "user": "root" })).await;
    assert_eq!(
        session.sh("id -u; ls -ldn /etc/mark | { read -r _ _ uid gid _; echo $uid $gid; }; echo $HOME").await,
        "0\n0 0\n/root\n"
    );
    assert_eq!(session.sh("echo mine > /etc/mark; mkdir /root/d; cat /etc/mark; ls /root").await, "mine\nd\n");
    let read_only = daemon.create(json!({ "image": "mine", "user": "root", "writable_root": false })).await;
    assert_ne!(read_only.exec("echo x > /etc/mark").await["exit_code"], 0);
    assert_eq!(read_only.sh("echo x > /root/f; cat /root/f /etc/mark").await, "x\nan image of its own\n");
    daemon.stop().await;
}

#[tokio::test]
async fn root_is_refused_where_there_is_no_second_user_or_it_would_be_the_hosts() {
    if engine().is_some() {
        let daemon = Daemon::start().await;
        let refused = daemon.post("/v1/sessions", json!({ "user": "root" })).await;
        assert_eq!(refused.refused(), shared_protocol::ErrorCode::InvalidRequest, "{}", refused.text());
        assert!(refused.text().contains("local"), "{}", refused.text());
        return daemon.stop().await;
    }
    if !is_root() {
        return skipped("the daemon as another user", "needs root to become one");
    }
    let daemon = Daemon::builder().as_user(1000).start().await;
    let refused = daemon.post("/v1/sessions", json!({ "user": "root", "writable_root": false })).await;
    assert_eq!(refused.refused(), shared_protocol::ErrorCode::InvalidRequest, "{}", refused.text());
    assert!(refused.text().contains("/etc/subuid"), "{}", refused.text());
    let unknown = daemon.post("/v1/sessions", json!({ "user": "nobody" })).await;
    assert_eq!(unknown.status, 400, "{}", unknown.text());
    daemon.stop().await;
}
