//! Workspace sandboxes: sandboxes that the daemon starts for workspaces whose files a client asks for.
//!
//! A workspace sandbox has an empty root with the workspace in it. No program runs there but the runner, so nothing can
//! disturb a file call. It is an internal session that no client knows: the same driver makes, expires and removes it. Their
//! number is limited: the one that is idle longest makes room for another. They are neither listed nor counted as sessions.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::json;
use shared_protocol::RuntimeName;
use shared_protocol::api::ResourcesView;

use crate::owner::WorkspaceName;
use crate::session::{Activity, Registry, SessionError, SessionHandle};
use crate::spec::SessionSpec;
use crate::workspace::{Reach, User, WorkspaceDirs};

const MAX_SANDBOXES: usize = 32;
/// The most sandboxes for the workspaces of one owner, so that nobody takes all of them.
const MAX_SANDBOXES_PER_OWNER: usize = 16;
/// How long an idle workspace sandbox is kept for the next call.
const IDLE_TIME: Duration = Duration::from_secs(30);
/// The most attempts to begin. The sandbox that is found may be about to end; the next attempt starts a new one.
const BEGIN_ATTEMPTS: usize = 3;
/// The resources of a workspace sandbox: enough for file operations, each of which is one process.
const RESOURCES: ResourcesView = ResourcesView { cpus: 1.0, memory_mb: 256, pids: 128, disk_mb: 64 };

type ByWorkspace = HashMap<WorkspaceName, SessionHandle>;

pub struct WorkspaceSandboxes {
    registry: Registry,
    dirs: WorkspaceDirs,
    /// This lock is never held during an await or a disk operation.
    by_workspace: Arc<Mutex<ByWorkspace>>,
}

fn locked(map: &Mutex<ByWorkspace>) -> MutexGuard<'_, ByWorkspace> {
    map.lock().unwrap_or_else(PoisonError::into_inner)
}

impl WorkspaceSandboxes {
    pub fn new(registry: Registry, dirs: WorkspaceDirs) -> Self {
        Self { registry, dirs, by_workspace: Arc::default() }
    }

    /// Begins an activity in the sandbox of this workspace, and starts the sandbox if there is none.
    pub async fn begin(&self, name: &WorkspaceName) -> Result<Activity, SessionError> {
        let mut last = None;
        for _ in 0..BEGIN_ATTEMPTS {
            let sandbox = self.find_or_start(name).await?;
            match sandbox.begin().await {
                Ok(activity) => return Ok(activity),
                Err(error @ (SessionError::Expired(_) | SessionError::NotFound(_) | SessionError::Lost { .. })) => {
                    // The sandbox takes no more requests, but stays in the map until its driver has removed it.
                    sandbox.destroy().await?;
                    last = Some(error);
                }
                Err(error) => return Err(error),
            }
        }
        Err(last.unwrap_or_else(|| SessionError::Internal("no sandbox for the workspace".into())))
    }

    async fn find_or_start(&self, name: &WorkspaceName) -> Result<SessionHandle, SessionError> {
        if let Some(found) = locked(&self.by_workspace).get(name) {
            return Ok(found.clone());
        }
        let runtime = match self.dirs.needs(name).await? {
            Reach::Paths => self.registry.default_runtime().clone(),
            Reach::Disks => RuntimeName::local(),
        };
        let spec = Arc::new(SessionSpec {
            owner: name.owner.clone(),
            workspace: Some(name.id.clone()),
            ..SessionSpec::plain(self.registry.default_image(), runtime, RESOURCES, IDLE_TIME)
        });
        self.registry.check(&spec).await?;
        self.make_room(name).await?;
        let mut sandboxes = locked(&self.by_workspace);
        // Another request may have started a sandbox in the meantime.
        if let Some(found) = sandboxes.get(name) {
            return Ok(found.clone());
        }
        let of_owner = sandboxes.keys().filter(|other| other.owner == name.owner).count();
        if of_owner >= MAX_SANDBOXES_PER_OWNER || sandboxes.len() >= MAX_SANDBOXES {
            let limit = MAX_SANDBOXES_PER_OWNER;
            return Err(SessionError::Limit {
                message: format!("files of {limit} workspaces are in use; try again when a call has ended"),
                details: json!({ "what": "workspaces whose files are in use", "limit": limit }),
            });
        }
        let (map, workspace) = (self.by_workspace.clone(), name.clone());
        let sandbox = self.registry.start_internal(
            spec,
            |sandbox| self.dirs.hold(name, User::WorkspaceSandbox(sandbox.clone())),
            move || drop(locked(&map).remove(&workspace)),
        )?;
        sandboxes.insert(name.clone(), sandbox.clone());
        Ok(sandbox)
    }

    /// If there are as many sandboxes as there may be, ends the one that is idle longest: of the same owner, if that owner has as
    /// many as it may have.
    async fn make_room(&self, name: &WorkspaceName) -> Result<(), SessionError> {
        let idle = {
            let sandboxes = locked(&self.by_workspace);
            let is_own = |other: &WorkspaceName| other.owner == name.owner;
            let is_owner_full = sandboxes.keys().filter(|other| is_own(other)).count() >= MAX_SANDBOXES_PER_OWNER;
            if !is_owner_full && sandboxes.len() < MAX_SANDBOXES {
                return Ok(());
            }
            let candidates = sandboxes.iter().filter(|(other, _)| !is_owner_full || is_own(other));
            let idle = candidates.filter_map(|(_, sandbox)| Some((sandbox.idle_since()?, sandbox)));
            idle.min_by_key(|(since, _)| *since).map(|(_, sandbox)| sandbox.clone())
        };
        match idle {
            Some(sandbox) => sandbox.destroy().await,
            None => Ok(()),
        }
    }

    /// Ends the sandbox of this workspace, even if it is in use.
    pub async fn end(&self, name: &WorkspaceName) -> Result<(), SessionError> {
        let sandbox = locked(&self.by_workspace).get(name).cloned();
        match sandbox {
            Some(sandbox) => sandbox.destroy().await,
            None => Ok(()),
        }
    }

    pub async fn end_all(&self) {
        let all: Vec<SessionHandle> = locked(&self.by_workspace).values().cloned().collect();
        let ends = all.into_iter().map(|sandbox| async move {
            if let Err(cause) = sandbox.destroy().await {
                tracing::warn!(session_id = %sandbox.id(), %cause, "workspace sandbox could not be removed");
            }
        });
        futures_util::future::join_all(ends).await;
    }
}
