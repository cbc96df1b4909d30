//! Named directories that outlive sessions.
//!
//! What is inside one is hostile: links, devices, names of any bytes. So the daemon never opens anything in there. To read and
//! write files while no session runs, it starts a sandbox of its own with the workspace mounted, a keeper, and speaks to the
//! runner in it as it does for sessions. Keepers are bounded, end when idle, and are neither listed nor counted as sessions.

mod dirs;
mod keepers;
pub mod quota;
mod remove;
mod usage;

use std::sync::Arc;

use shared_protocol::WorkspaceId;
use shared_protocol::api::WorkspaceView;

pub use dirs::{User, WorkspaceClaim, WorkspaceDirs};
use keepers::Keepers;

use crate::session::{Activity, Phase, Registry, SessionError};

/// How often a delete by force goes round: each time it destroys who is there, and others may have come meanwhile.
const FORCE_ATTEMPTS: usize = 5;

/// Files that one listing looks at to tell sizes, in all workspaces together.
const MAX_ENTRIES_COUNTED: usize = 50_000;

#[derive(Clone)]
pub struct Workspaces(Arc<Inner>);

struct Inner {
    dirs: WorkspaceDirs,
    registry: Registry,
    keepers: Keepers,
}

impl Workspaces {
    pub fn new(dirs: WorkspaceDirs, registry: Registry) -> Self {
        let keepers = Keepers::new(registry.clone(), dirs.clone());
        Self(Arc::new(Inner { dirs, registry, keepers }))
    }

    /// Removes what deletions of an earlier daemon left.
    pub async fn sweep(&self) {
        let trash = self.0.dirs.trash();
        let swept = tokio::task::spawn_blocking(move || remove::empty_trash(&trash)).await;
        if let Some(cause) = swept.map_err(std::io::Error::other).and_then(|swept| swept).err() {
            tracing::warn!(%cause, "deleted workspaces are not all removed yet");
        }
    }

    pub async fn list(&self) -> Result<Vec<WorkspaceView>, SessionError> {
        let dirs = self.0.dirs.clone();
        let look = move || {
            let mut budget = usage::Budget(MAX_ENTRIES_COUNTED);
            let found = dirs.list()?.into_iter();
            Ok(found.map(|(id, made)| (dirs.used_bytes(&id, &mut budget), id, made)).collect::<Vec<_>>())
        };
        let found = tokio::task::spawn_blocking(look).await.map_err(std::io::Error::other);
        let found = found
            .and_then(|found| found)
            .map_err(|e| SessionError::Internal(format!("workspaces could not be listed: {e}")))?;
        let views = found.into_iter().map(|(size_bytes, id, made)| {
            let mut sessions: Vec<_> = self.0.registry.using(&id).iter().map(|handle| handle.id().clone()).collect();
            sessions.sort();
            WorkspaceView { id, created_at: crate::session::show_wall(made), sessions, size_bytes }
        });
        Ok(views.collect())
    }

    /// Begins a file operation in the workspace: in a session that runs there, or in a keeper.
    pub async fn begin(&self, id: &WorkspaceId) -> Result<Activity, SessionError> {
        if !self.0.dirs.exists(id) {
            return Err(SessionError::WorkspaceNotFound(id.clone()));
        }
        let sessions = self.0.registry.using(id);
        for session in sessions.into_iter().filter(|session| session.phase() == Phase::Running) {
            if let Ok(activity) = session.begin().await {
                return Ok(activity);
            }
        }
        self.0.keepers.begin(id).await
    }

    /// Refused while sessions use it, unless `force`, which destroys them.
    pub async fn delete(&self, id: &WorkspaceId, force: bool) -> Result<(), SessionError> {
        if !self.0.dirs.exists(id) {
            return Err(SessionError::WorkspaceNotFound(id.clone()));
        }
        for _ in 0..FORCE_ATTEMPTS {
            let users = match self.0.dirs.begin_delete(id) {
                Ok(deletion) => return self.remove(id, deletion).await,
                Err(users) => users,
            };
            if users.is_empty() {
                return Err(SessionError::Conflict(format!("workspace {id} is being deleted already")));
            }
            let sessions: Vec<String> = users.iter().filter_map(session_of).map(ToString::to_string).collect();
            if !sessions.is_empty() && !force {
                let message = format!(
                    "workspace {id} is in use by {}; destroy them, or delete it with ?force=1",
                    sessions.join(", ")
                );
                return Err(SessionError::Conflict(message));
            }
            self.0.keepers.end(id).await?;
            for session in users.iter().filter_map(session_of) {
                match self.0.registry.destroy(session).await {
                    Ok(()) | Err(SessionError::NotFound(_)) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Err(SessionError::Conflict(format!("workspace {id} is taken into use as fast as it is freed")))
    }

    async fn remove(&self, id: &WorkspaceId, deletion: dirs::Deletion) -> Result<(), SessionError> {
        let dirs = self.0.dirs.clone();
        let discarded = tokio::task::spawn_blocking(move || dirs.discard(&deletion)).await;
        let project = match discarded.map_err(std::io::Error::other).and_then(|discarded| discarded) {
            Ok(project) => project,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(SessionError::WorkspaceNotFound(id.clone()));
            }
            Err(error) => return Err(SessionError::Internal(format!("workspace {id} could not be deleted: {error}"))),
        };
        // It is gone for everybody. What is left is work, and a failure is for the log and the next start.
        self.sweep().await;
        if let Some(cause) = project.and_then(|project| project.close().err()) {
            tracing::warn!(workspace_id = %id, %cause, "the quota of a deleted workspace stays");
        }
        Ok(())
    }

    /// Ends the daemon's own sandboxes.
    pub async fn end_all(&self) {
        self.0.keepers.end_all().await;
    }
}

fn session_of(user: &User) -> Option<&shared_protocol::SessionId> {
    match user {
        User::Session(id) => Some(id),
        User::Keeper(_) => None,
    }
}

#[cfg(test)]
#[path = "workspace_test.rs"]
mod tests;
