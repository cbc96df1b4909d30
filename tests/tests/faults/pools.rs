//! The daemon dies at each step of a claim and of a refill. The next daemon gives no sandbox to two sessions, and leaves
//! none behind.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use e2e::daemon::{Daemon, Leftovers, Session, is_local_only};
use e2e::{LONG_DEADLINE, is_soak, wait_until};
use hyper::Method;
use serde_json::json;

use crate::{AGREE_DEADLINE, reachable, rows};

const SIZE: u64 = 2;
const TIMES: u64 = 1;
const SOAK_TIMES: u64 = 20;

/// Claims and destroys until the daemon dies. Returns the acknowledged sessions with their owners.
async fn use_until_dead(daemon: &mut Daemon) -> BTreeMap<String, usize> {
    let api = daemon.api().clone();
    let using = tokio::spawn(async move {
        let mut acknowledged = BTreeMap::new();
        for n in 0.. {
            let mut request = json!({ "env": { "N": n.to_string() } });
            if n % 2 == 1 {
                request["workspace_id"] = json!(format!("w{n}"));
            }
            let Ok(answer) = api.try_send(Method::POST, "/v1/sessions", request.to_string()).await else { break };
            let id = answer.ok()["id"].as_str().expect("an id").to_owned();
            assert_eq!(acknowledged.insert(id, n), None, "it was given twice");
            let resized = json!({ "size": 1 + n % 2 }).to_string();
            if api.try_send(Method::PUT, "/v1/pools/base", resized).await.is_err() {
                break;
            }
        }
        acknowledged
    });
    daemon.ended().await;
    using.await.expect("a client does not fail")
}

async fn ids(daemon: &Daemon, query: &str) -> BTreeSet<String> {
    let list = daemon.get(&format!("/v1/sessions{query}")).await.ok();
    list.as_array().expect("a list").iter().map(|view| view["id"].as_str().expect("an id").to_owned()).collect()
}

/// Waits until the listed sessions and pooled sandboxes are those that exist on the host, and returns both.
async fn agreed(daemon: &Daemon) -> (BTreeSet<String>, BTreeSet<String>) {
    let start = Instant::now();
    wait_until("database and host to agree", LONG_DEADLINE, async || {
        let pools = daemon.get("/v1/pools").await.ok();
        let (sessions, pooled) = (ids(daemon, "?status=running").await, ids(daemon, "?status=pool_idle").await);
        let all: BTreeSet<String> = sessions.union(&pooled).cloned().collect();
        let is_full = pools[0]["idle"] == SIZE && pools[0]["starting"] == 0;
        let is_disjoint = sessions.is_disjoint(&pooled);
        let sandboxes = Leftovers::sandboxes(&daemon.data_dir());
        let processes = Leftovers::first_processes(&daemon.data_dir());
        let rows = rows(daemon);
        let is_agreed = is_full && is_disjoint && all == rows && all == sandboxes && all.len() == processes;
        assert!(
            is_agreed || start.elapsed() < AGREE_DEADLINE,
            "not within {AGREE_DEADLINE:?}: {pools} {sessions:?} {pooled:?} {rows:?} {sandboxes:?} {processes}"
        );
        is_agreed.then_some((sessions, pooled))
    })
    .await
}

#[tokio::test]
async fn a_death_during_a_claim_or_a_refill_gives_no_sandbox_twice_and_leaves_none() {
    let _alone = crate::alone().await;
    let names = reachable().filter(|name| name.starts_with("claim.") || name.starts_with("pool."));
    let names: Vec<&String> = names.collect();
    assert_eq!(names.len(), 9, "{names:?}");
    let with_workspace = |name: &str| matches!(name, "claim.intended" | "claim.workspace");
    let turns = 0..if is_soak() { SOAK_TIMES } else { TIMES };
    for (turn, name) in turns.flat_map(|turn| names.iter().map(move |name| (turn, *name))) {
        if with_workspace(name) && is_local_only(name, "a container has its mounts from its start") {
            continue;
        }
        // The daemon does not die while the first pooled sandboxes are started, before any request, and dies a little later
        // each time.
        let nth = turn % 5 + if name.starts_with("claim.") || name == "pool.discarding" { 1 } else { SIZE + 1 };
        let builder = Daemon::builder().config(&format!("[pool]\nbase = {SIZE}\n"));
        let mut daemon = builder.failpoints(&format!("{name}=abort@{nth}")).start().await;
        let acknowledged = use_until_dead(&mut daemon).await;
        daemon.rebuild(|builder| builder.failpoints(""));
        println!("{name} at {nth}: {} acknowledged", acknowledged.len());
        let daemon = daemon.start_again();
        let (sessions, pooled) = agreed(&daemon).await;
        for (id, n) in &acknowledged {
            assert!(sessions.contains(id), "after {name}: {id} was acknowledged and is lost");
            let session = Session { api: daemon.api().clone(), id: id.clone() };
            assert_eq!(session.sh("echo $N; pwd").await, format!("{n}\n/workspace\n"), "after {name}");
        }
        // Each waiting sandbox works.
        for _ in 0..SIZE {
            let next = daemon.create(json!({ "env": { "N": "new" } })).await;
            assert!(pooled.contains(&next.id), "after {name}: no pooled sandbox was given");
            assert_eq!(
                next.view().await["acquire_source"],
                "pool",
                "after {name}: a pooled sandbox was not as it should be"
            );
            assert_eq!(next.sh("echo $N").await, "new\n", "after {name}");
        }
        for id in ids(&daemon, "").await {
            Session { api: daemon.api().clone(), id }.destroy().await;
        }
        daemon.stop().await;
    }
}
