//! Tests of restarts over one fake runtime and one database. Each daemon is a registry that is dropped as if it had been
//! killed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use shared_protocol::api::{CreateSessionRequest, ImageView, SessionStatus, SessionView, StatsView};
use shared_protocol::{KeyName, RuntimeName, SessionId, WorkspaceId};

use crate::config::SessionsConfig;
use crate::metrics::Metrics;
use crate::owner::WorkspaceName;
use crate::runtime::{Origin, Runtime, RuntimeError, Sandbox, SandboxSpec};
use crate::session::fake::FakeRuntime;
use crate::session::{Clock, Recovered, Registry, RegistryParts, SessionError, SessionFilter, SessionHandle};
use crate::spec::SessionSpec;
use crate::store::{Store, Write};
use crate::workspace::WorkspaceDirs;

/// Everything that outlives a daemon.
struct World {
    folder: tempfile::TempDir,
    runtime: Arc<FakeRuntime>,
    config: SessionsConfig,
    /// The host's clock at the start of the next daemon.
    wall: SystemTime,
    last: Mutex<Option<(Arc<AtomicBool>, Store)>>,
}

/// One daemon's view of the runtime. After the daemon is killed, its calls do nothing and never return.
struct Mortal {
    name: RuntimeName,
    runtime: Arc<FakeRuntime>,
    is_killed: Arc<AtomicBool>,
}

impl Mortal {
    async fn alive(&self) -> &FakeRuntime {
        if self.is_killed.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        &self.runtime
    }
}

#[async_trait::async_trait]
impl Runtime for Mortal {
    fn name(&self) -> RuntimeName {
        self.name.clone()
    }

    async fn images(&self) -> Vec<ImageView> {
        self.runtime.images().await
    }

    async fn check(&self, spec: &SessionSpec, origin: &Origin) -> Result<(), RuntimeError> {
        self.runtime.check(spec, origin).await
    }

    async fn create(&self, spec: &SandboxSpec) -> Result<Sandbox, RuntimeError> {
        self.alive().await.create(spec).await
    }

    async fn adopt(&self, id: &SessionId) -> Result<Sandbox, RuntimeError> {
        self.alive().await.adopt(id).await
    }

    async fn stats(&self, id: &SessionId) -> Result<StatsView, RuntimeError> {
        self.alive().await.stats(id).await
    }

    async fn pause(&self, id: &SessionId) -> Result<(), RuntimeError> {
        self.alive().await.pause(id).await
    }

    async fn resume(&self, id: &SessionId) -> Result<(), RuntimeError> {
        self.alive().await.resume(id).await
    }

    async fn destroy(&self, id: &SessionId) -> Result<(), RuntimeError> {
        self.alive().await.destroy(id).await
    }

    async fn list(&self) -> Result<Vec<SessionId>, RuntimeError> {
        self.alive().await.list().await
    }
}

struct Daemon {
    registry: Registry,
    store: Store,
    workspaces: WorkspaceDirs,
    recovered: Recovered,
}

impl World {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            runtime: FakeRuntime::new(),
            config: SessionsConfig::default(),
            wall: SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000),
            last: Mutex::default(),
        }
    }

    async fn start(&self) -> Daemon {
        self.start_with(&[(RuntimeName::local(), self.runtime.clone())]).await
    }

    /// Starts a daemon. This kills the daemon before it: its actions have no effect any more.
    async fn start_with(&self, runtimes: &[(RuntimeName, Arc<FakeRuntime>)]) -> Daemon {
        let is_killed = Arc::<AtomicBool>::default();
        let mortal = |(name, runtime): &(RuntimeName, Arc<FakeRuntime>)| -> Arc<dyn Runtime> {
            Arc::new(Mortal { name: name.clone(), runtime: runtime.clone(), is_killed: is_killed.clone() })
        };
        if let Some((last, store)) = self.last.lock().unwrap().take() {
            last.store(true, Ordering::Relaxed);
            store.refuse_writes(true);
        }
        let runtimes = runtimes.iter().map(mortal).collect();
        let (store, rows) = Store::inline(&self.folder.path().join("db")).unwrap();
        let workspaces = WorkspaceDirs::open(self.folder.path().join("workspaces")).unwrap();
        let parts = RegistryParts {
            network: crate::network::Network::for_test(),
            runtimes,
            config: self.config.clone(),
            snapshots: crate::config::SnapshotsConfig::default(),
            workspaces: workspaces.clone(),
            metrics: Metrics::new(),
            store: store.clone(),
            clock: Clock::starting_at(self.wall),
        };
        let registry = Registry::new(parts).unwrap();
        *self.last.lock().unwrap() = Some((is_killed, store.clone()));
        let recovered = registry.recover(rows).await;
        Daemon { registry, store, workspaces, recovered }
    }

    /// Lets time pass, for the host and for all waiting tasks.
    async fn pass(&mut self, seconds: f64) {
        let time = Duration::from_secs_f64(seconds);
        self.wall += time;
        tokio::time::advance(time).await;
        settle().await;
    }
}

