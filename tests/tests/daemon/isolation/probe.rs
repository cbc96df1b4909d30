//! What a sandbox cannot see and cannot do, reported by a probe inside. The probe also runs in places where a protection is
//! off, to show that it would notice.

use std::os::unix::fs::MetadataExt as _;

use e2e::daemon::{Ability, Daemon, Engine, Session, cgroups_of, engine, is_local_only, lacks};
use e2e::{is_root, skipped};
use serde_json::{Value, json};

use super::beacon::Beacon;

pub const EPERM: i64 = 1;
const ENOSYS: i64 = 38;

/// Runs the probe in a session and returns its facts.
pub async fn probe(daemon: &Daemon, session: &Session) -> Value {
    let program = std::fs::read(env!("CARGO_BIN_EXE_probe")).expect("the probe was built");
    session.put("probe", program).await.ok();
    session.sh("chmod 755 probe").await;
    let secret = daemon.data_dir().join("api-key");
    let directory = daemon.data_dir();
    let beacon = Beacon::below_usr();
    let shown = beacon.path().display();
    let line = format!("./probe {} {shown} {} {}", daemon.address.port(), secret.display(), directory.display());
    let mut facts: Value = serde_json::from_str(&session.sh(&line).await).expect("the probe prints JSON");
    facts["daemon_directory"] = daemon.directory().file_name().expect("it has a name").to_string_lossy().into();
    facts
}

/// The socket of a container's runner. The kernel shows its name to the whole network namespace, but its directory is closed.
const RUNNER_SOCKET: &str = "/run/cove/private/host/runner.sock";

