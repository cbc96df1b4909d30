//! What programs in a sandbox find out about memory and processors is what their session may use, so that they size themselves right.

use e2e::daemon::{Daemon, Session, is_local_only};
use e2e::{DEADLINE, LONG_DEADLINE, is_root, skipped, wait_until};
use serde_json::json;

const MEBIBYTE: u64 = 1 << 20;

fn can_limit(story: &str) -> bool {
    if is_local_only(story, "only the local runtime shows a session its own values in /proc") {
        return false;
    }
    if !is_root() {
        skipped(story, "an ordinary user has no cgroups here");
    }
    is_root()
}

/// A number of `/proc/meminfo` in bytes.
async fn meminfo(session: &Session, name: &str) -> u64 {
    let text = session.sh(&format!("awk '/^{name}:/ {{ print $2 }}' /proc/meminfo")).await;
    text.trim().parse::<u64>().unwrap_or_else(|_| panic!("{name} is {text:?}")) << 10
}

async fn load(session: &Session) -> f64 {
    session.sh("cut -d ' ' -f 1 /proc/loadavg").await.trim().parse().expect("a number")
}

/// Each prints the number of processors or the mebibytes of memory that a real program finds.
const PROCESSORS: [(&str, &str); 7] = [
    ("nproc", "nproc"),
    ("getconf", "getconf _NPROCESSORS_ONLN"),
    ("python3", "python3 -c 'import os; print(os.cpu_count())'"),
    ("node", "node -p 'os.cpus().length'"),
    ("grep", "grep -c ^processor /proc/cpuinfo"),
    ("grep", "grep -c '^cpu[0-9]' /proc/stat"),
    ("top", "top -b -n 1 -1 2>/dev/null | grep -c '^%Cpu'"),
];
const MEMORY: [(&str, &str); 4] = [
    ("free", "free -m | awk '/^Mem:/ { print $2 }'"),
    ("python3", "python3 -c 'print(int(open(\"/proc/meminfo\").read().split()[1]) >> 10)'"),
    ("node", "node -p 'os.totalmem() / 1048576'"),
    ("top", "top -b -n 1 | awk '/^MiB Mem/ { print int($4) }'"),
];

#[tokio::test]
async fn programs_see_the_processors_and_the_memory_that_the_session_has() {
    if !can_limit("programs_see_the_processors_and_the_memory_that_the_session_has") {
        return;
    }
    let daemon = Daemon::start().await;
    let session = daemon.create(json!({ "resources": { "cpus": 0.5, "memory_mb": 640 } })).await;
    for (wanted, programs) in [("1", &PROCESSORS[..]), ("640", &MEMORY[..])] {
        for (program, command) in programs {
            if session.sh(&format!("command -v {program} || true")).await.is_empty() {
                skipped(command, "the sandbox has no such program");
                continue;
            }
            assert_eq!(session.sh(command).await.trim(), wanted, "{command}");
        }
    }
    assert_eq!(session.sh("cat /sys/devices/system/cpu/{online,possible,present}").await, "0\n0\n0\n");
    assert_eq!(session.sh("wc -l < /proc/swaps").await.trim(), "1");
    let own = daemon.create(json!({ "env": { "OMP_NUM_THREADS": "7" } })).await;
    assert_eq!(own.sh("echo $OMP_NUM_THREADS").await, "7\n", "a session's own variable counts");
    daemon.stop().await;
}

