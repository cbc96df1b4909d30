//! Faults: the daemon dies at every step, again and again, and the host fails it. A program of its own, whose stories run one after
//! another: some take the whole machine. `scripts/test --soak` makes them long.

mod database;
mod deaths;
mod host;
mod kills;
mod pools;

use std::collections::BTreeSet;
use std::time::Duration;

use e2e::daemon::{Daemon, Leftovers};
use e2e::wait_until;
use tokio::sync::{Mutex, MutexGuard};

/// For the database, the runtime and the host to agree after a start.
const AGREE_DEADLINE: Duration = Duration::from_secs(10);

static ALONE: Mutex<()> = Mutex::const_new(());

/// Held by the one story that runs.
async fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().await
}

/// What the daemon says runs, is what there is: directories, cgroups, and a runner each. Gives the ids.
async fn agreed(daemon: &Daemon) -> BTreeSet<String> {
    let mut last = String::new();
    wait_until(&format!("database and host to agree: {last}"), AGREE_DEADLINE, async || {
        let listed =
            daemon.get("/v1/sessions?status=creating&status=running&status=paused&status=destroying").await.ok();
        let ids: BTreeSet<String> = listed
            .as_array()
            .expect("a list")
            .iter()
            .map(|session| session["id"].as_str().expect("an id").to_owned())
            .collect();
        let all_run = listed.as_array().expect("a list").iter().all(|session| session["status"] == "running");
        let sandboxes = Leftovers::sandboxes(&daemon.data_dir());
        let runners = Leftovers::runners(&daemon.data_dir()).len();
        last = format!("{ids:?} {sandboxes:?} {runners}");
        (all_run && ids == sandboxes && ids.len() == runners).then_some(ids)
    })
    .await
}