/// Whether the kernel made this name for a socket that has none: `@` and five digits. The runner's sockets to its shells are
/// such.
fn is_unnamed(socket: &Value) -> bool {
    let digits = socket.as_str().and_then(|name| name.strip_prefix('@')).unwrap_or("-");
    digits.len() <= 5 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Names in the host's `/etc` that no program in a sandbox needs. Each is there on most hosts, and some are on all.
const PRIVATE_OF_ETC: [&str; 11] =
    ["machine-id", "passwd-", "group-", "shadow", "gshadow", "fstab", "sudoers", "ssh", "pip.conf", "npmrc", "systemd"];

/// Whether nothing that the host does with a file that it shows can be noticed or disturbed.
fn is_apart(facts: &Value) -> bool {
    !["socket", "fifo", "lock", "event"].iter().any(|way| facts["beacon"][way] == true)
}

fn has_own_devices(facts: &Value) -> bool {
    let null = std::fs::metadata("/dev/null").expect("it is on every host");
    facts["null_device"] != json!((null.dev(), null.ino()))
}

/// Whether a mount tells where the daemon's data directory is.
fn tells_data_directory(facts: &Value) -> bool {
    let (roots, name) = (facts["mount_roots"].to_string(), facts["daemon_directory"].as_str());
    name.is_some_and(|name| roots.contains(name))
}

const DANGEROUS: [&str; 6] =
    ["bpf", "perf_event_open", "keyctl", "userfaultfd", "open_by_handle_at", "process_vm_readv"];

fn is_of_init(path: &Value) -> bool {
    path.as_str().is_some_and(|path| path.starts_with("/proc/1/"))
}

/// gVisor shows the command line of its own kernel, which tells nothing about the host's.
fn is_of_gvisor(path: &Value) -> bool {
    *path == "/proc/cmdline" && engine().is_some_and(Engine::is_gvisor)
}

/// Checks that need an ability of the runtime.
const DEMANDING: [(&str, Ability); 6] = [
    ("no_new_privs", Ability::WholeStatus),
    ("no ambient capability", Ability::WholeStatus),
    ("a closed init", Ability::InitHidden),
    ("of /etc only what programs need", Ability::HostImage),
    ("no path of the data directory", Ability::HostImage),
    ("calls that do not exist told from those that are denied", Ability::ErrorNumbers),
];

/// Checks that pass only if a system call filter is active.
const FILTERED: [&str; 9] = [
    "seccomp",
    "no new namespaces",
    "no mounts",
    "no raw sockets",
    "no netlink but routes",
    "no dangerous calls",
    "no host-wide counters",
    "no tracing of init",
    "no tracing of what runs already",
];

/// Whether a check is skipped on this runtime. Prints the skip.
fn is_beyond(check: &str) -> bool {
    let is_lacking = DEMANDING.iter().any(|(name, ability)| *name == check && lacks(check, *ability));
    let is_unfiltered = FILTERED.contains(&check) && engine().is_some_and(|engine| !engine.has_filter());
    if is_unfiltered {
        skipped(check, "gVisor has no --oci-seccomp in its runtimeArgs");
    }
    is_lacking || is_unfiltered
}

/// All checks by name, and whether these facts pass them.
fn checks(facts: &Value) -> Vec<(&'static str, bool)> {
    let list = |name: &str| facts[name].as_array().cloned().unwrap_or_default();
    let call = |name: &str| facts["system_calls"][name].as_i64().unwrap_or(0);
    let is_zero = |name: &str| facts["status"][name] == "0000000000000000";
    let processes = list("processes");
    vec![
        ("no capability", ["CapInh", "CapPrm", "CapEff"].into_iter().all(is_zero)),
        ("no ambient capability", is_zero("CapAmb")),
        ("no capability to gain", is_zero("CapBnd")),
        ("no_new_privs", facts["status"]["NoNewPrivs"] == "1"),
        ("seccomp", facts["status"]["Seccomp"] == "2"),
        ("an ordinary user", facts["uid"] == 1000 && facts["setuid_root"] != 0),
        ("no host home", list("homes") == [json!("sandbox")] && list("root_home").is_empty()),
        ("no data directory", list("secrets_seen").is_empty()),
        ("no host sockets", list("unix_sockets").iter().all(|socket| is_unnamed(socket) || socket == RUNNER_SOCKET)),
        ("no host runtime directory", list("run") == [json!("cove"), json!("lock")]),
        (
            "no other processes",
            processes.len() <= 3 && processes.iter().all(|p| p == "runner" || p == "bash" || p == "probe"),
        ),
        ("no way to signal init", facts["signal_init"] == EPERM),
        ("loopback only", list("interfaces") == [json!("lo")] && facts["host_port_reachable"] == false),
        (
            "read-only root",
            list("writable").is_empty() && list("read_only_places") == [json!("/"), json!("/usr"), json!("/etc")],
        ),
        // The runner has CHOWN DAC_OVERRIDE FOWNER FSETID KILL SETGID SETUID SETPCAP SYS_PTRACE in its own user namespace,
        // or none at all if it is the sandbox's only user.
        (
            "a runner with few capabilities",
            ["00000000000801fb", "0000000000000000"].iter().any(|few| facts["init_status"]["CapBnd"] == *few),
        ),
        ("masked proc", !list("readable").iter().any(|path| !is_of_init(path) && !is_of_gvisor(path))),
        ("a closed init", !list("readable").iter().any(is_of_init)),
        ("inodes of its own", is_apart(facts)),
        ("devices of its own", has_own_devices(facts)),
        ("of /etc only what programs need", list("etc").iter().all(|name| !PRIVATE_OF_ETC.iter().any(|p| name == p))),
        ("no path of the data directory", !tells_data_directory(facts)),
        ("no new namespaces", call("unshare_user") == EPERM),
        ("no mounts", call("mount") == EPERM && call("umount") == EPERM && call("chroot") == EPERM),
        ("no tracing of init", call("ptrace_init") != 0),
        ("no raw sockets", ["socket_packet", "socket_vsock", "socket_raw"].iter().all(|name| call(name) != 0)),
        (
            "no netlink but routes",
            call("netlink_route") == 0 && call("netlink_uevent") != 0 && call("netlink_audit") != 0,
        ),
        ("no host-wide counters", call("io_setup") != 0),
        (
            "no tracing of what runs already",
            // Podman answers ENOSYS where Docker answers EPERM.
            [EPERM, ENOSYS].iter().any(|refusal| facts["tracing"]["attach"] == *refusal)
                && facts["tracing"]["seize"] == facts["tracing"]["attach"]
                && facts["tracing"]["traceme"] == 0,
        ),
        ("no dangerous calls", DANGEROUS.iter().all(|name| call(name) != 0) && call("io_uring_setup") != 0),
        (
            "calls that do not exist told from those that are denied",
            DANGEROUS.iter().all(|name| call(name) == EPERM) && call("io_uring_setup") == ENOSYS,
        ),
    ]
}

pub fn failed(facts: &Value) -> Vec<&'static str> {
    checks(facts).into_iter().filter(|(_, passed)| !passed).map(|(name, _)| name).collect()
}

