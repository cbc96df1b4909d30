//! Tests of pausing and waking over the fake runtime, on a clock that stands still unless a test moves it.

use std::sync::Arc;
use std::time::Duration;

use shared_protocol::api::SessionStatus;

use crate::config::SessionsConfig;
use crate::metrics::Metrics;
use crate::session::fake::FakeRuntime;
use crate::session::{Clock, Registry, RegistryParts, SessionError, SessionHandle};
use crate::store::Store;
use crate::workspace::WorkspaceDirs;

struct World {
    registry: Registry,
    runtime: Arc<FakeRuntime>,
    _folder: tempfile::TempDir,
}

fn world() -> World {
    let folder = tempfile::tempdir().unwrap();
    let runtime = FakeRuntime::new();
    let parts = RegistryParts {
        network: crate::network::Network::for_test(),
        runtimes: vec![runtime.clone()],
        config: SessionsConfig::default(),
        snapshots: crate::config::SnapshotsConfig::default(),
        workspaces: WorkspaceDirs::open(folder.path().join("workspaces")).unwrap(),
        metrics: Metrics::new(),
        store: Store::in_memory(),
        clock: Clock::start(),
    };
    World { registry: Registry::new(parts).unwrap(), runtime, _folder: folder }
}

impl World {
    async fn create(&self, json: &str) -> SessionHandle {
        let view = self.registry.create(serde_json::from_str(json).unwrap(), None).await.unwrap();
        self.registry.get(&view.id).unwrap()
    }

    fn frozen(&self) -> usize {
        self.runtime.state().paused.len()
    }
}

