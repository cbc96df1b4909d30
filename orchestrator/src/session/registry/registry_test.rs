//! Tests of sessions over the fake runtime, on a clock that stands still unless a test moves it.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use shared_protocol::WorkspaceId;
use shared_protocol::api::{CreateSessionRequest, SessionStatus};
use tokio::task::JoinHandle;

use super::*;
use crate::session::fake::FakeRuntime;

struct World {
    registry: Registry,
    runtime: Arc<FakeRuntime>,
    workspaces: WorkspaceDirs,
    folder: tempfile::TempDir,
}

fn world_with(runtime: Arc<FakeRuntime>, change: impl FnOnce(&mut SessionsConfig)) -> World {
    let folder = tempfile::tempdir().unwrap();
    let mut config = SessionsConfig::default();
    change(&mut config);
    let workspaces = WorkspaceDirs::open(folder.path().join("workspaces")).unwrap();
    let parts = RegistryParts {
        network: crate::network::Network::for_test(),
        runtimes: vec![runtime.clone()],
        config,
        snapshots: crate::config::SnapshotsConfig::default(),
        workspaces: workspaces.clone(),
        metrics: Metrics::new(),
        store: Store::in_memory(),
        clock: Clock::start(),
    };
    World { registry: Registry::new(parts).unwrap(), runtime, workspaces, folder }
}

fn workspace_w() -> WorkspaceName {
    WorkspaceName { owner: KeyName::first(), id: WorkspaceId::new("w").unwrap() }
}

fn world() -> World {
    world_with(FakeRuntime::new(), |_| {})
}

fn request(json: &str) -> CreateSessionRequest {
    serde_json::from_str(json).unwrap()
}

impl World {
    async fn create(&self) -> SessionHandle {
        let view = self.registry.create(CreateSessionRequest::default(), None).await.unwrap();
        self.registry.get(&view.id).unwrap()
    }

    fn statuses(&self) -> Vec<SessionStatus> {
        let all = SessionFilter { statuses: SessionStatus::ALL.to_vec(), ..SessionFilter::default() };
        self.registry.list(&all).into_iter().map(|view| view.status).collect()
    }
}

/// Lets every task run until all of them wait, without moving the paused clock.
async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

async fn advance(seconds: f64) {
    tokio::time::advance(Duration::from_secs_f64(seconds)).await;
    settle().await;
}

fn started<T>(mut future: std::pin::Pin<&mut impl Future<Output = T>>) -> Option<T> {
    future.as_mut().now_or_never()
}

#[tokio::test(start_paused = true)]
async fn a_session_runs_is_destroyed_and_is_remembered() {
    let w = world();
    let session = w.create().await;
    assert_eq!(session.view().status, SessionStatus::Running);
    assert_eq!(w.runtime.alive(), 1);
    w.registry.destroy(session.id()).await.unwrap();
    assert_eq!(w.runtime.alive(), 0);
    assert_eq!(w.registry.in_use(), 0);
    assert_eq!(w.registry.get(session.id()).unwrap().view().status, SessionStatus::Destroyed);
    w.registry.destroy(session.id()).await.expect("a repeat is no error");
    assert!(w.registry.list(&SessionFilter::default()).is_empty());
    assert!(matches!(session.begin().await, Err(SessionError::NotFound(_))));
}

