//! Tests of pools over the fake runtime, with a runner that accepts every claim, on the real clock.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::routing::{get, post};
use axum::{Json, Router};
use shared_protocol::SessionId;
use shared_protocol::api::{SessionStatus, SessionView};
use tokio::net::UnixListener;
use tokio::time::Instant;

use super::*;
use crate::config::SessionsConfig;
use crate::session::fake::FakeRuntime;
use crate::session::{Clock, RegistryParts, SessionFilter};
use crate::store::Store;
use crate::workspace::WorkspaceDirs;

const DEADLINE: Duration = Duration::from_secs(120);
const LOOK_INTERVAL: Duration = Duration::from_millis(2);

struct World {
    registry: Registry,
    runtime: Arc<FakeRuntime>,
    claims: Arc<AtomicUsize>,
    folder: tempfile::TempDir,
}

async fn world(change: impl FnOnce(&mut SessionsConfig)) -> World {
    let folder = tempfile::tempdir().unwrap();
    let mut config = SessionsConfig::default();
    change(&mut config);
    let (runtime, claims) = (FakeRuntime::new(), Arc::<AtomicUsize>::default());
    let socket = folder.path().join("runner.sock");
    tokio::spawn(serve(UnixListener::bind(&socket).unwrap(), claims.clone()));
    runtime.state().runner = Some(socket);
    let parts = RegistryParts {
        network: crate::network::Network::for_test(),
        runtimes: vec![runtime.clone()],
        config,
        snapshots: crate::config::SnapshotsConfig::default(),
        workspaces: WorkspaceDirs::open(folder.path().join("workspaces")).unwrap(),
        metrics: Metrics::new(),
        store: Store::in_memory(),
        clock: Clock::start(),
    };
    World { registry: Registry::new(parts).unwrap(), runtime, claims, folder }
}

async fn serve(listener: UnixListener, claims: Arc<AtomicUsize>) {
    let claim = move || {
        claims.fetch_add(1, Ordering::SeqCst);
        async { Json(json!({ "ok": true })) }
    };
    let health = || async {
        let separation =
            json!({ "runner_uid": 0, "command_uid": 1, "command_gid": 1, "separate_user": true, "no_new_privs": true });
        Json(
            json!({ "status": "ok", "version": "0", "pid": 1, "uptime_ms": 1, "separation": separation, "shells": 1, "execs": 0 }),
        )
    };
    let router = Router::new().route("/v1/claim", post(claim)).route("/healthz", get(health));
    axum::serve(listener, router).await.unwrap();
}

fn request(json: &str) -> CreateSessionRequest {
    serde_json::from_str(json).unwrap()
}

impl World {
    fn pool(&self) -> PoolView {
        self.registry.pools().pop().expect("there is a pool")
    }

