//! One request in a session, from begin to end.

use std::future::Future;
use std::sync::Arc;

use shared_protocol::SessionId;
use tokio::sync::watch;

use super::shared::Shared;
use super::{Phase, SessionError};
use crate::network::SessionNetwork;
use crate::runner_client::RunnerClient;

/// Counts as activity until it is dropped: the session cannot expire meanwhile, and its idle time restarts at the begin and
/// at the end. It does not keep the session from being destroyed or from crashing: `ended` reports that.
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

    /// What programs of the session may reach, and what they were denied.
    pub fn network(&self) -> &Arc<SessionNetwork> {
        &self.shared.network
    }

    /// Sets the directory of the shell `main` after a command has ended.
    pub fn set_cwd(&self, cwd: &str) {
        self.shared.set_cwd(cwd);
    }

    /// Counts a detached command as activity until the value is dropped; see [`DetachedActivity`].
    pub fn detach(&self) -> Option<DetachedActivity> {
        self.shared.begin_detached()
    }

    /// Resolves when the session is over (being destroyed, expired, crashed), with the error for its requests. Until then it
    /// stays pending.
    pub fn ended(&self) -> impl Future<Output = SessionError> + Send + 'static {
        let mut phases = self.shared.watch();
        let id = self.shared.facts.id.clone();
        async move {
            // An error means that the session itself is gone, which is impossible while `self` lives.
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

/// A detached command that still runs. The session cannot expire meanwhile, unless it is paused: a pause freezes the
/// command.
#[derive(Debug)]
pub struct DetachedActivity {
    shared: Arc<Shared>,
}

impl DetachedActivity {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Sets the directory of the shell `main` after a command has ended.
    pub fn set_cwd(&self, cwd: &str) {
        self.shared.set_cwd(cwd);
    }

    /// Waits while the session is paused. The returned value tells whether it is paused later.
    pub async fn awake(&self) -> PauseWatch {
        let mut phases = self.shared.watch();
        // An error means that the session itself is gone, which is impossible while `self` lives.
        let _ = phases.wait_for(|phase| *phase != Phase::Paused).await;
        phases.mark_unchanged();
        PauseWatch(phases)
    }
}

/// Tells whether a session was paused since the value was made.
#[derive(Debug)]
pub struct PauseWatch(watch::Receiver<Phase>);

impl PauseWatch {
    pub fn was_paused(&self) -> bool {
        // A session that was awake changes its phase to be paused, or to end.
        self.0.has_changed().unwrap_or(true)
    }
}

impl Drop for DetachedActivity {
    fn drop(&mut self) {
        self.shared.end_detached();
    }
}