/// The failed checks, without those that this runtime cannot pass.
pub fn failed_here(facts: &Value) -> Vec<&'static str> {
    let mut failed = failed(facts);
    failed.retain(|check| !is_beyond(check));
    failed
}

#[tokio::test]
async fn a_sandbox_sees_nothing_of_the_host_and_can_do_nothing_to_it() {
    if !is_root() {
        return skipped("the probe with everything enforced", "needs root");
    }
    let daemon = Daemon::start().await;
    let resources = json!({ "cpus": 0.5, "memory_mb": 200, "pids": 50, "disk_mb": 30 });
    let session = daemon.create(json!({ "resources": resources })).await;
    let facts = probe(&daemon, &session).await;
    let failed = failed_here(&facts);
    assert!(failed.is_empty(), "{failed:?} failed: {facts:#}");
    let limits = &facts["limits"];
    if Ability::MemoryLimitSeen.is_there("the limit of memory") {
        assert_eq!(limits["memory"], 200 << 20, "{limits}");
    }
    assert_eq!(limits["pids"], 50, "{limits}");
    if engine().is_some() {
        assert_eq!(limits["disk"], 30 << 20, "{limits}");
    } else {
        // The quota of a disk does not show in the size of its file system, so this fills it.
        let fill = "cat /dev/zero > /workspace/full 2>/dev/null; du -scB1 /workspace /tmp /home/sandbox | tail -n 1 | cut -f 1";
        let full = session.sh(&format!("{fill}; rm /workspace/full")).await;
        let full: u64 = full.trim().parse().expect("a number");
        assert!((28 << 20..=30 << 20).contains(&full), "{full}");
    }
    // 262,144 for all processes together.
    assert_eq!(limits["open_files"], 5242, "{limits}");
    daemon.stop().await;
}

/// If a protection is turned off, exactly its own checks fail.
#[tokio::test]
async fn the_probe_notices_when_a_protection_is_off() {
    if lacks("the probe's controls", Ability::ProtectionsOff) {
        return;
    }
    if !is_root() {
        return skipped("the probe's controls", "need root");
    }
    let controls: [(&str, &[&str]); 7] = [
        (
            "seccomp",
            &[
                "seccomp",
                "no new namespaces",
                "no dangerous calls",
                "no netlink but routes",
                "no host-wide counters",
                "no tracing of what runs already",
            ],
        ),
        ("network", &["loopback only"]),
        ("masks", &["masked proc", "of /etc only what programs need"]),
        ("own_inodes", &["inodes of its own", "devices of its own"]),
        ("read_only_root", &["read-only root"]),
        ("private_pids", &["no other processes"]),
        ("capabilities", &["a runner with few capabilities"]),
    ];
    for (protection, expected) in controls {
        let daemon =
            Daemon::builder().config(&format!("[local]\ndisabled_protections = [\"{protection}\"]\n")).start().await;
        let session = daemon.session().await;
        let facts = probe(&daemon, &session).await;
        let failed = failed(&facts);
        for check in expected {
            assert!(failed.contains(check), "without {protection}, {check:?} still passes: {facts:#}");
        }
        daemon.stop().await;
    }
}

