//! Many creates at the same time.

use std::collections::BTreeSet;

use e2e::daemon::{Daemon, Session, engine};
use hyper::Method;
use serde_json::json;

const CREATES: usize = 500;
/// The number of containers: each is several processes of the host, and an engine makes a few per second.
const CONTAINERS: usize = 100;

#[tokio::test]
async fn hundreds_of_creates_at_once_are_all_right_or_clearly_refused() {
    let _alone = crate::alone().await;
    let config = "[sessions]\ndefault_memory_mb = 64\ndefault_disk_mb = 16\ndefault_pids = 32\n[pool]\nbase = 10\n";
    let daemon = Daemon::builder().config(config).start().await;
    let creates = if engine().is_some() { CONTAINERS } else { CREATES };
    let mut creating = tokio::task::JoinSet::new();
    for n in 0..creates {
        let api = daemon.api().patient();
        creating.spawn(async move {
            let request = json!({ "env": { "N": n.to_string() } }).to_string();
            (n, api.send(Method::POST, "/v1/sessions", request).await)
        });
    }
    let (mut sessions, mut seen, mut pooled) = (Vec::new(), BTreeSet::new(), 0);
    for (n, answer) in creating.join_all().await {
        match answer.status {
            201 => {
                let view = answer.ok();
                let id = view["id"].as_str().expect("an id").to_owned();
                assert!(seen.insert(id.clone()), "{id} was given twice");
                pooled += usize::from(view["acquire_source"] == "pool");
                sessions.push((n, Session { api: daemon.api().clone(), id }));
            }
            429 => assert_eq!(answer.refused(), shared_protocol::ErrorCode::LimitReached),
            other => panic!("{other}: {}", answer.text()),
        }
    }
    println!("{} of {creates} creates at once, {pooled} from the pool", sessions.len());
    for (n, session) in &sessions {
        assert_eq!(session.sh("echo $N").await, format!("{n}\n"), "it has somebody else's variables");
    }
    daemon.stop().await;
}
