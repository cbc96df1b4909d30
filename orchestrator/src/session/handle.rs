//! A client's handle to a session: describe it, begin an activity in it, end it.

use std::sync::Arc;
use std::time::Duration;

use shared_protocol::SessionId;
use shared_protocol::api::SessionView;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, timeout};

use super::facts::Facts;
use super::resolve::Update;
use super::shared::{Begin, Shared};
use super::{Activity, EndReason, Phase, SessionError};
use crate::network::SessionNetwork;
use crate::runner_client::RunnerClient;
use crate::spec::LinkGenerations;

/// The longest time that a request waits for a session that is still being created or woken.
pub const BEGIN_WAIT: Duration = Duration::from_secs(60);

/// The longest time that a destroy waits for the runtime. For clients the session ends at once; the driver continues in the
/// background.
pub const DESTROY_WAIT: Duration = Duration::from_secs(15);

#[derive(Debug, Clone)]
pub struct SessionHandle(pub(super) Arc<Shared>);

impl SessionHandle {
    pub fn id(&self) -> &SessionId {
        &self.0.facts.id
    }

    pub fn view(&self) -> SessionView {
        self.0.view()
    }

    pub fn phase(&self) -> Phase {
        self.0.phase()
    }

    /// What the session may reach, and what was decided about that.
    pub fn network(&self) -> &Arc<SessionNetwork> {
        &self.0.network
    }

    /// The generations of links to the session's ports, now and whenever some are taken back.
    pub fn links(&self) -> watch::Receiver<LinkGenerations> {
        self.0.links.subscribe()
    }

    /// Resolves when the session is over.
    pub fn over(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut phases = self.0.watch();
        let id = self.id().clone();
        async move {
            let _ = phases.wait_for(|phase| phase.refusal(&id).is_some()).await;
        }
    }

    pub(crate) fn facts(&self) -> &Facts {
        &self.0.facts
    }

    /// When the session was used last. `None` while it is in use.
    pub fn idle_since(&self) -> Option<Instant> {
        self.0.idle_since()
    }

    /// The runner of a running session. Using it does not count as activity, so the session can expire meanwhile.
    pub fn runner(&self) -> Option<RunnerClient> {
        self.0.runner()
    }

    /// Begins an activity in the sandbox. In a running session this takes two locks and no wait. A paused session is woken,
    /// and a session that is being created is waited for, up to `BEGIN_WAIT`.
    pub async fn begin(&self) -> Result<Activity, SessionError> {
        match self.0.begin() {
            Begin::Begun(activity) => Ok(activity),
            Begin::Refused(error) => Err(error),
            Begin::Wait | Begin::Resume => self.begin_later().await,
        }
    }

    async fn begin_later(&self) -> Result<Activity, SessionError> {
        let mut phases = self.0.watch();
        let waiting = async {
            loop {
                phases.mark_unchanged();
                match self.0.begin() {
                    Begin::Begun(activity) => return Ok(activity),
                    Begin::Refused(error) => return Err(error),
                    Begin::Resume => self.0.resume_asked.notify_one(),
                    Begin::Wait => {}
                }
                if phases.changed().await.is_err() {
                    return Err(SessionError::NotFound(self.id().clone()));
                }
            }
        };
        timeout(BEGIN_WAIT, waiting).await.unwrap_or_else(|_| {
            let reason = format!("it was not ready within {} s", BEGIN_WAIT.as_secs());
            Err(SessionError::Lost { id: self.id().clone(), reason })
        })
    }

    /// Waits until the create has succeeded or failed. The driver limits the time.
    pub async fn created(&self) -> Result<SessionView, SessionError> {
        let mut phases = self.0.watch();
        let refusal = match phases.wait_for(|phase| *phase != Phase::Creating).await {
            Ok(phase) => phase.refusal(self.id()),
            Err(_) => Some(SessionError::NotFound(self.id().clone())),
        };
        refusal.map_or_else(|| Ok(self.view()), Err)
    }

    /// Waits until the sandbox is in its pool. The driver limits the time.
    pub(super) async fn pooled(&self) -> Result<RunnerClient, SessionError> {
        let mut phases = self.0.watch();
        let over = match phases.wait_for(|phase| *phase != Phase::Filling).await {
            Ok(phase) => phase.refusal(self.id()),
            Err(_) => None,
        };
        self.0.pooled_runner().ok_or_else(|| over.unwrap_or_else(|| SessionError::NotFound(self.id().clone())))
    }

    /// Freezes the session with its detached commands and background jobs; the next request that needs the sandbox wakes it.
    /// This is refused while requests are in flight. The driver answers in bounded time, unless the session ends.
    pub async fn pause(&self) -> Result<SessionView, SessionError> {
        self.ask_driver(&self.0.pause_asked, |asked| asked).await
    }

    /// Changes lifetime and labels, and starts the idle time again. A paused session stays paused.
    pub async fn update(&self, update: Update) -> Result<SessionView, SessionError> {
        self.ask_driver(&self.0.update_asked, |asked| (update, asked)).await
    }

    /// Has the driver do something once the session is created. The session's end is an answer too.
    async fn ask_driver<T>(
        &self,
        requests: &mpsc::Sender<T>,
        request: impl FnOnce(oneshot::Sender<Result<(), SessionError>>) -> T,
    ) -> Result<SessionView, SessionError> {
        self.created().await?;
        let mut phases = self.0.watch();
        let (asked, outcome) = oneshot::channel();
        let answer = async {
            match requests.send(request(asked)).await {
                Ok(()) => outcome.await.ok(),
                Err(_) => None,
            }
        };
        let over = phases.wait_for(|phase| phase.refusal(self.id()).is_some());
        tokio::select! {
            biased;
            Some(outcome) = answer => outcome.map(|()| self.view()),
            over = over => {
                let refusal = over.ok().and_then(|phase| phase.refusal(self.id()));
                Err(refusal.unwrap_or_else(|| SessionError::NotFound(self.id().clone())))
            }
        }
    }

    /// Wakes the session if it is paused. This counts as activity.
    pub async fn resume(&self) -> Result<SessionView, SessionError> {
        drop(self.begin().await?);
        Ok(self.view())
    }

    pub fn ask_destroy(&self) {
        self.0.destroy_asked.notify_one();
    }

    /// Ends the session and waits until nothing is left of it.
    pub async fn destroy(&self) -> Result<(), SessionError> {
        let mut phases = self.0.watch();
        self.ask_destroy();
        match timeout(DESTROY_WAIT, phases.wait_for(Phase::is_final)).await {
            Ok(_) => Ok(()),
            Err(_) => Err(SessionError::Internal(format!(
                "session {} is over, but its sandbox could not be removed yet; that is being tried again",
                self.id()
            ))),
        }
    }

    /// Marks a session whose driver has ended as destroyed: a client that deletes a crashed session has seen the crash.
    pub(super) fn mark_destroyed(&self) {
        if self.0.phase().is_final() {
            self.0.set_phase(Phase::Ended(EndReason::Destroyed));
        }
    }
}