/// On the host itself, the probe of an ordinary user sees everything that a sandbox hides.
#[tokio::test]
async fn the_probe_sees_the_host_from_the_host() {
    if !is_root() {
        return skipped("the probe on the host", "needs root to become another user");
    }
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let directory = tempfile::tempdir().expect("a temporary directory");
    std::fs::set_permissions(directory.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("ours");
    let program = directory.path().join("probe");
    let beacon = Beacon::below_usr();
    std::fs::copy(env!("CARGO_BIN_EXE_probe"), &program).expect("the probe was built");
    let output = std::process::Command::new("setpriv")
        .args(["--reuid", "1000", "--regid", "1000", "--clear-groups", "--"])
        .arg(&program)
        .arg(daemon.address.port().to_string())
        .arg(beacon.path())
        .arg("/etc/hostname")
        .output()
        .expect("setpriv is installed");
    let facts: Value = serde_json::from_slice(&output.stdout).expect("the probe prints JSON");
    let failed = failed(&facts);
    let shown = [
        "no capability to gain",
        "no_new_privs",
        "seccomp",
        "no host home",
        "no data directory",
        "no host runtime directory",
        "no other processes",
        "loopback only",
        "read-only root",
        "masked proc",
        "inodes of its own",
        "of /etc only what programs need",
        "no new namespaces",
        "no netlink but routes",
        "no tracing of what runs already",
    ];
    for check in shown {
        assert!(failed.contains(&check), "{check:?} passes on the host: {facts:#}");
    }
    session.destroy().await;
    daemon.stop().await;
}

/// `/etc/hosts` contains names and addresses of the host's network, and some engines copy them.
#[tokio::test]
async fn the_names_that_a_sandbox_knows_are_not_those_of_the_host() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let names =
        session.sh("sed 's/#.*//' /etc/hosts | grep -vw localhost | tr -s ' \\t' '\\n' | grep '[a-z]'; true").await;
    let own = |name: &&str| name.contains(&session.id) || name.starts_with("ip6-");
    assert!(names.lines().all(|name| own(&name)), "{names}");
    daemon.stop().await;
}

/// Without this, hundreds of computing sandboxes would slow down the daemon, and an operator who has to look at the host.
#[tokio::test]
async fn all_sandboxes_together_weigh_a_quarter_of_what_others_do() {
    let story = "all_sandboxes_together_weigh_a_quarter_of_what_others_do";
    if is_local_only(story, "an engine weighs its containers itself") {
        return;
    }
    if !is_root() {
        return skipped(story, "only root's cgroups are known to be there");
    }
    let daemon = Daemon::start().await;
    // The host has one of these files, depending on the cgroup version. The numbers are the kernel's defaults.
    let files = [("cpu.shares", 1024), ("cpu.weight", 100)];
    let read = |(name, usual): (&str, u64)| {
        let texts = cgroups_of(&daemon.data_dir()).into_iter().map(|directory| directory.join(name));
        let weights = texts.filter_map(|path| std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok());
        weights.map(|weight| weight * 100 / usual).collect::<Vec<_>>()
    };
    assert_eq!(files.map(read).concat(), [25], "{:?}", cgroups_of(&daemon.data_dir()));
    daemon.stop().await;
}

#[tokio::test]
async fn sessions_do_not_see_each_other() {
    let daemon = Daemon::start().await;
    let (one, other) = (daemon.session().await, daemon.session().await);
    one.sh("echo secret > /workspace/mine; echo secret > /tmp/mine; sleep 1000 & echo ok").await;
    one.sh("(python3 -m http.server 18080 --bind 127.0.0.1 >/dev/null 2>&1 &); echo ok").await;
    assert_eq!(other.sh("ls /workspace /tmp | grep mine; pgrep sleep; true").await, "");
    let reply = other.exec("exec 3<>/dev/tcp/127.0.0.1/18080").await;
    assert_ne!(reply["exit_code"], 0, "{reply}");
    let ids = |session: Session| async move { session.sh("cat /proc/self/uid_map").await };
    if is_root() && !lacks("a range of user ids", Ability::OwnUserIds) {
        assert_ne!(ids(one).await, ids(other).await, "two sandboxes have the same user ids");
    }
    daemon.stop().await;
}