impl Daemon {
    async fn create(&self, json: &str, key: Option<&str>) -> SessionView {
        self.registry.create(serde_json::from_str(json).unwrap(), key).await.unwrap()
    }

    fn session(&self, id: &SessionId) -> SessionHandle {
        self.registry.get(id).unwrap()
    }

    fn statuses(&self) -> Vec<SessionStatus> {
        let all = SessionFilter { statuses: SessionStatus::ALL.to_vec(), ..SessionFilter::default() };
        self.registry.list(&all).into_iter().map(|view| view.status).collect()
    }

    fn rows(&self) -> Vec<(SessionId, SessionStatus)> {
        self.store.rows().into_iter().map(|row| (row.id, row.status)).collect()
    }
}

async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_is_the_same_after_a_restart() {
    let mut w = World::new();
    let first = w.start().await;
    let before = first.create(r#"{"ttl_seconds":100,"labels":{"a":"b"},"workspace_id":"w"}"#, Some("key")).await;
    let activity = first.session(&before.id).begin().await.unwrap();
    activity.set_cwd("/tmp");
    drop(activity);
    first.registry.write_uses().await;
    let before = first.session(&before.id).view();
    w.pass(30.0).await;
    let second = w.start().await;
    assert_eq!(second.recovered, Recovered { adopted: 1, ..Recovered::default() });
    assert_eq!(second.session(&before.id).view(), before);
    assert_eq!(second.registry.in_use(), 1);
    assert_eq!(w.runtime.alive(), 1);
    let again = second.create(r#"{"ttl_seconds":100,"labels":{"a":"b"},"workspace_id":"w"}"#, Some("key")).await;
    assert_eq!(again.id, before.id);
    let other = second.registry.create(CreateSessionRequest::default(), Some("key")).await;
    assert!(matches!(other, Err(SessionError::Conflict(_))), "{other:?}");
    let workspace = WorkspaceName { owner: KeyName::first(), id: WorkspaceId::new("w").unwrap() };
    assert!(second.workspaces.begin_delete(&workspace).is_err(), "it is in use");
    second.registry.destroy(&before.id).await.unwrap();
    assert!(second.workspaces.begin_delete(&workspace).is_ok());
    assert_eq!((w.runtime.alive(), second.registry.in_use()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn expiry_is_exact_to_the_second_across_a_restart() {
    let mut w = World::new();
    let first = w.start().await;
    let id = first.create(r#"{"ttl_seconds":60}"#, None).await.id;
    first.registry.leave_all().await;
    let shown = first.session(&id).view().expires_at;
    w.pass(20.0).await;
    let second = w.start().await;
    assert_eq!(second.session(&id).view().expires_at, shown);
    w.pass(39.9).await;
    assert_eq!(second.session(&id).view().status, SessionStatus::Running);
    w.pass(0.2).await;
    assert_eq!(second.session(&id).view().status, SessionStatus::Expired);
}

#[tokio::test(start_paused = true)]
async fn the_time_that_is_renewed_after_a_restart_is_the_sessions_own() {
    let mut w = World::new();
    let first = w.start().await;
    let id = first.create(r#"{"ttl_seconds":60}"#, None).await.id;
    first.registry.leave_all().await;
    w.pass(50.0).await;
    let second = w.start().await;
    drop(second.session(&id).begin().await.unwrap());
    w.pass(59.9).await;
    assert_eq!(second.session(&id).view().status, SessionStatus::Running);
    w.pass(0.2).await;
    assert_eq!(second.session(&id).view().status, SessionStatus::Expired);
}

#[tokio::test(start_paused = true)]
async fn a_session_whose_time_ran_out_while_no_daemon_ran_is_over_at_the_start() {
    let mut w = World::new();
    let first = w.start().await;
    let id = first.create(r#"{"ttl_seconds":60}"#, None).await.id;
    drop(first);
    w.wall += Duration::from_secs(61);
    let second = w.start().await;
    settle().await;
    assert!(matches!(second.session(&id).begin().await, Err(SessionError::Expired(_))));
    assert_eq!(second.rows(), [(id, SessionStatus::Expired)]);
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_was_set_back_gives_a_session_its_time_once_more_and_no_longer() {
    let mut w = World::new();
    let first = w.start().await;
    let id = first.create(r#"{"ttl_seconds":60}"#, None).await.id;
    drop(first);
    w.wall -= Duration::from_secs(1_000_000_000);
    let second = w.start().await;
    w.pass(59.9).await;
    assert_eq!(second.session(&id).view().status, SessionStatus::Running);
    w.pass(0.2).await;
    assert_eq!(second.session(&id).view().status, SessionStatus::Expired);
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_that_ended_while_no_daemon_ran_is_a_crash_that_is_told() {
    let w = World::new();
    let first = w.start().await;
    let id = first.create("{}", Some("key")).await.id;
    drop(first);
    w.runtime.state().alive.clear();
    let second = w.start().await;
    assert_eq!(second.recovered, Recovered { crashed: 1, ..Recovered::default() });
    let view = second.session(&id).view();
    assert_eq!(
        (view.status, view.reason.as_deref()),
        (SessionStatus::Crashed, Some("it was gone when the daemon came back"))
    );
    let third = w.start().await;
    assert_eq!(third.session(&id).view().status, SessionStatus::Crashed, "and again");
    assert_eq!(third.create("{}", Some("key")).await.id, id, "its key is still its own");
    third.registry.destroy(&id).await.unwrap();
    assert_eq!(w.start().await.statuses(), [SessionStatus::Destroyed]);
}

#[tokio::test(start_paused = true)]
async fn a_create_that_was_cut_off_is_undone_and_its_key_is_free() {
    let mut w = World::new();
    w.runtime = FakeRuntime::gated();
    let first = w.start().await;
    let creating = tokio::spawn({
        let registry = first.registry.clone();
        async move { registry.create(CreateSessionRequest::default(), Some("key")).await }
    });
    settle().await;
    let rows = first.rows();
    assert_eq!(rows.len(), 1, "it is written down before the runtime has made anything");
    assert_eq!((rows[0].1, w.runtime.alive()), (SessionStatus::Creating, 0));
    // The runtime has already made a sandbox.
    let sender = tokio::sync::oneshot::channel().0;
    w.runtime.state().alive.insert(rows[0].0.clone(), sender);
    let second = w.start().await;
    assert_eq!(second.recovered, Recovered { removed: 1, ..Recovered::default() });
    assert_eq!((w.runtime.alive(), second.rows().len(), second.statuses().len()), (0, 0, 0));
    creating.abort();
    w.runtime.gate.add_permits(9);
    assert_ne!(second.create("{}", Some("key")).await.id, rows[0].0);
}

#[tokio::test(start_paused = true)]
async fn an_end_that_was_cut_off_is_finished() {
    let w = World::new();
    let first = w.start().await;
    let id = first.create("{}", None).await.id;
    w.runtime.state().faults.destroy_hangs = 1;
    first.session(&id).ask_destroy();
    settle().await;
    assert_eq!(first.rows(), [(id.clone(), SessionStatus::Destroying)], "before the sandbox is gone");
    assert_eq!(w.runtime.alive(), 1);
    let second = w.start().await;
    assert_eq!(second.recovered, Recovered { removed: 1, ..Recovered::default() });
    assert_eq!((w.runtime.alive(), second.registry.in_use()), (0, 0));
    assert_eq!(second.rows(), [(id, SessionStatus::Destroyed)]);
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_that_no_row_owns_is_removed() {
    let w = World::new();
    let unowned = SessionId::new("0badcafe-001").unwrap();
    w.runtime.state().alive.insert(unowned, tokio::sync::oneshot::channel().0);
    let daemon = w.start().await;
    assert_eq!(daemon.recovered, Recovered { removed: 1, ..Recovered::default() });
    assert_eq!(w.runtime.alive(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_that_cannot_be_asked_for_at_first_is_asked_for_again() {
    let w = World::new();
    let id = w.start().await.create("{}", None).await.id;
    w.runtime.state().faults.adopt_fails = 3;
    let second = w.start().await;
    assert_eq!(second.session(&id).view().status, SessionStatus::Running);
}

#[tokio::test(start_paused = true)]
async fn a_session_of_a_runtime_that_is_not_there_waits_for_it() {
    let w = World::new();
    let containers = FakeRuntime::new();
    let both = [(RuntimeName::local(), w.runtime.clone()), (RuntimeName::docker(), containers.clone())];
    let first = w.start_with(&both).await;
    let kept = first.create(r#"{"runtime":"docker"}"#, None).await.id;
    let ended = first.create(r#"{"runtime":"docker"}"#, None).await.id;
    let without = w.start().await;
    assert_eq!(without.statuses(), [SessionStatus::Crashed, SessionStatus::Crashed]);
    assert!(matches!(without.session(&kept).begin().await, Err(SessionError::Lost { .. })));
    without.registry.destroy(&ended).await.unwrap();
    assert_eq!(containers.alive(), 2, "nothing is known of it, and nothing is done");
    let with = w.start_with(&both).await;
    assert_eq!(with.session(&kept).view().status, SessionStatus::Running);
    assert_eq!(with.session(&ended).view().status, SessionStatus::Destroyed);
    assert_eq!(containers.alive(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_paused_session_stays_paused_and_one_that_was_frozen_unseen_is_woken() {
    let w = World::new();
    let first = w.start().await;
    let paused = first.create("{}", None).await.id;
    first.session(&paused).pause().await.unwrap();
    let frozen = first.create("{}", None).await.id;
    w.runtime.state().paused.insert(frozen.clone());
    let second = w.start().await;
    assert_eq!(second.session(&paused).view().status, SessionStatus::Paused);
    assert_eq!(second.session(&frozen).view().status, SessionStatus::Running);
    assert_eq!(w.runtime.state().paused.iter().collect::<Vec<_>>(), [&paused]);
    drop(second.session(&paused).begin().await.unwrap());
    settle().await;
    assert!(w.runtime.state().paused.is_empty());
    assert!(second.rows().iter().all(|(_, status)| *status == SessionStatus::Running), "{:?}", second.rows());
}

#[tokio::test(start_paused = true)]
async fn a_create_that_cannot_be_written_down_is_not_done() {
    let w = World::new();
    let daemon = w.start().await;
    daemon.store.refuse_writes(true);
    let error = daemon.registry.create(CreateSessionRequest::default(), Some("key")).await.unwrap_err();
    assert!(matches!(&error, SessionError::Internal(message) if message.contains("store")), "{error}");
    assert_eq!((daemon.registry.in_use(), daemon.statuses().len()), (0, 0));
    assert_eq!(w.runtime.state().creates, 0);
    assert!(daemon.registry.ready(Duration::from_secs(1)).await.is_err());
    daemon.store.refuse_writes(false);
    daemon.create("{}", Some("key")).await;
    daemon.registry.ready(Duration::from_secs(1)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_create_whose_end_cannot_be_written_down_leaves_nothing() {
    let mut w = World::new();
    w.runtime = FakeRuntime::gated();
    let daemon = w.start().await;
    let creating = tokio::spawn({
        let registry = daemon.registry.clone();
        async move { registry.create(CreateSessionRequest::default(), None).await }
    });
    settle().await;
    daemon.store.refuse_writes(true);
    w.runtime.gate.add_permits(1);
    assert!(matches!(creating.await.unwrap(), Err(SessionError::Internal(_))));
    assert_eq!((w.runtime.alive(), daemon.registry.in_use()), (0, 0));
    assert_eq!(w.runtime.state().creates, 1);
    daemon.store.refuse_writes(false);
    daemon.store.write(Write::Touch(Vec::new())).await.unwrap();
    assert!(daemon.rows().is_empty(), "{:?}", daemon.rows());
}

#[tokio::test(start_paused = true)]
async fn a_destroy_works_while_nothing_can_be_written_and_is_written_later() {
    let w = World::new();
    let daemon = w.start().await;
    let id = daemon.create("{}", None).await.id;
    daemon.store.refuse_writes(true);
    daemon.registry.destroy(&id).await.unwrap();
    assert_eq!((w.runtime.alive(), daemon.registry.in_use()), (0, 0));
    daemon.store.refuse_writes(false);
    daemon.registry.write_uses().await;
    assert_eq!(daemon.rows(), [(id, SessionStatus::Destroyed)]);
}

#[tokio::test(start_paused = true)]
async fn uses_are_written_together_a_second_later_and_an_idle_daemon_writes_nothing() {
    let mut w = World::new();
    let daemon = w.start().await;
    let id = daemon.create("{}", None).await.id;
    let maintenance = tokio::spawn({
        let registry = daemon.registry.clone();
        async move { registry.keep_written().await }
    });
    w.pass(2.0).await;
    w.pass(100.0).await;
    let last = || daemon.store.rows()[0].last_activity;
    let idle = last();
    let activity = daemon.session(&id).begin().await.unwrap();
    w.pass(1.0).await;
    w.pass(1.0).await;
    assert!(last() >= idle + Duration::from_secs(99), "a use is written");
    let busy = last();
    w.pass(1.0).await;
    assert!(last() > busy, "and goes on being, while it lasts");
    drop(activity);
    maintenance.abort();
}

#[tokio::test(start_paused = true)]
async fn a_stop_that_keeps_sessions_leaves_what_runs_and_undoes_what_is_half_made() {
    let mut w = World::new();
    w.runtime = FakeRuntime::gated();
    w.runtime.gate.add_permits(2);
    let first = w.start().await;
    first.create("{}", None).await;
    first.create("{}", None).await;
    let creating = tokio::spawn({
        let registry = first.registry.clone();
        async move { registry.create(CreateSessionRequest::default(), Some("key")).await }
    });
    settle().await;
    assert_eq!(first.registry.leave_all().await, 2);
    assert!(creating.await.unwrap().is_err());
    let refused = first.registry.create(CreateSessionRequest::default(), None).await;
    assert!(matches!(refused, Err(SessionError::Limit { .. })));
    assert_eq!(w.runtime.alive(), 2);
    let second = w.start().await;
    assert_eq!(second.recovered, Recovered { adopted: 2, ..Recovered::default() });
}

#[tokio::test(start_paused = true)]
async fn more_sessions_than_there_may_be_now_are_all_kept_and_no_more_are_let_in() {
    let mut w = World::new();
    let first = w.start().await;
    for _ in 0..50 {
        first.create("{}", None).await;
    }
    w.config.max_sessions = 10;
    let second = w.start().await;
    assert_eq!(second.recovered.adopted, 50);
    let refused = second.registry.create(CreateSessionRequest::default(), None).await;
    assert!(matches!(refused, Err(SessionError::Limit { .. })));
}

#[tokio::test(start_paused = true)]
async fn tombstones_are_forgotten_an_hour_after_the_end_whoever_saw_it() {
    let mut w = World::new();
    let first = w.start().await;
    let id = first.create("{}", None).await.id;
    first.registry.destroy(&id).await.unwrap();
    drop(first);
    w.pass(3599.0).await;
    assert_eq!(w.start().await.statuses(), [SessionStatus::Destroyed]);
    w.pass(2.0).await;
    let last = w.start().await;
    assert!(last.statuses().is_empty());
    let maintenance = tokio::spawn(async move {
        last.registry.keep_written().await;
    });
    settle().await;
    maintenance.abort();
    let (_, rows) = Store::inline(&w.folder.path().join("db")).unwrap();
    assert!(rows.is_empty());
}
