//! Sandboxes of the daemon's own, one for each workspace whose files are asked for while no session runs there.
//!
//! A keeper is an ordinary session that no client knows: the same driver makes it, expires it and removes it.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::json;
use shared_protocol::WorkspaceId;
use shared_protocol::api::{NetworkMode, ResourcesView};

use super::dirs::{User, WorkspaceDirs};
use crate::session::{Activity, Plan, Registry, SessionError, SessionHandle};

const MAX_KEEPERS: usize = 16;
const KEEPER_IDLE: Duration = Duration::from_secs(10);
/// One may end in the moment it is found; the next is new.
const BEGIN_ATTEMPTS: usize = 3;
/// Enough for file operations, which run one process each.
const KEEPER_RESOURCES: ResourcesView = ResourcesView { cpus: 1.0, memory_mb: 256, pids: 128, disk_mb: 64 };

pub struct Keepers {
    registry: Registry,
    dirs: WorkspaceDirs,
    by_workspace: Arc<Mutex<HashMap<WorkspaceId, SessionHandle>>>,
}

fn locked(map: &Mutex<HashMap<WorkspaceId, SessionHandle>>) -> MutexGuard<'_, HashMap<WorkspaceId, SessionHandle>> {
    map.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Keepers {
    pub fn new(registry: Registry, dirs: WorkspaceDirs) -> Self {
        Self { registry, dirs, by_workspace: Arc::default() }
    }

    pub async fn begin(&self, id: &WorkspaceId) -> Result<Activity, SessionError> {
        let mut last = None;
        for _ in 0..BEGIN_ATTEMPTS {
            let keeper = self.find_or_start(id)?;
            match keeper.begin().await {
                Ok(activity) => return Ok(activity),
                Err(error @ (SessionError::Expired(_) | SessionError::NotFound(_) | SessionError::Lost { .. })) => {
                    // Until its driver has removed it, the place is taken by one that takes no more requests.
                    keeper.destroy().await?;
                    last = Some(error);
                }
                Err(error) => return Err(error),
            }
        }
        Err(last.unwrap_or_else(|| SessionError::Internal("no sandbox for the workspace".into())))
    }

    fn find_or_start(&self, id: &WorkspaceId) -> Result<SessionHandle, SessionError> {
        let mut keepers = locked(&self.by_workspace);
        if let Some(keeper) = keepers.get(id) {
            return Ok(keeper.clone());
        }
        if keepers.len() >= MAX_KEEPERS {
            return Err(SessionError::Limit {
                message: format!("files of {MAX_KEEPERS} workspaces are being looked at; try again in a few seconds"),
                details: json!({ "what": "workspaces looked at", "limit": MAX_KEEPERS }),
            });
        }
        let plan = Plan {
            image: self.registry.default_image().to_owned(),
            runtime: None,
            workspace: Some(id.clone()),
            env: BTreeMap::new(),
            labels: BTreeMap::new(),
            resources: KEEPER_RESOURCES,
            network: NetworkMode::None,
            writable_root: false,
            lifetime: KEEPER_IDLE,
            idle_pause: None,
        };
        let (map, workspace) = (self.by_workspace.clone(), id.clone());
        let keeper = self.registry.start_internal(
            plan,
            |keeper| self.dirs.claim(id, User::Keeper(keeper.clone())),
            move || drop(locked(&map).remove(&workspace)),
        )?;
        keepers.insert(id.clone(), keeper.clone());
        Ok(keeper)
    }

    /// Ends the one of this workspace, whatever it does.
    pub async fn end(&self, id: &WorkspaceId) -> Result<(), SessionError> {
        let keeper = locked(&self.by_workspace).get(id).cloned();
        match keeper {
            Some(keeper) => keeper.destroy().await,
            None => Ok(()),
        }
    }

    pub async fn end_all(&self) {
        let all: Vec<SessionHandle> = locked(&self.by_workspace).values().cloned().collect();
        let ends = all.into_iter().map(|keeper| async move {
            if let Err(cause) = keeper.destroy().await {
                tracing::warn!(session_id = %keeper.id(), %cause, "sandbox of a workspace is left");
            }
        });
        futures_util::future::join_all(ends).await;
    }
}