    async fn until(&self, what: &str, condition: impl Fn(&Self) -> bool) {
        let begun = Instant::now();
        while !condition(self) {
            assert!(begun.elapsed() < DEADLINE, "{what}: {:?}", self.registry.pools());
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }

    async fn filled(size: u64, change: impl FnOnce(&mut SessionsConfig)) -> Self {
        let world = world(change).await;
        world.registry.set_pool("base", None, size).await.unwrap();
        world.until("the pool is filled", |world| world.pool().idle as u64 == size).await;
        world
    }

    async fn create(&self, json: &str) -> Result<SessionView, SessionError> {
        self.registry.create(request(json), None).await
    }

    fn pooled(&self) -> Vec<SessionView> {
        self.registry.list(&SessionFilter { statuses: vec![SessionStatus::PoolIdle], ..SessionFilter::default() })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_claims_at_once_give_no_sandbox_twice() {
    const CLAIMS: usize = 10_000;
    const SIZE: usize = 500;
    let world = World::filled(SIZE as u64, |config| {
        config.max_sessions = 50_000;
        config.max_total_memory_mb = Some(u64::MAX);
    })
    .await;
    let creates = (0..CLAIMS).map(|_| {
        let registry = world.registry.clone();
        tokio::spawn(async move { registry.create(CreateSessionRequest::default(), None).await })
    });
    let results: Vec<_> = futures_util::future::join_all(creates).await.into_iter().map(Result::unwrap).collect();
    let views: Vec<&SessionView> = results.iter().filter_map(|result| result.as_ref().ok()).collect();
    // A slow machine may refuse some creates that do not get a turn in time; there is no other reason.
    assert!(results.iter().all(|result| matches!(result, Ok(_) | Err(SessionError::Limit { .. }))));
    let ids: BTreeSet<&SessionId> = views.iter().map(|view| &view.id).collect();
    assert_eq!(ids.len(), views.len(), "two sessions have one sandbox");
    let from_pool = views.iter().filter(|view| view.acquire_source == AcquireSource::Pool).count();
    assert!(from_pool > 0, "no pooled sandbox was given");
    world.until("the pool is filled again", |world| world.pool().idle == SIZE && world.pool().starting == 0).await;
    assert_eq!(world.runtime.alive(), views.len() + SIZE);
    assert_eq!(world.registry.in_use(), (views.len() + SIZE) as u64);
    let view = world.pool();
    assert_eq!(view.hits + view.misses, CLAIMS as u64);
    let claims = world.claims.load(Ordering::SeqCst);
    assert!(
        from_pool <= claims && claims as u64 <= view.hits,
        "{claims} claims for {from_pool} of {} pooled sandboxes",
        view.hits
    );
}

#[tokio::test]
async fn a_claim_makes_a_session_of_a_pooled_sandbox_with_all_that_was_asked_for() {
    let world = World::filled(1, |_| {}).await;
    let pooled = world.pooled().pop().unwrap();
    let view = world.create(r#"{"ttl_seconds":7,"labels":{"a":"b"},"workspace_id":"w"}"#).await.unwrap();
    assert_eq!((view.id.clone(), view.acquire_source), (pooled.id, AcquireSource::Pool));
    assert_eq!(view.status, SessionStatus::Running);
    assert_eq!((view.labels.len(), view.workspace_id.map(|id| id.to_string())), (1, Some("w".into())));
    assert_eq!(world.runtime.state().mounted, std::slice::from_ref(&view.id));
    world.until("another waits in its place", |world| world.pool().idle == 1).await;
    assert_eq!(world.runtime.alive(), 2);
    world.registry.destroy(&view.id).await.unwrap();
    assert_eq!(world.runtime.alive(), 1, "a sandbox that was somebody's is not used again");
}

#[tokio::test]
async fn a_create_that_asks_for_something_else_is_a_cold_one_and_no_miss() {
    let world = World::filled(1, |_| {}).await;
    let view = world.create(r#"{"resources":{"pids":99}}"#).await.unwrap();
    assert_eq!(view.acquire_source, AcquireSource::Cold);
    assert_eq!((world.pool().idle, world.pool().hits, world.pool().misses), (1, 0, 0));
}

#[tokio::test]
async fn a_pooled_sandbox_that_does_not_answer_is_replaced_under_the_same_id() {
    let world = World::filled(1, |_| {}).await;
    let pooled = world.pooled().pop().unwrap();
    // Sandboxes that start from now on do not answer either.
    std::fs::remove_file(world.folder.path().join("runner.sock")).unwrap();
    world
        .registry
        .idle_pools()
        .get_mut(&PoolKey { image: "base".into(), runtime: RuntimeName::local() })
        .unwrap()
        .forget_connections();
    let view = world.create("{}").await.unwrap();
    assert_eq!((view.id, view.acquire_source), (pooled.id, AcquireSource::Cold));
    let removed = |world: &World| world.runtime.alive() == 1 && world.runtime.state().destroys > 0;
    world.until("the dead one was removed before another was made", removed).await;
}

#[tokio::test]
async fn a_pooled_sandbox_that_ends_is_never_given_and_replaced() {
    let world = World::filled(2, |_| {}).await;
    let pooled = world.pooled().pop().unwrap();
    world.runtime.crash(&pooled.id, "killed");
    world
        .until("another has come", |world| world.pool().idle == 2 && world.pooled().iter().all(|m| m.id != pooled.id))
        .await;
    assert_eq!(world.runtime.alive(), 2);
    assert!(world.registry.get(&pooled.id).is_err(), "nothing is remembered of what was nobody's");
}

#[tokio::test]
async fn pooled_sandboxes_are_nobodys_sessions() {
    let world = World::filled(2, |_| {}).await;
    assert!(world.registry.list(&SessionFilter::default()).is_empty());
    let pooled = world.pooled();
    assert_eq!(pooled.len(), 2);
    assert!(pooled.iter().all(|view| view.status == SessionStatus::PoolIdle));
    let handle = world.registry.get(&pooled[0].id).unwrap();
    assert!(matches!(handle.begin().await, Err(SessionError::Conflict(_))));
    world.registry.destroy(&pooled[0].id).await.unwrap();
    world.until("another has come", |world| world.pool().idle == 2).await;
}

#[tokio::test]
async fn pooled_sandboxes_count_and_make_room_for_a_session_that_would_be_refused_for_them_alone() {
    let world = World::filled(2, |config| config.max_sessions = 3).await;
    assert_eq!(world.registry.in_use(), 2);
    let other = r#"{"resources":{"pids":99}}"#;
    let first = world.create(other).await.unwrap();
    assert_eq!(world.pool().idle, 2, "there was room for it");
    world.create(other).await.unwrap();
    world.create(other).await.unwrap();
    assert_eq!((world.registry.in_use(), world.pool().idle), (3, 0));
    assert!(matches!(world.create(other).await, Err(SessionError::Limit { .. })));
    world.until("their sandboxes are gone", |world| world.runtime.alive() == 3).await;
    world.registry.destroy(&first.id).await.unwrap();
    world.until("the pool has its room back", |world| world.pool().idle == 1).await;
    assert_eq!(world.registry.in_use(), 3);
}

#[tokio::test]
async fn starts_that_fail_are_tried_again_and_leave_nothing() {
    let world = world(|_| {}).await;
    world.runtime.state().faults.create_fails = 3;
    world.registry.set_pool("base", None, 1).await.unwrap();
    world.until("a failure is shown", |world| world.pool().failure.is_some()).await;
    world.until("the pool is filled", |world| world.pool().idle == 1).await;
    assert_eq!(world.pool().failure, None);
    assert_eq!((world.runtime.alive(), world.registry.in_use()), (1, 1));
}

#[tokio::test]
async fn a_workspace_that_cannot_be_given_is_a_cold_create() {
    let world = World::filled(1, |_| {}).await;
    world.runtime.state().faults.mount_fails = 1;
    let view = world.create(r#"{"workspace_id":"w"}"#).await.unwrap();
    assert_eq!((view.acquire_source, view.status), (AcquireSource::Cold, SessionStatus::Running));
    assert_eq!(world.claims.load(Ordering::SeqCst), 0);
    assert!(world.runtime.state().mounted.is_empty());
}

#[tokio::test]
async fn a_pool_of_none_is_gone_with_its_sandboxes() {
    let world = World::filled(3, |_| {}).await;
    world.registry.set_pool("base", None, 0).await.unwrap();
    world.until("the pool is gone", |world| world.registry.pools().is_empty() && world.runtime.alive() == 0).await;
    assert_eq!(world.registry.in_use(), 0);
    assert_eq!(world.create("{}").await.unwrap().acquire_source, AcquireSource::Cold);
}

#[tokio::test]
async fn what_is_no_image_or_no_size_is_refused() {
    let world = world(|_| {}).await;
    assert!(matches!(world.registry.set_pool("nope", None, 1).await, Err(SessionError::InvalidImage(_))));
    assert!(matches!(
        world.registry.set_pool("base", None, MAX_POOL_SIZE + 1).await,
        Err(SessionError::InvalidRequest(_))
    ));
    let docker = RuntimeName::new("docker").unwrap();
    assert!(matches!(world.registry.set_pool("base", Some(&docker), 1).await, Err(SessionError::InvalidRequest(_))));
    assert!(world.registry.pools().is_empty());
}

#[tokio::test]
async fn when_all_is_destroyed_pools_are_not_filled_again() {
    let world = World::filled(3, |_| {}).await;
    world.create("{}").await.unwrap();
    world.registry.destroy_all().await;
    world.until("nothing is left", |world| world.runtime.alive() == 0 && world.registry.in_use() == 0).await;
}
