//! Faults: the daemon dies at every step, again and again, and the host fails. This is a separate program whose stories run
//! one after another, because some of them take the whole machine. `scripts/test --soak` makes them long.

mod database;
mod deaths;
mod engine;
mod host;
mod images;
mod kills;
mod launcher;
mod pools;
mod slow_disk;
mod snapshots;
mod workspaces;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use e2e::daemon::{Daemon, Leftovers, engine, failpoints};
use e2e::{LONG_DEADLINE, wait_until};
use tokio::sync::{Mutex, MutexGuard};

/// The longest time for the database, the runtime and the host to agree after a start.
const AGREE_DEADLINE: Duration = Duration::from_secs(10);

static ALONE: Mutex<()> = Mutex::const_new(());

/// A lock that the running story holds, so that the others wait.
async fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().await
}

/// The sessions that have not ended according to the database. Only the database shows an intent that nobody carried out or
/// undid.
fn rows(daemon: &Daemon) -> BTreeSet<String> {
    let database = rusqlite::Connection::open(daemon.data_dir().join("cove.db")).expect("a database");
    let sql = "SELECT id FROM sessions WHERE ended_at IS NULL";
    let mut statement = database.prepare(sql).expect("a table of sessions");
    let ids = statement.query_map((), |row| row.get(0)).expect("rows");
    ids.collect::<Result<_, _>>().expect("ids")
}

/// Waits until the daemon's list, the stored rows and the host agree: each session has a directory, a cgroup or a container,
/// and a first process. Returns the ids.
async fn agreed(daemon: &Daemon) -> BTreeSet<String> {
    let start = Instant::now();
    wait_until("database and host to agree", LONG_DEADLINE, async || {
        let listed =
            daemon.get("/v1/sessions?status=creating&status=running&status=paused&status=destroying").await.ok();
        let listed = listed.as_array().expect("a list");
        let ids: BTreeSet<String> =
            listed.iter().map(|session| session["id"].as_str().expect("an id").to_owned()).collect();
        let all_run = listed.iter().all(|session| session["status"] == "running");
        let sandboxes = Leftovers::sandboxes(&daemon.data_dir());
        let processes = Leftovers::first_processes(&daemon.data_dir());
        let rows = rows(daemon);
        let is_agreed = all_run && ids == rows && ids == sandboxes && ids.len() == processes;
        assert!(
            is_agreed || start.elapsed() < AGREE_DEADLINE,
            "not within {AGREE_DEADLINE:?}: {listed:?} {rows:?} {sandboxes:?} {processes}"
        );
        is_agreed.then_some(ids)
    })
    .await
}

/// The failpoints that daemons of this run can reach, without those of the other runtime.
fn reachable() -> impl Iterator<Item = &'static String> {
    let others = if engine().is_some() { "local." } else { "docker." };
    failpoints().iter().filter(move |name| !name.starts_with(others))
}
