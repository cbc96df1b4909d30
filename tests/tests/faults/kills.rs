//! The daemon is killed again and again, while every session streams, and while sessions are created and destroyed.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use e2e::daemon::{Api, Daemon, Session};
use e2e::{LONG_DEADLINE, is_soak, wait_until};
use futures_util::StreamExt as _;
use hyper::Method;
use serde_json::json;
use tokio::sync::watch;

use crate::agreed;

/// The limit of SPECIFICATION.md from the start of the daemon to its first answer.
const ADOPT_DEADLINE: Duration = Duration::from_secs(5);
const LINES: u64 = 3000;
const LINE_BYTES: u64 = 10;
const AT_ONCE: usize = 8;

/// Follows one command across all deaths of the daemon, and compares every byte.
async fn follow(id: String, mut current: watch::Receiver<Option<Api>>, progress: Arc<AtomicU64>) {
    let (mut received, mut is_begun) = (0u64, false);
    let cmd =
        format!("perl -e '$|=1; for (1..{LINES}) {{ printf \"%09d\\n\", $_; select undef, undef, undef, 0.005 }}'");
    loop {
        let api = current.wait_for(Option::is_some).await.expect("the story goes on").clone().expect("it is some");
        let base = format!("/v1/sessions/{id}");
        let opened = if is_begun {
            api.open(Method::GET, &format!("{base}/execs/load?from={received}&follow=1"), "").await
        } else {
            let request = json!({ "cmd": cmd, "exec_id": "load", "timeout_ms": 600_000 });
            api.open(Method::POST, &format!("{base}/exec/stream"), request.to_string()).await
        };
        let Ok(response) = opened else {
            lost(&mut current, &api).await;
            continue;
        };
        assert_eq!(response.status().as_u16(), 200, "session {id} is lost at {received}");
        is_begun = true;
        let mut stream = e2e::daemon::EventStream::new(response);
        while let Ok(Some(event)) = stream.try_next().await {
            match event.name.as_str() {
                "chunk" => {
                    assert_eq!(event.data["offset"], received, "a byte is lost or doubled in {id}");
                    for byte in event.bytes() {
                        let line = format!("{:09}\n", received / LINE_BYTES + 1);
                        let place = usize::try_from(received % LINE_BYTES).expect("small");
                        assert_eq!(byte, line.as_bytes()[place], "at {received} of {id}");
                        received += 1;
                        progress.fetch_add(1, Ordering::Relaxed);
                    }
                }
                "done" => {
                    assert_eq!(
                        (event.data["exit_code"].as_i64(), received),
                        (Some(0), LINES * LINE_BYTES),
                        "{event:?}"
                    );
                    return;
                }
                "gap" | "error" => panic!("{id} at {received}: {event:?}"),
                _ => {}
            }
        }
        lost(&mut current, &api).await;
    }
}

/// Waits until another daemon has replaced this one.
async fn lost(current: &mut watch::Receiver<Option<Api>>, api: &Api) {
    let is_other = |now: &Option<Api>| now.as_ref().is_some_and(|now| now.address != api.address);
    tokio::time::timeout(LONG_DEADLINE, current.wait_for(is_other))
        .await
        .expect("the daemon comes back")
        .expect("the story goes on");
}