async fn advance(seconds: f64) {
    tokio::time::advance(Duration::from_secs_f64(seconds)).await;
    // Every task runs as far as it can at this moment.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

fn status(session: &SessionHandle) -> SessionStatus {
    session.view().status
}

#[tokio::test(start_paused = true)]
async fn a_paused_session_wakes_for_the_next_request() {
    let w = world();
    let session = w.create("{}").await;
    let activity = session.begin().await.unwrap();
    assert!(matches!(session.pause().await, Err(SessionError::Conflict(_))), "not under a request");
    assert_eq!((status(&session), w.runtime.state().pauses), (SessionStatus::Running, 0));
    drop(activity);
    assert_eq!(session.pause().await.unwrap().status, SessionStatus::Paused);
    assert_eq!(session.pause().await.unwrap().status, SessionStatus::Paused, "twice is once");
    assert_eq!((w.frozen(), w.runtime.state().pauses), (1, 1));
    let activity = session.begin().await.unwrap();
    assert_eq!((status(&session), w.frozen()), (SessionStatus::Running, 0));
    drop(activity);
    session.pause().await.unwrap();
    assert_eq!(session.resume().await.unwrap().status, SessionStatus::Running);
    assert_eq!(session.resume().await.unwrap().status, SessionStatus::Running);
    assert_eq!(w.frozen(), 0);
}

#[tokio::test(start_paused = true)]
async fn looking_does_not_wake_and_a_sleeper_is_counted_as_one() {
    let w = world();
    let session = w.create("{}").await;
    session.pause().await.unwrap();
    w.registry.stats(session.id()).await.unwrap();
    assert_eq!(w.registry.list(&Default::default()).len(), 1);
    assert_eq!(w.registry.counts()[&SessionStatus::Paused], 1);
    assert_eq!(w.frozen(), 1);
    w.registry.destroy(session.id()).await.unwrap();
    assert_eq!((w.frozen(), w.runtime.alive()), (0, 0));
    assert!(matches!(session.pause().await, Err(SessionError::NotFound(_))));
    assert!(matches!(session.resume().await, Err(SessionError::NotFound(_))));
}

#[tokio::test(start_paused = true)]
async fn an_idle_session_is_paused_to_the_second_and_again_after_each_use() {
    let w = world();
    let session = w.create(r#"{"idle_pause_seconds":5}"#).await;
    advance(4.999).await;
    assert_eq!(status(&session), SessionStatus::Running);
    advance(0.001).await;
    assert_eq!((status(&session), w.frozen()), (SessionStatus::Paused, 1));
    let activity = session.begin().await.unwrap();
    advance(60.0).await;
    assert_eq!(status(&session), SessionStatus::Running, "in use");
    drop(activity);
    advance(4.999).await;
    assert_eq!(status(&session), SessionStatus::Running);
    advance(0.001).await;
    assert_eq!((status(&session), w.runtime.state().pauses), (SessionStatus::Paused, 2));
}

#[tokio::test(start_paused = true)]
async fn a_paused_session_expires_when_it_would_have_anyway() {
    let w = world();
    let asleep = w.create(r#"{"idle_pause_seconds":5,"ttl_seconds":20}"#).await;
    advance(19.999).await;
    assert_eq!(status(&asleep), SessionStatus::Paused);
    advance(0.001).await;
    assert_eq!((status(&asleep), w.runtime.alive()), (SessionStatus::Expired, 0));
    let asked = w.create(r#"{"ttl_seconds":20}"#).await;
    advance(10.0).await;
    asked.pause().await.unwrap();
    advance(19.999).await;
    assert_eq!(status(&asked), SessionStatus::Paused, "asking for it is use");
    advance(0.001).await;
    assert_eq!(status(&asked), SessionStatus::Expired);
}

#[tokio::test(start_paused = true)]
async fn a_detached_command_is_use_until_it_ends_or_is_frozen() {
    let w = world();
    let session = w.create(r#"{"idle_pause_seconds":5,"ttl_seconds":20}"#).await;
    let running = session.begin().await.unwrap().detach().unwrap();
    advance(100.0).await;
    assert_eq!(status(&session), SessionStatus::Running, "neither paused nor expired");
    drop(running);
    advance(4.999).await;
    assert_eq!(status(&session), SessionStatus::Running, "its time began at the end");
    advance(0.001).await;
    assert_eq!(status(&session), SessionStatus::Paused);
    let frozen = session.begin().await.unwrap().detach().unwrap();
    session.pause().await.expect("it does not stand in the way of a pause");
    advance(20.0).await;
    assert_eq!(status(&session), SessionStatus::Expired);
    drop(frozen);
}

#[tokio::test(start_paused = true)]
async fn detached_commands_beyond_the_bound_do_not_count() {
    let w = world();
    let session = w.create("{}").await;
    let activity = session.begin().await.unwrap();
    let followed: Vec<_> = std::iter::from_fn(|| activity.detach()).collect();
    assert_eq!(followed.len(), 64);
    drop(followed);
    assert!(activity.detach().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_host_that_cannot_pause_says_so_and_idle_sessions_go_on() {
    let w = world();
    w.runtime.state().faults.pause_unsupported = true;
    let session = w.create(r#"{"idle_pause_seconds":5}"#).await;
    assert!(matches!(session.pause().await, Err(SessionError::InvalidRequest(_))));
    assert_eq!(status(&session), SessionStatus::Running);
    advance(5.0).await;
    assert_eq!((status(&session), w.runtime.state().pauses), (SessionStatus::Running, 2));
    advance(1790.0).await;
    assert_eq!(w.runtime.state().pauses, 2, "it is not tried again");
    advance(10.0).await;
    assert_eq!(status(&session), SessionStatus::Expired);
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_fails_or_hangs_leaves_a_session_that_runs() {
    let w = world();
    let session = w.create("{}").await;
    w.runtime.state().faults.pause_fails = 1;
    assert!(matches!(session.pause().await, Err(SessionError::Internal(_))));
    assert_eq!(status(&session), SessionStatus::Running);
    w.runtime.state().faults.pause_hangs = 1;
    assert!(matches!(session.pause().await, Err(SessionError::Internal(_))));
    assert_eq!((status(&session), w.frozen()), (SessionStatus::Running, 0), "half of it was frozen");
    drop(session.begin().await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_destroy_waits_for_no_pause() {
    let w = world();
    let session = w.create("{}").await;
    w.runtime.state().faults.pause_hangs = 1;
    let started = tokio::time::Instant::now();
    let (paused, destroyed) = tokio::join!(session.pause(), session.destroy());
    destroyed.unwrap();
    assert!(matches!(paused, Err(SessionError::NotFound(_))));
    assert_eq!(started.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_session_that_cannot_be_woken_is_reported_and_can_be_destroyed() {
    let w = world();
    let session = w.create("{}").await;
    session.pause().await.unwrap();
    w.runtime.state().faults.resume_fails = 1;
    assert!(matches!(session.begin().await, Err(SessionError::Lost { .. })));
    w.registry.destroy(session.id()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_that_ends_in_its_sleep_has_crashed() {
    let w = world();
    let session = w.create("{}").await;
    session.pause().await.unwrap();
    w.runtime.crash(session.id(), "killed");
    advance(0.0).await;
    assert_eq!(status(&session), SessionStatus::Crashed);
    assert!(matches!(session.pause().await, Err(SessionError::Lost { .. })));
}
