//! A session as its clients hold it: look at it, begin something in it, ask for its end.

use std::sync::Arc;
use std::time::Duration;

use shared_protocol::SessionId;
use shared_protocol::api::SessionView;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::shared::{Begin, Shared};
use super::{Activity, End, Phase, SessionError};
use crate::runner_client::RunnerClient;

/// How long a request waits for a session that is still being made or woken.
pub const BEGIN_WAIT: Duration = Duration::from_secs(60);

/// How long a destroy waits for the runtime. The sandbox is over for its clients at once; the driver goes on after it.
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

    pub(crate) fn facts(&self) -> &super::shared::Facts {
        &self.0.facts
    }

    /// Of one that runs. To look is no use of it: its time goes on.
    pub fn runner(&self) -> Option<RunnerClient> {
        self.0.runner()
    }

    /// Begins something in the sandbox. Two locks and no wait where the session runs; a paused one is woken, and one that is
    /// being made is waited for, up to `BEGIN_WAIT`.
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

    /// Waits until the create has come to its end, which the driver bounds.
    pub async fn created(&self) -> Result<SessionView, SessionError> {
        let mut phases = self.0.watch();
        let refusal = match phases.wait_for(|phase| *phase != Phase::Creating).await {
            Ok(phase) => phase.refusal(self.id()),
            Err(_) => Some(SessionError::NotFound(self.id().clone())),
        };
        refusal.map_or_else(|| Ok(self.view()), Err)
    }

    /// Freezes it, with its detached commands and background jobs; the next request that needs the sandbox wakes it. Refused
    /// while requests are in flight. The driver answers in bounded time, unless the session ends.
    pub async fn pause(&self) -> Result<SessionView, SessionError> {
        self.created().await?;
        let mut phases = self.0.watch();
        let (asked, outcome) = oneshot::channel();
        let answer = async {
            match self.0.pause_asked.send(asked).await {
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

    /// Wakes it, if it sleeps; counts as use.
    pub async fn resume(&self) -> Result<SessionView, SessionError> {
        drop(self.begin().await?);
        Ok(self.view())
    }

    pub fn ask_destroy(&self) {
        self.0.destroy_asked.notify_one();
    }

    /// Ends the session and waits until nothing of it is left.
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

    /// Of one whose driver has ended: a client that deletes a crashed session has seen it.
    pub(super) fn mark_destroyed(&self) {
        if self.0.phase().is_final() {
            self.0.set_phase(Phase::Ended(End::Destroyed));
        }
    }
}
