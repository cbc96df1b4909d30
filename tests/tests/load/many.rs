//! Many sessions, and many requests, at the same time.

use e2e::daemon::{Daemon, is_local_only};
use e2e::procfs;
use serde_json::json;

const SESSIONS: usize = 1000;
const BUSY_SESSIONS: usize = 200;
const EXECS_EACH: usize = 50;

/// The limit of SPECIFICATION.md for the daemon.
const MAX_DAEMON_KIB: u64 = 150 << 10;

/// The limit of SPECIFICATION.md for runner and bash together, with shared memory counted once.
const MAX_IDLE_KIB: u64 = 8 << 10;

/// The number of sandboxes that are created at the same time.
const AT_ONCE: usize = 8;

#[tokio::test]
async fn a_thousand_sessions_live_at_once_and_answer() {
    if is_local_only(
        "a_thousand_sessions_live_at_once_and_answer",
        "an engine has no room for a thousand containers here",
    ) {
        return;
    }
    let _alone = crate::alone().await;
    let daemon = Daemon::start().await;
    let gate = std::sync::Arc::new(tokio::sync::Semaphore::new(AT_ONCE));
    let mut creating = tokio::task::JoinSet::new();
    for n in 0..SESSIONS {
        let (api, gate) = (daemon.api().clone(), gate.clone());
        creating.spawn(async move {
            let _slot = gate.acquire_owned().await.expect("the gate stays open");
            let session = api.create(json!({ "labels": { "n": n.to_string() }, "resources": { "memory_mb": 64, "disk_mb": 16, "pids": 32 } })).await;
            session.sh(&format!("export MINE={n}")).await;
            (n, session)
        });
    }
    let sessions = creating.join_all().await;
    assert_eq!(daemon.get("/v1/sessions?status=running").await.ok().as_array().map(Vec::len), Some(SESSIONS));
    // After all are created, every tenth session is checked for its own state.
    for (n, session) in sessions.iter().filter(|(n, _)| n % 10 == 0) {
        assert_eq!(session.sh("echo $MINE").await, format!("{n}\n"));
    }

    let mut busy = tokio::task::JoinSet::new();
    for (n, session) in sessions.iter().take(BUSY_SESSIONS) {
        let (n, session) = (*n, session.clone());
        busy.spawn(async move {
            for turn in 0..EXECS_EACH {
                let expected = format!("{n} {turn}\n");
                assert_eq!(session.sh(&format!("echo $MINE {turn}")).await, expected);
            }
        });
    }
    busy.join_all().await;
    let idle = pss_kib(&daemon, &sessions[SESSIONS - 1].1.id);
    println!("an idle session: {idle} KiB");
    assert!(idle < MAX_IDLE_KIB, "{idle} KiB");
    let used = procfs::status_kib(daemon.pid(), "VmRSS");
    println!("{SESSIONS} sessions: the daemon uses {used} KiB");
    assert!(used < MAX_DAEMON_KIB, "{used} KiB");
    daemon.stop().await;
}

/// The proportional memory of all processes of a session.
fn pss_kib(daemon: &Daemon, id: &str) -> u64 {
    let record = std::fs::read(daemon.data_dir().join("sandboxes").join(id).join("record.json")).expect("its record");
    let record: serde_json::Value = serde_json::from_slice(&record).expect("a record");
    let first = i32::try_from(record["process"]["pid"].as_i64().expect("a pid")).expect("a pid");
    let pids = std::iter::once(first).chain(procfs::descendants(first).into_iter().map(|process| process.pid));
    let pss = |pid: i32| {
        let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).expect("only root can look");
        let line = text.lines().find_map(|line| line.strip_prefix("Pss:")).expect("a line of that name");
        line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number")
    };
    pids.map(pss).sum()
}
