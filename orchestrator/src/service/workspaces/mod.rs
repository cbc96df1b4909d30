//! Use cases for workspaces: list them, access their files, delete them.
//!
//! The files of a workspace are accessed through a workspace sandbox (`sandboxes`), which has the workspace and nothing else.
//! The content of a workspace is hostile, so the daemon itself opens nothing there. A session that uses the workspace is
//! hostile too, and can stop or slow down every process in its own sandbox, so no call goes through it.

mod sandboxes;

use std::sync::Arc;

use shared_protocol::api::WorkspaceView;
use shared_protocol::{KeyName, RuntimeName, SessionId};

use self::sandboxes::WorkspaceSandboxes;
use crate::owner::WorkspaceName;
use crate::session::{Activity, Registry, SessionError, show_wall};
use crate::workspace::{Deletion, Reach, User, WorkspaceDirs};

/// How often a forced delete tries again. Each attempt destroys the sessions in the workspace, and new ones may have started
/// meanwhile.
const FORCE_ATTEMPTS: usize = 5;

/// What holds a workspace while it is made. No session has such an id.
const MAKER: &str = "the-maker-of-this-workspace";

#[derive(Clone)]
pub struct Workspaces(Arc<Inner>);

struct Inner {
    dirs: WorkspaceDirs,
    registry: Registry,
    sandboxes: WorkspaceSandboxes,
}

impl Workspaces {
    pub fn new(dirs: WorkspaceDirs, registry: Registry) -> Self {
        let sandboxes = WorkspaceSandboxes::new(registry.clone(), dirs.clone());
        Self(Arc::new(Inner { dirs, registry, sandboxes }))
    }

    /// Removes what the deletions of an earlier daemon left behind.
    pub async fn sweep(&self) {
        if let Err(cause) = self.0.dirs.empty_trash().await {
            tracing::warn!(%cause, "some deleted workspaces could not be removed yet");
        }
    }

    /// Lists the workspaces of one owner, or of all, with the sessions that use them.
    pub async fn list(&self, owner: Option<&KeyName>) -> Result<Vec<WorkspaceView>, SessionError> {
        let found = self.0.dirs.list(owner).await?;
        let views = found.into_iter().map(|found| {
            let using = self.0.registry.using(&found.name);
            let mut sessions: Vec<SessionId> = using.iter().map(|handle| handle.id().clone()).collect();
            sessions.sort();
            let created_at = show_wall(found.made);
            WorkspaceView {
                id: found.name.id,
                owner: found.name.owner,
                created_at,
                sessions,
                kind: found.kind,
                size_bytes: found.size_bytes,
                limit_bytes: found.limit_bytes,
            }
        });
        Ok(views.collect())
    }

    /// Makes a workspace. One that exists stays as it is.
    pub async fn create(&self, name: &WorkspaceName) -> Result<(), SessionError> {
        // As a session does that is there only for this moment, so that nobody deletes the workspace meanwhile.
        let maker = SessionId::new(MAKER).map_err(|error| SessionError::Internal(error.to_string()))?;
        let hold = self.0.dirs.hold(name, User::Session(maker))?;
        // Sessions of the default runtime have to be able to mount it.
        let is_local = *self.0.registry.default_runtime() == RuntimeName::local();
        hold.prepare(if is_local { Reach::Disks } else { Reach::Paths }).await?;
        Ok(())
    }

    /// Begins a file operation in the workspace's sandbox.
    pub async fn begin(&self, name: &WorkspaceName) -> Result<Activity, SessionError> {
        self.require(name).await?;
        self.0.sandboxes.begin(name).await
    }

    /// Deletes a workspace. If sessions use it, this is refused, or with `force` the sessions are destroyed.
    pub async fn delete(&self, name: &WorkspaceName, force: bool) -> Result<(), SessionError> {
        self.require(name).await?;
        let id = &name.id;
        for _ in 0..FORCE_ATTEMPTS {
            let users = match self.0.dirs.begin_delete(name) {
                Ok(deletion) => return self.remove(name, deletion).await,
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
            self.0.sandboxes.end(name).await?;
            for session in users.iter().filter_map(session_of) {
                match self.0.registry.destroy(session).await {
                    Ok(()) | Err(SessionError::NotFound(_)) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Err(SessionError::Conflict(format!("workspace {id} is taken into use as fast as it is freed")))
    }

    async fn require(&self, name: &WorkspaceName) -> Result<(), SessionError> {
        if self.0.dirs.exists(name).await? { Ok(()) } else { Err(SessionError::WorkspaceNotFound(name.id.clone())) }
    }

    async fn remove(&self, name: &WorkspaceName, deletion: Deletion) -> Result<(), SessionError> {
        let project = self.0.dirs.discard(deletion).await?;
        // No client can reach the workspace any more. The rest is cleaning up: a failure is logged, and the next start tries
        // again.
        self.sweep().await;
        if let Some(cause) = project.and_then(|project| project.close().err()) {
            tracing::warn!(workspace_id = %name.id, owner = %name.owner, %cause, "the quota of a deleted workspace could not be removed");
        }
        Ok(())
    }

    /// Ends all workspace sandboxes.
    pub async fn end_all(&self) {
        self.0.sandboxes.end_all().await;
    }
}

fn session_of(user: &User) -> Option<&SessionId> {
    match user {
        User::Session(id) => Some(id),
        User::WorkspaceSandbox(_) => None,
    }
}

#[cfg(test)]
#[path = "workspaces_test.rs"]
mod tests;