#[tokio::test]
async fn a_daemon_killed_again_and_again_loses_no_session_and_no_byte() {
    let _alone = crate::alone().await;
    let (kills, count) = if is_soak() { (20, 200) } else { (3, 20) };
    let mut daemon = Daemon::start().await;
    let api = daemon.api().clone();
    let small = json!({ "resources": { "memory_mb": 64, "disk_mb": 16, "pids": 32 } });
    let creates = (0..count).map(|_| api.create(small.clone()));
    let sessions: Vec<Session> = futures_util::stream::iter(creates).buffer_unordered(AT_ONCE).collect().await;
    let (publish, current) = watch::channel(Some(api));
    let progress = Arc::<AtomicU64>::default();
    let mut following = tokio::task::JoinSet::new();
    for session in &sessions {
        following.spawn(follow(session.id.clone(), current.clone(), progress.clone()));
    }
    let total = u64::try_from(count).expect("small") * LINES * LINE_BYTES;
    let mut slowest = Duration::ZERO;
    for kill in 1..=kills {
        let until = total * kill / (kills + 2);
        wait_until("output of all sessions together", LONG_DEADLINE, async || {
            (progress.load(Ordering::Relaxed) >= until || following.try_join_next().is_some_and(|end| end.is_err()))
                .then_some(())
        })
        .await;
        daemon.kill().await;
        publish.send_replace(None);
        let start = Instant::now();
        daemon = daemon.start_again();
        let listed = daemon.get("/v1/sessions?status=running").await.ok();
        let took = start.elapsed();
        assert_eq!(listed.as_array().map(Vec::len), Some(sessions.len()), "after kill {kill}");
        println!("kill {kill}: {} sessions adopted within {took:?}", sessions.len());
        slowest = slowest.max(took);
        publish.send_replace(Some(daemon.api().clone()));
    }
    while let Some(followed) = following.join_next().await {
        followed.expect("every byte came once");
    }
    assert_eq!(agreed(&daemon).await.len(), sessions.len());
    daemon.stop().await;
    // This comes last, so that a slow machine does not hide a loss.
    assert!(slowest < ADOPT_DEADLINE, "{slowest:?}");
}

/// The sessions whose create was answered.
type Acknowledged = Arc<Mutex<BTreeSet<String>>>;

/// Creates sessions, and destroys every second one, until no answer comes.
async fn make_and_end(api: Api, acknowledged: Acknowledged, done: Arc<AtomicU64>) {
    let small = json!({ "resources": { "memory_mb": 64, "disk_mb": 16, "pids": 32 } });
    for n in 0u64.. {
        let Ok(answer) = api.try_send(Method::POST, "/v1/sessions", small.to_string()).await else { return };
        assert_eq!(answer.status, 201, "{}", answer.text());
        let id = answer.json()["id"].as_str().expect("an id").to_owned();
        acknowledged.lock().expect("nobody panicked").insert(id.clone());
        done.fetch_add(1, Ordering::Relaxed);
        if n % 2 == 0 {
            acknowledged.lock().expect("nobody panicked").remove(&id);
            if api.try_send(Method::DELETE, &format!("/v1/sessions/{id}"), "").await.is_err() {
                return;
            }
        }
    }
}

/// The kill comes at any moment of a create or destroy; failpoints cover only some of them, because an engine, for example,
/// finishes a request on its own.
#[tokio::test]
async fn a_daemon_killed_while_it_makes_and_ends_sessions_loses_none_and_leaves_none() {
    let _alone = crate::alone().await;
    let kills = if is_soak() { 40 } else { 6 };
    let mut daemon = Daemon::start().await;
    for kill in 0..kills {
        let (acknowledged, done) = (Acknowledged::default(), Arc::<AtomicU64>::default());
        let mut clients = tokio::task::JoinSet::new();
        for _ in 0..AT_ONCE {
            clients.spawn(make_and_end(daemon.api().clone(), acknowledged.clone(), done.clone()));
        }
        // The kill comes at another moment each time.
        wait_until("some creates", LONG_DEADLINE, async || (done.load(Ordering::Relaxed) > kill % 10).then_some(()))
            .await;
        daemon.kill().await;
        clients.join_all().await;
        daemon = daemon.start_again();
        let there = agreed(&daemon).await;
        let acknowledged = acknowledged.lock().expect("nobody panicked").clone();
        println!("kill {}: {} acknowledged, {} there", kill + 1, acknowledged.len(), there.len());
        assert!(acknowledged.is_subset(&there), "lost after kill {kill}: {acknowledged:?} {there:?}");
        for id in there {
            let session = Session { api: daemon.api().clone(), id };
            assert_eq!(session.sh("echo well").await, "well\n");
            session.destroy().await;
        }
        assert!(agreed(&daemon).await.is_empty(), "something came late, after kill {kill}");
    }
    daemon.stop().await;
}