#[tokio::test]
async fn what_programs_use_is_no_longer_available_and_comes_back() {
    if !can_limit("what_programs_use_is_no_longer_available_and_comes_back") {
        return;
    }
    let daemon = Daemon::start().await;
    let session = daemon.create(json!({ "resources": { "memory_mb": 512 } })).await;
    let before = meminfo(&session, "MemAvailable").await;
    assert!(before > 400 * MEBIBYTE && before <= 512 * MEBIBYTE, "{before}");
    // `tail` keeps the last line, which has no end.
    session.sh("{ head -c 200M /dev/zero; sleep 1000; } | tail -n 1 > /dev/null 2>&1 & echo $!").await;
    let fallen = async || (meminfo(&session, "MemAvailable").await < before - 190 * MEBIBYTE).then_some(());
    wait_until("the memory is used", DEADLINE, fallen).await;
    session.sh("kill %1; wait; head -c 100M /dev/zero > /dev/shm/file").await;
    let shared = async || {
        let (available, shared) = (meminfo(&session, "MemAvailable").await, meminfo(&session, "Shmem").await);
        (shared >= 100 * MEBIBYTE && available < before - 90 * MEBIBYTE && available > before - 190 * MEBIBYTE)
            .then_some(())
    };
    wait_until("the file in memory is counted", DEADLINE, shared).await;
    session.sh("rm /dev/shm/file").await;
    let risen = async || (meminfo(&session, "MemAvailable").await > before - 50 * MEBIBYTE).then_some(());
    wait_until("the memory is free again", DEADLINE, risen).await;
    daemon.stop().await;
}

#[tokio::test]
async fn the_load_of_one_session_is_not_seen_in_another() {
    if !can_limit("the_load_of_one_session_is_not_seen_in_another") {
        return;
    }
    let daemon = Daemon::start().await;
    let (busy, idle) = (daemon.session().await, daemon.session().await);
    busy.sh("(while :; do :; done) > /dev/null 2>&1 &").await;
    wait_until("the load rises", LONG_DEADLINE, async || (load(&busy).await >= 0.03).then_some(())).await;
    assert!(load(&idle).await < load(&busy).await);
    let fields = busy.sh("cat /proc/loadavg").await;
    let running: u32 = fields.split([' ', '/']).nth(3).and_then(|field| field.parse().ok()).expect("a number");
    assert!(running >= 1, "{fields}");
    // The processor time of the session, which `top` shows.
    let used = busy.sh("awk '/^cpu / { print ($2 + $4 > 0) }' /proc/stat").await;
    assert_eq!(used.trim(), "1");
    daemon.stop().await;
}

#[tokio::test]
async fn programs_can_read_the_files_and_do_nothing_else_to_them() {
    if !can_limit("programs_can_read_the_files_and_do_nothing_else_to_them") {
        return;
    }
    let daemon = Daemon::builder().config("[sessions]\nallowed_profiles = [\"debug\"]\n").start().await;
    let session = daemon.create(json!({ "resources": { "memory_mb": 512 }, "profiles": ["debug"] })).await;
    for file in ["/proc/meminfo", "/proc/stat", "/proc/loadavg", "/proc/cpuinfo", "/proc/swaps"] {
        for attempt in ["echo x >", "echo x >>", "chmod 666", "umount", "umount -l", "rm -f", "truncate -s 0"] {
            let tried = session.exec(&format!("{attempt} {file} 2> /dev/null")).await;
            assert_ne!(tried["exit_code"], 0, "{attempt} {file}");
        }
    }
    for attempt in ["test -e /dev/fuse", "ls /proc/1/fd", "echo 0 > /sys/devices/system/cpu/online"] {
        assert_ne!(session.exec(&format!("{attempt} 2> /dev/null")).await["exit_code"], 0, "{attempt}");
    }
    assert_eq!(meminfo(&session, "MemTotal").await, 512 * MEBIBYTE);
    // A reader of single bytes reads one text from its beginning to its end.
    let slow = session.sh("dd if=/proc/stat bs=1 2> /dev/null | tail -n 1").await;
    assert_eq!(slow, "softirq 0\n");
    assert_eq!(session.get("/proc/meminfo").await.text().lines().count(), 26, "the file routes read it too");
    daemon.stop().await;
}