#[tokio::test(start_paused = true)]
async fn a_session_expires_at_its_second_and_not_before() {
    let w = world();
    let view = w.registry.create(request(r#"{"ttl_seconds":10}"#), None).await.unwrap();
    let session = w.registry.get(&view.id).unwrap();
    advance(9.999).await;
    assert_eq!(session.view().status, SessionStatus::Running);
    advance(0.002).await;
    assert_eq!(session.view().status, SessionStatus::Expired);
    assert_eq!(w.runtime.alive(), 0);
    assert!(matches!(session.begin().await, Err(SessionError::Expired(_))));
    assert_eq!(w.registry.in_use(), 0);
}

#[tokio::test(start_paused = true)]
async fn activity_renews_the_time_at_its_beginning_and_its_end_and_holds_it_off_between() {
    let w = world();
    let view = w.registry.create(request(r#"{"ttl_seconds":10}"#), None).await.unwrap();
    let session = w.registry.get(&view.id).unwrap();
    advance(9.0).await;
    drop(session.begin().await.unwrap());
    advance(9.0).await;
    let activity = session.begin().await.unwrap();
    advance(1000.0).await;
    assert_eq!(session.view().status, SessionStatus::Running);
    drop(activity);
    advance(9.9).await;
    assert_eq!(session.view().status, SessionStatus::Running);
    advance(0.2).await;
    assert_eq!(session.view().status, SessionStatus::Expired);
}

#[tokio::test(start_paused = true)]
async fn expires_at_is_when_it_expires() {
    let w = world();
    let view = w.registry.create(request(r#"{"ttl_seconds":100,"idle_seconds":10}"#), None).await.unwrap();
    let time = |text: &str| humantime::parse_rfc3339(text).unwrap();
    let left = time(&view.expires_at).duration_since(time(&view.last_activity)).unwrap();
    assert_eq!(left, Duration::from_secs(10));
}

#[tokio::test(start_paused = true)]
async fn a_crash_is_seen_at_once_and_told_to_those_in_flight() {
    let w = world();
    let session = w.create().await;
    let activity = session.begin().await.unwrap();
    let ended = activity.ended();
    tokio::pin!(ended);
    assert!(started(ended.as_mut()).is_none());
    w.runtime.crash(session.id(), "killed by the kernel");
    let lost = SessionError::Lost { id: session.id().clone(), reason: "killed by the kernel".into() };
    assert_eq!(ended.await, lost);
    assert_eq!(session.begin().await.unwrap_err(), lost);
    settle().await;
    let listed = w.registry.list(&SessionFilter::default());
    assert_eq!(listed[0].status, SessionStatus::Crashed);
    assert_eq!(listed[0].reason.as_deref(), Some("killed by the kernel"));
    assert_eq!(w.registry.in_use(), 0, "a crashed session keeps no place");
    assert_eq!(w.runtime.state().destroys, 1, "what it left is removed");
    w.registry.destroy(session.id()).await.unwrap();
    assert_eq!(w.statuses(), [SessionStatus::Destroyed]);
}

#[tokio::test(start_paused = true)]
async fn requests_in_flight_learn_of_a_destroy_before_the_runtime_is_done() {
    let w = world();
    let session = w.create().await;
    let activity = session.begin().await.unwrap();
    w.runtime.state().faults.destroy_hangs = 1;
    session.ask_destroy();
    assert!(matches!(activity.ended().await, SessionError::NotFound(_)));
    assert_eq!(session.view().status, SessionStatus::Destroying);
}

#[tokio::test(start_paused = true)]
async fn a_create_that_fails_leaves_nothing_and_frees_its_place() {
    let w = world_with(FakeRuntime::new(), |config| config.max_sessions = 1);
    w.runtime.state().faults.create_fails = 1;
    let error = w.registry.create(CreateSessionRequest::default(), Some("key")).await.unwrap_err();
    assert_eq!(error, SessionError::Internal("mount the root: no space left".into()));
    assert!(w.statuses().is_empty());
    w.registry.create(CreateSessionRequest::default(), Some("key")).await.expect("place and key are free again");
}

#[tokio::test(start_paused = true)]
async fn a_create_that_hangs_ends_in_bounded_time_and_is_cleaned_up() {
    let w = world();
    w.runtime.state().faults.create_hangs = 1;
    let error = w.registry.create(CreateSessionRequest::default(), None).await.unwrap_err();
    assert!(matches!(error, SessionError::Internal(message) if message.contains("60 s")));
    assert_eq!((w.runtime.state().destroys, w.registry.in_use()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_that_ends_during_create_is_a_create_that_failed() {
    let w = world();
    w.runtime.state().faults.ends_in_create = 1;
    let error = w.registry.create(CreateSessionRequest::default(), None).await.unwrap_err();
    assert!(matches!(error, SessionError::Lost { reason, .. } if reason == "exited with 1"));
    assert_eq!((w.runtime.state().destroys, w.registry.in_use()), (1, 0));
    assert!(w.statuses().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_destroy_that_fails_or_hangs_is_tried_again_until_the_sandbox_is_gone() {
    let w = world();
    let session = w.create().await;
    w.runtime.state().faults.destroy_fails = 2;
    w.runtime.state().faults.destroy_hangs = 1;
    // This is longer than a client waits, because the hanging attempt takes ten seconds.
    let _ = w.registry.destroy(session.id()).await;
    advance(30.0).await;
    assert_eq!((w.runtime.alive(), w.runtime.state().destroys, w.registry.in_use()), (0, 4, 0));
    assert_eq!(session.view().status, SessionStatus::Destroyed);
}

#[tokio::test(start_paused = true)]
async fn a_destroy_during_create_ends_the_create() {
    let w = world_with(FakeRuntime::gated(), |_| {});
    let creating = tokio::spawn({
        let registry = w.registry.clone();
        async move { registry.create(CreateSessionRequest::default(), None).await }
    });
    settle().await;
    let id = w.registry.list(&SessionFilter::default())[0].id.clone();
    let start = Instant::now();
    w.registry.destroy(&id).await.unwrap();
    assert!(start.elapsed() < Duration::from_secs(1), "it took {:?}", start.elapsed());
    assert!(matches!(creating.await.unwrap(), Err(SessionError::NotFound(_))));
    assert_eq!(w.registry.in_use(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_for_a_session_that_is_being_made() {
    let w = world_with(FakeRuntime::gated(), |_| {});
    let creating = tokio::spawn({
        let registry = w.registry.clone();
        async move { registry.create(CreateSessionRequest::default(), None).await }
    });
    settle().await;
    let id = w.registry.list(&SessionFilter::default())[0].id.clone();
    let session = w.registry.get(&id).unwrap();
    let beginning = session.begin();
    tokio::pin!(beginning);
    assert!(started(beginning.as_mut()).is_none());
    w.runtime.gate.add_permits(1);
    beginning.await.unwrap();
    creating.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_during_create_leaves_no_session_unless_it_can_ask_again() {
    let w = world_with(FakeRuntime::gated(), |_| {});
    for (key, kept) in [(None, 0), (Some("k"), 1)] {
        let creating = w.registry.create(CreateSessionRequest::default(), key);
        let mut creating = Box::pin(creating);
        assert!(started(creating.as_mut()).is_none());
        settle().await;
        drop(creating);
        w.runtime.gate.add_permits(1);
        settle().await;
        advance(1.0).await;
        assert_eq!(w.runtime.alive(), kept, "with key {key:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_same_key_and_request_is_the_same_session_and_another_request_a_conflict() {
    let w = world_with(FakeRuntime::gated(), |_| {});
    let spawn = |json: &'static str| {
        let registry = w.registry.clone();
        tokio::spawn(async move { registry.create(request(json), Some("key")).await })
    };
    let (first, second) = (spawn("{}"), spawn("{}"));
    settle().await;
    assert!(matches!(spawn(r#"{"ttl_seconds":9}"#).await.unwrap(), Err(SessionError::Conflict(_))));
    w.runtime.gate.add_permits(9);
    let (first, second) = (first.await.unwrap().unwrap(), second.await.unwrap().unwrap());
    assert_eq!(first, second);
    assert_eq!(w.runtime.state().creates, 1);
    w.registry.destroy(&first.id).await.unwrap();
    let third = spawn("{}").await.unwrap().unwrap();
    assert_eq!((third.id, third.status), (first.id, SessionStatus::Destroyed));
}

#[tokio::test(start_paused = true)]
async fn one_session_too_many_is_refused_and_fits_once_another_is_gone() {
    let w = world_with(FakeRuntime::new(), |config| config.max_sessions = 2);
    let first = w.create().await;
    w.create().await;
    let refused = w.registry.create(CreateSessionRequest::default(), None).await.unwrap_err();
    let SessionError::Limit { details, .. } = refused else { panic!("{refused:?}") };
    assert_eq!(details, serde_json::json!({"of": "daemon", "what": "sessions", "limit": 2, "in_use": 2, "asked": 1}));
    w.registry.destroy(first.id()).await.unwrap();
    w.create().await;
}

#[tokio::test(start_paused = true)]
async fn tombstones_are_forgotten_with_their_keys_after_an_hour() {
    let w = world();
    let view = w.registry.create(CreateSessionRequest::default(), Some("key")).await.unwrap();
    w.registry.destroy(&view.id).await.unwrap();
    advance(3599.0).await;
    assert!(w.registry.get(&view.id).is_ok());
    advance(1.0).await;
    assert!(matches!(w.registry.get(&view.id), Err(SessionError::NotFound(_))));
    assert!(matches!(w.registry.destroy(&view.id).await, Err(SessionError::NotFound(_))));
    let again = w.registry.create(CreateSessionRequest::default(), Some("key")).await.unwrap();
    assert_ne!(again.id, view.id);
}

#[tokio::test(start_paused = true)]
async fn a_listing_can_be_narrowed_by_status_and_labels() {
    let w = world();
    for json in
        [r#"{"labels":{"team":"a","n":"1"}}"#, r#"{"labels":{"team":"a","n":"2"}}"#, r#"{"labels":{"team":"b"}}"#]
    {
        w.registry.create(request(json), None).await.unwrap();
    }
    let label = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let team = SessionFilter { labels: vec![label("team", "a")], ..SessionFilter::default() };
    assert_eq!(w.registry.list(&team).len(), 2);
    let one = SessionFilter { labels: vec![label("team", "a"), label("n", "2")], ..SessionFilter::default() };
    let found = w.registry.list(&one);
    assert_eq!(found.len(), 1);
    w.registry.destroy(&found[0].id).await.unwrap();
    assert!(w.registry.list(&one).is_empty());
    assert_eq!(w.registry.list(&SessionFilter { statuses: vec![SessionStatus::Destroyed], ..one }).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn at_the_end_all_are_destroyed_and_nobody_comes_in() {
    let w = world();
    for _ in 0..100 {
        w.create().await;
    }
    w.registry.destroy_all().await;
    assert_eq!((w.runtime.alive(), w.registry.in_use()), (0, 0));
    let refused = w.registry.create(CreateSessionRequest::default(), None).await;
    assert!(matches!(refused, Err(SessionError::Limit { .. })));
}

#[tokio::test(start_paused = true)]
async fn what_the_runtime_refuses_takes_no_place() {
    let w = world();
    let error = w.registry.create(request(r#"{"image":"nope"}"#), None).await.unwrap_err();
    assert_eq!(error, SessionError::InvalidImage("no image nope".into()));
    let error = w.registry.create(request(r#"{"runtime":"docker"}"#), None).await.unwrap_err();
    assert!(matches!(error, SessionError::InvalidRequest(message) if message.contains("local")));
    assert_eq!((w.registry.in_use(), w.runtime.state().creates), (0, 0));
}

/// Starts a create that hangs in the check of its image, as if the image were on a stuck disk.
async fn stuck_create(w: &World, json: &'static str, key: Option<&'static str>) -> JoinHandle<Created> {
    let registry = w.registry.clone();
    let creating = tokio::spawn(async move { registry.create(request(json), key).await });
    settle().await;
    assert!(!creating.is_finished());
    creating
}

type Created = Result<SessionView, SessionError>;

#[tokio::test(start_paused = true)]
async fn a_create_whose_image_is_being_looked_for_has_no_place_and_leaves_nothing_if_its_client_goes() {
    let w = world_with(FakeRuntime::stuck_in_check(), |config| config.max_sessions = 1);
    let first = stuck_create(&w, "{}", None).await;
    assert!(w.statuses().is_empty());
    assert_eq!(w.registry.in_use(), 0);
    first.abort();
    settle().await;
    let second = stuck_create(&w, "{}", None).await;
    w.runtime.check_gate.add_permits(2);
    second.await.unwrap().expect("the only place is free");
    assert_eq!((w.registry.in_use(), w.runtime.state().creates), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_used_twice_while_the_image_is_looked_for_makes_one_session() {
    let w = world_with(FakeRuntime::stuck_in_check(), |config| config.max_sessions = 1);
    let (first, second) = (stuck_create(&w, "{}", Some("key")).await, stuck_create(&w, "{}", Some("key")).await);
    let other = stuck_create(&w, r#"{"ttl_seconds":9}"#, Some("key")).await;
    w.runtime.check_gate.add_permits(3);
    let (first, second) = (first.await.unwrap().unwrap(), second.await.unwrap().unwrap());
    assert_eq!(first.id, second.id);
    assert_eq!((w.runtime.state().creates, w.registry.in_use()), (1, 1));
    assert!(matches!(other.await.unwrap(), Err(SessionError::Conflict(_))));
}

#[tokio::test(start_paused = true)]
async fn a_daemon_that_stops_while_the_image_is_looked_for_lets_nobody_in() {
    let w = world_with(FakeRuntime::stuck_in_check(), |_| {});
    let creating = stuck_create(&w, "{}", None).await;
    w.registry.destroy_all().await;
    w.runtime.check_gate.add_permits(1);
    assert!(matches!(creating.await.unwrap(), Err(SessionError::Limit { .. })));
    assert_eq!(w.registry.in_use(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_workspace_whose_deletion_began_while_the_image_was_looked_for_is_refused_and_costs_no_place() {
    let w = world_with(FakeRuntime::stuck_in_check(), |_| {});
    let creating = stuck_create(&w, r#"{"workspace_id":"w"}"#, None).await;
    let deletion = w.workspaces.begin_delete(&workspace_w()).expect("nobody has it yet");
    w.runtime.check_gate.add_permits(1);
    assert!(matches!(creating.await.unwrap(), Err(SessionError::Conflict(message)) if message.contains("deleted")));
    assert_eq!((w.registry.in_use(), w.runtime.state().creates), (0, 0));
    drop(deletion);
}

#[tokio::test(start_paused = true)]
async fn a_workspace_that_cannot_be_made_frees_the_place_the_key_and_the_workspace() {
    let w = world_with(FakeRuntime::new(), |config| config.max_sessions = 1);
    let root = w.folder.path().join("workspaces");
    std::fs::rename(&root, w.folder.path().join("away")).unwrap();
    let create = || w.registry.create(request(r#"{"workspace_id":"w"}"#), Some("key"));
    let error = create().await.unwrap_err();
    assert!(matches!(&error, SessionError::Internal(message) if message.contains("workspace w")), "{error:?}");
    assert!(w.statuses().is_empty() && w.registry.0.store.rows().is_empty());
    assert_eq!((w.registry.in_use(), w.runtime.state().creates), (0, 0));
    assert!(w.workspaces.begin_delete(&workspace_w()).is_ok(), "nobody holds it");
    std::fs::rename(w.folder.path().join("away"), &root).unwrap();
    create().await.expect("place, key and workspace are free again");
    assert!(root.join("w").is_dir());
}

#[tokio::test(start_paused = true)]
async fn many_creates_of_one_new_workspace_all_get_it() {
    let w = world();
    let creates = (0..20).map(|_| w.registry.create(request(r#"{"workspace_id":"w"}"#), None));
    let made = futures_util::future::join_all(creates).await;
    assert!(made.iter().all(Result::is_ok), "{made:?}");
    let users = w.workspaces.begin_delete(&workspace_w()).unwrap_err();
    assert_eq!(users.len(), 20);
}
