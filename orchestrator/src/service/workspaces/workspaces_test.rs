//! Tests of workspaces over a fake runtime.

use std::sync::Arc;
use std::time::Duration;

use shared_protocol::WorkspaceId;
use shared_protocol::api::CreateSessionRequest;

use super::*;
use crate::config::SessionsConfig;
use crate::metrics::Metrics;
use crate::runtime::Purpose;
use crate::session::fake::FakeRuntime;
use crate::session::{RegistryParts, SessionFilter};

struct World {
    workspaces: Workspaces,
    registry: Registry,
    runtime: Arc<FakeRuntime>,
    folder: tempfile::TempDir,
}

fn world() -> World {
    let folder = tempfile::tempdir().unwrap();
    let runtime = FakeRuntime::new();
    let dirs = WorkspaceDirs::open(folder.path().to_owned()).unwrap();
    let parts = RegistryParts {
        network: crate::network::Network::for_test(),
        runtimes: vec![runtime.clone()],
        config: SessionsConfig::default(),
        snapshots: crate::config::SnapshotsConfig::default(),
        workspaces: dirs.clone(),
        metrics: Metrics::new(),
        store: crate::store::Store::in_memory(),
        clock: crate::session::Clock::start(),
    };
    let registry = Registry::new(parts).unwrap();
    World { workspaces: Workspaces::new(dirs, registry.clone()), registry, runtime, folder }
}

fn id(name: &str) -> WorkspaceName {
    WorkspaceName { owner: KeyName::first(), id: WorkspaceId::new(name).unwrap() }
}

impl World {
    async fn session_in(&self, name: &str) -> shared_protocol::SessionId {
        let request = CreateSessionRequest { workspace_id: Some(id(name).id), ..CreateSessionRequest::default() };
        self.registry.create(request, None).await.unwrap().id
    }
}

#[tokio::test(start_paused = true)]
async fn a_workspace_is_made_by_its_first_session_and_listed_with_its_sessions() {
    let w = world();
    assert!(w.workspaces.list(None).await.unwrap().is_empty());
    let session = w.session_in("w").await;
    let mount = w.runtime.state().last_spec.clone().unwrap().workspace.unwrap();
    assert_eq!(mount.directory().unwrap(), w.folder.path().join("w"));
    let listed = w.workspaces.list(None).await.unwrap();
    assert_eq!((listed[0].id.clone(), listed[0].sessions.clone()), (id("w").id, vec![session.clone()]));
    w.registry.destroy(&session).await.unwrap();
    assert!(w.workspaces.list(None).await.unwrap()[0].sessions.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_workspace_in_use_is_deleted_only_by_force_which_destroys_its_sessions() {
    let w = world();
    let session = w.session_in("w").await;
    let refused = w.workspaces.delete(&id("w"), false).await.unwrap_err();
    assert!(matches!(refused, SessionError::Conflict(message) if message.contains(session.as_str())));
    w.workspaces.delete(&id("w"), true).await.unwrap();
    assert!(w.registry.list(&SessionFilter::default()).is_empty());
    assert!(!w.folder.path().join("w").exists());
    assert_eq!(w.workspaces.delete(&id("w"), false).await, Err(SessionError::WorkspaceNotFound(id("w").id)));
}

#[tokio::test(start_paused = true)]
async fn files_are_not_reached_through_a_session_that_runs_there() {
    let w = world();
    let session = w.session_in("w").await;
    assert_eq!(w.runtime.state().last_spec.as_ref().unwrap().purpose, Purpose::Session);
    assert_ne!(*w.workspaces.begin(&id("w")).await.unwrap().session_id(), session);
    let spec = w.runtime.state().last_spec.clone().unwrap();
    let mount = spec.workspace.unwrap();
    assert_eq!(
        (spec.purpose, mount.directory().unwrap()),
        (Purpose::WorkspaceFiles, w.folder.path().join("w").as_path())
    );
}

#[tokio::test(start_paused = true)]
async fn without_a_session_a_sandbox_is_started_that_nobody_sees_and_that_ends_when_idle() {
    let w = world();
    let session = w.session_in("w").await;
    w.registry.destroy(&session).await.unwrap();
    let first = w.workspaces.begin(&id("w")).await.unwrap();
    let second = w.workspaces.begin(&id("w")).await.unwrap();
    assert_eq!(first.session_id(), second.session_id());
    assert_eq!((w.runtime.alive(), w.registry.in_use()), (1, 0));
    assert!(w.registry.list(&SessionFilter::default()).is_empty());
    drop((first, second));
    tokio::time::advance(Duration::from_millis(30_001)).await;
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(w.runtime.alive(), 0);
    let third = w.workspaces.begin(&id("w")).await.unwrap();
    drop(third);
    assert_eq!(w.runtime.state().creates, 3, "the session and two workspace sandboxes, one after the other");
    w.workspaces.delete(&id("w"), false).await.expect("a workspace sandbox does not count as use");
    assert_eq!(w.runtime.alive(), 0);
}

#[tokio::test(start_paused = true)]
async fn workspace_sandboxes_are_bounded_and_an_unknown_workspace_has_none() {
    let w = world();
    assert_eq!(w.workspaces.begin(&id("no")).await.unwrap_err(), SessionError::WorkspaceNotFound(id("no").id));
    for n in 0..17 {
        std::fs::create_dir(w.folder.path().join(format!("w{n}"))).unwrap();
    }
    let mut held = Vec::new();
    for n in 0..16 {
        held.push(w.workspaces.begin(&id(&format!("w{n}"))).await.unwrap());
    }
    assert!(matches!(w.workspaces.begin(&id("w16")).await, Err(SessionError::Limit { .. })));
    // The end of one call is enough: its sandbox makes room.
    let idle = held.remove(7).session_id().clone();
    held.push(w.workspaces.begin(&id("w16")).await.unwrap());
    assert!(!w.runtime.state().alive.contains_key(&idle));
    assert_eq!(w.runtime.alive(), 16);
    w.workspaces.end_all().await;
    assert_eq!(w.runtime.alive(), 0);
}

#[tokio::test(start_paused = true)]
async fn files_of_one_workspace_that_are_asked_for_at_once_are_reached_through_one_sandbox() {
    let w = world();
    std::fs::create_dir(w.folder.path().join("w")).unwrap();
    let workspace = id("w");
    let begins = (0..20).map(|_| w.workspaces.begin(&workspace));
    let activities: Vec<Activity> =
        futures_util::future::join_all(begins).await.into_iter().map(Result::unwrap).collect();
    assert!(activities.iter().all(|activity| activity.session_id() == activities[0].session_id()));
    assert_eq!(w.runtime.state().creates, 1);
}

#[tokio::test(start_paused = true)]
async fn a_workspace_that_is_deleted_while_its_files_are_asked_for_does_not_come_back() {
    let w = world();
    std::fs::create_dir(w.folder.path().join("w")).unwrap();
    w.workspaces.require(&id("w")).await.unwrap();
    w.workspaces.delete(&id("w"), false).await.unwrap();
    // This simulates a request that found the workspace before it was deleted.
    let begun = w.workspaces.0.sandboxes.begin(&id("w")).await;
    assert_eq!(begun.unwrap_err(), SessionError::WorkspaceNotFound(id("w").id));
    assert!(!w.folder.path().join("w").exists());
    assert_eq!(w.runtime.state().creates, 0);
}