/// The runner serves these files, and must not wait for itself when a request leads it to one.
#[tokio::test]
async fn a_path_to_such_a_file_is_no_trap_for_the_runner() {
    let daemon = Daemon::start().await;
    for file in ["meminfo", "stat", "loadavg"] {
        let session = daemon.create(json!({})).await;
        let run = async |request| session.api.post(&session.path("/run"), request).await.ok()["exit_code"].clone();
        assert_eq!(run(json!({ "argv": ["true"], "cwd": format!("/proc/{file}") })).await, 126, "{file}");
        assert_ne!(run(json!({ "argv": [file], "env": { "PATH": "/proc" } })).await, 0, "{file}");
        assert_ne!(run(json!({ "argv": [format!("/proc/{file}")] })).await, 0, "{file}");
        assert_eq!(session.sh("echo alive").await, "alive\n", "{file}");
    }
    daemon.stop().await;
}

/// Readers that never stop, in the background.
const READERS: &str =
    "for n in $(seq 20); do (while :; do cat /proc/meminfo /proc/stat /proc/loadavg; done) & done > /dev/null 2>&1";

#[tokio::test]
async fn many_readers_at_once_all_get_a_whole_text() {
    if !can_limit("many_readers_at_once_all_get_a_whole_text") {
        return;
    }
    let daemon = Daemon::start().await;
    let session = daemon.create(json!({ "resources": { "memory_mb": 512 } })).await;
    // Without `( … )` the shell would report the end of each job.
    let script = "(for n in $(seq 200); do cat /proc/meminfo > /tmp/read-$n & done; wait); \
                  grep -l 'MemTotal:  *524288 kB' /tmp/read-* | wc -l; cat /tmp/read-* | wc -l";
    assert_eq!(session.sh(script).await, "200\n5200\n");
    daemon.stop().await;
}

#[tokio::test]
async fn a_session_whose_programs_read_without_end_can_be_paused_and_destroyed() {
    if !can_limit("a_session_whose_programs_read_without_end_can_be_paused_and_destroyed") {
        return;
    }
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    session.sh(READERS).await;
    for _ in 0..10 {
        assert_eq!(session.change("pause").await.ok()["status"], "paused");
        assert_eq!(session.change("resume").await.ok()["status"], "running");
    }
    session.change("pause").await.ok();
    session.destroy().await;
    let session = daemon.session().await;
    session.sh(READERS).await;
    session.destroy().await;
    daemon.stop().await;
}

#[tokio::test]
async fn the_files_are_read_while_there_is_no_daemon_and_by_a_claimed_sandbox() {
    if !can_limit("the_files_are_read_while_there_is_no_daemon_and_by_a_claimed_sandbox") {
        return;
    }
    let config = "[sessions]\ndefault_memory_mb = 512\n[pool]\nbase = 1\n[workspaces]\nstorage = \"directory\"\n";
    let mut daemon = Daemon::builder().keeps_sessions().config(config).start().await;
    let pooled = async || (daemon.get("/v1/pools").await.ok()[0]["idle"] == 1).then_some(());
    wait_until("a sandbox waits in the pool", DEADLINE, pooled).await;
    let session = daemon.create(json!({ "workspace_id": "w" })).await;
    let reading = "(n=0; while :; do n=$((n+1)); read _ total _ < /proc/meminfo; echo $n $total > count; done) > /dev/null 2>&1 &";
    assert_eq!(session.view().await["acquire_source"], "pool");
    session.sh(reading).await;
    let file = daemon.data_dir().join("workspaces/w/count");
    let count = || {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        let (count, total) = text.trim().split_once(' ')?;
        Some((count.parse::<u64>().ok()?, total.to_owned()))
    };
    wait_until("the file is read", DEADLINE, async || count()).await;
    daemon.kill().await;
    let (before, _) = wait_until("it is read without a daemon", DEADLINE, async || count()).await;
    let later = async || count().filter(|(now, _)| *now > before + 100);
    let (_, total) = wait_until("it goes on", DEADLINE, later).await;
    assert_eq!(total, "524288");
    let daemon = daemon.start_again();
    let again = Session { id: session.id.clone(), api: daemon.api().clone() };
    assert_eq!(meminfo(&again, "MemTotal").await, 512 * MEBIBYTE);
    again.destroy().await;
    daemon.stop().await;
}
