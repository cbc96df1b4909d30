//! One request in a session, from its beginning to its end.

use std::future::Future;
use std::sync::Arc;

use shared_protocol::SessionId;

use super::SessionError;
use super::shared::Shared;
use crate::runner_client::RunnerClient;

/// Counts as activity until dropped: the session cannot expire under it, and its time restarts at the beginning and at the
/// end. It does not keep the session from being destroyed or from crashing: `ended` tells.
#[derive(Debug)]
pub struct Activity {
    shared: Arc<Shared>,
    runner: RunnerClient,
}

impl Activity {
    pub(super) fn new(shared: Arc<Shared>, runner: RunnerClient) -> Self {
        Self { shared, runner }
    }

    pub fn runner(&self) -> &RunnerClient {
        &self.runner
    }

    pub fn session_id(&self) -> &SessionId {
        &self.shared.facts.id
    }

    /// Of the shell `main`, after a command that ended.
    pub fn set_cwd(&self, cwd: &str) {
        self.shared.set_cwd(cwd);
    }

    /// Counts a command that goes on without a request, until the value is dropped; see [`DetachedActivity`].
    pub fn detach(&self) -> Option<DetachedActivity> {
        self.shared.begin_detached()
    }

    /// Resolves when the session is over (being destroyed, expired, crashed), with the error that its requests answer with.
    /// Never otherwise.
    pub fn ended(&self) -> impl Future<Output = SessionError> + Send + 'static {
        let mut phases = self.shared.watch();
        let id = self.shared.facts.id.clone();
        async move {
            // An error means that the session itself is gone, which cannot be while `self` lives.
            let over = phases.wait_for(|phase| phase.refusal(&id).is_some()).await;
            let refusal = over.ok().and_then(|phase| phase.refusal(&id));
            refusal.unwrap_or(SessionError::NotFound(id))
        }
    }
}

impl Drop for Activity {
    fn drop(&mut self) {
        self.shared.end_activity();
    }
}

/// A detached command that still runs. The session cannot expire under it, unless it is paused: a pause freezes the command.
#[derive(Debug)]
pub struct DetachedActivity {
    shared: Arc<Shared>,
}

impl DetachedActivity {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Of the shell `main`, after a command that ended.
    pub fn set_cwd(&self, cwd: &str) {
        self.shared.set_cwd(cwd);
    }
}

impl Drop for DetachedActivity {
    fn drop(&mut self) {
        self.shared.end_detached();
    }
}
