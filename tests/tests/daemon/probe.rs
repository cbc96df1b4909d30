//! What a sandbox cannot see and cannot do, told by a probe inside; and that the probe would tell, by sending it to places
//! where the protection is off.

use e2e::daemon::{Ability, Daemon, Session, cgroups_of, engine, is_local_only, lacks};
use e2e::{is_root, skipped};
use serde_json::{Value, json};

const EPERM: i64 = 1;
const ENOSYS: i64 = 38;

/// Sends the probe in and returns its facts.
pub async fn probe(daemon: &Daemon, session: &Session) -> Value {
    let program = std::fs::read(env!("CARGO_BIN_EXE_probe")).expect("the probe was built");
    session.put("probe", program).await.ok();
    session.sh("chmod 755 probe").await;
    let secret = daemon.data_dir().join("api-key");
    let directory = daemon.data_dir();
    let line = format!("./probe {} {} {}", daemon.address.port(), secret.display(), directory.display());
    serde_json::from_str(&session.sh(&line).await).expect("the probe prints JSON")
}

/// Where the runner of a container listens. The kernel tells its name to all of the network namespace; its directory is closed.
const RUNNER_SOCKET: &str = "/run/cove/private/host/runner.sock";

/// What the kernel calls a socket that nobody gave a name: `@` and five digits. The runner's own, to its shells.
fn is_unnamed(socket: &Value) -> bool {
    let digits = socket.as_str().and_then(|name| name.strip_prefix('@')).unwrap_or("-");
    digits.len() <= 5 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

const DANGEROUS: [&str; 6] =
    ["bpf", "perf_event_open", "keyctl", "userfaultfd", "open_by_handle_at", "process_vm_readv"];

fn is_of_init(path: &Value) -> bool {
    path.as_str().is_some_and(|path| path.starts_with("/proc/1/"))
}

/// Checks that hold only where the runtime can do so much.
const DEMANDING: [(&str, Ability); 4] = [
    ("no_new_privs", Ability::WholeStatus),
    ("no ambient capability", Ability::WholeStatus),
    ("a closed init", Ability::InitHidden),
    ("calls that do not exist told from those that are denied", Ability::ErrorNumbers),
];

/// Those that only a filter of system calls makes hold.
const FILTERED: [&str; 6] =
    ["seccomp", "no new namespaces", "no mounts", "no raw sockets", "no dangerous calls", "no tracing of init"];

/// Whether a check is left out on this runtime, which is said.
fn is_beyond(check: &str) -> bool {
    let is_lacking = DEMANDING.iter().any(|(name, ability)| *name == check && lacks(check, *ability));
    let is_unfiltered = FILTERED.contains(&check) && engine().is_some_and(|engine| !engine.has_filter());
    if is_unfiltered {
        skipped(check, "gVisor has no --oci-seccomp in its runtimeArgs");
    }
    is_lacking || is_unfiltered
}

/// A check by name, and whether these facts pass it.
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
        // CHOWN DAC_OVERRIDE FOWNER FSETID KILL SETGID SETUID SETPCAP SYS_PTRACE, in its own user namespace; none at all where it
        // is the sandbox's only user.
        (
            "a runner with few capabilities",
            ["00000000000801fb", "0000000000000000"].iter().any(|few| facts["init_status"]["CapBnd"] == *few),
        ),
        ("masked proc", !list("readable").iter().any(|path| !is_of_init(path))),
        ("a closed init", !list("readable").iter().any(is_of_init)),
        ("no new namespaces", call("unshare_user") == EPERM),
        ("no mounts", call("mount") == EPERM && call("umount") == EPERM && call("chroot") == EPERM),
        ("no tracing of init", call("ptrace_init") == EPERM),
        ("no raw sockets", ["socket_packet", "socket_vsock", "socket_raw"].iter().all(|name| call(name) != 0)),
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

#[tokio::test]
async fn a_sandbox_sees_nothing_of_the_host_and_can_do_nothing_to_it() {
    if !is_root() {
        return skipped("the probe with everything enforced", "needs root");
    }
    let daemon = Daemon::start().await;
    let resources = json!({ "cpus": 0.5, "memory_mb": 200, "pids": 50, "disk_mb": 30 });
    let session = daemon.create(json!({ "resources": resources })).await;
    let facts = probe(&daemon, &session).await;
    let mut failed = failed(&facts);
    failed.retain(|check| !is_beyond(check));
    assert!(failed.is_empty(), "{failed:?} failed: {facts:#}");
    let limits = &facts["limits"];
    if Ability::MemoryLimitSeen.is_there("the limit of memory") {
        assert_eq!(limits["memory"], 200 << 20, "{limits}");
    }
    assert_eq!(limits["pids"], 50, "{limits}");
    assert_eq!(limits["disk"], 30 << 20, "{limits}");
    assert_eq!(limits["open_files"], 16_384, "{limits}");
    daemon.stop().await;
}

/// Each protection turned off makes its checks fail, and only its own: they are what is checked.
#[tokio::test]
async fn the_probe_notices_when_a_protection_is_off() {
    if lacks("the probe's controls", Ability::ProtectionsOff) {
        return;
    }
    if !is_root() {
        return skipped("the probe's controls", "need root");
    }
    let controls: [(&str, &[&str]); 6] = [
        ("seccomp", &["seccomp", "no new namespaces", "no dangerous calls"]),
        ("network", &["loopback only"]),
        ("masks", &["masked proc"]),
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

/// On the host itself, as an ordinary user: everything that the sandbox hides is there to be seen.
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
    std::fs::copy(env!("CARGO_BIN_EXE_probe"), &program).expect("the probe was built");
    let output = std::process::Command::new("setpriv")
        .args(["--reuid", "1000", "--regid", "1000", "--clear-groups", "--"])
        .arg(&program)
        .arg(daemon.address.port().to_string())
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
        "no new namespaces",
    ];
    for check in shown {
        assert!(failed.contains(&check), "{check:?} passes on the host: {facts:#}");
    }
    session.destroy().await;
    daemon.stop().await;
}

/// Names and addresses of the host's network are in there, and some engines copy them.
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

/// Else hundreds of them that compute hold up the daemon, which their clients wait for, and whoever wants to look after the host.
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
    // One of them, after the version of cgroups: with what everybody has who asks for nothing.
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
