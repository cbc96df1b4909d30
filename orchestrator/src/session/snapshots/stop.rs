//! Stops a session, and starts it again. While it is stopped it keeps its place and its disk, and gives memory and processors back.

use std::sync::Arc;

use shared_protocol::api::SessionView;
use shared_protocol::runner::SandboxState;
use tokio::sync::OwnedSemaphorePermit;

use super::shell_states;
use crate::owner::{Creator, OwnerLimits};
use crate::session::driver::keep::KeepAsked;
use crate::session::registry::Demand;
use crate::session::{Phase, Registry, SessionError, SessionHandle};

impl SessionHandle {
    /// Waits until no other stop or start of this session is under way. Each of them is bounded.
    async fn keep_turn(&self) -> Result<OwnedSemaphorePermit, SessionError> {
        let turn = self.0.keep_turn.clone().acquire_owned().await;
        turn.map_err(|error| SessionError::Internal(error.to_string()))
    }
}

impl Registry {
    /// Ends the processes of a session and keeps its disk and the state of its shells. A session that is stopped already stays so.
    pub async fn stop(&self, session: &SessionHandle) -> Result<SessionView, SessionError> {
        self.runtime(&session.facts().spec.runtime)?.keeps_disks()?;
        if session.phase() == Phase::Stopped {
            return Ok(session.view());
        }
        let activity = session.begin().await?;
        // A runner that does not answer must not keep its session from being stopped: then the shells start anew.
        let state = match shell_states(&activity).await {
            Ok(state) => state,
            Err(error) => match session.phase().refusal(session.id()) {
                Some(over) => return Err(over),
                None => {
                    tracing::warn!(session_id = %session.id(), cause = %error, "session is stopped without the state of its shells");
                    SandboxState::default()
                }
            },
        };
        drop(activity);
        let state = Arc::new(state);
        let (registry, session) = (self.clone(), session.clone());
        // A task of its own, which a client that disconnects does not cut off.
        let stopping = tokio::spawn(async move {
            let _turn = session.keep_turn().await?;
            session.ask_to_keep(|done| KeepAsked::Stop { state, done }).await?;
            registry.table().park(session.id());
            Ok(session.view())
        });
        stopping.await.map_err(|error| SessionError::Internal(error.to_string()))?
    }

    /// Starts a stopped session on its old disk. A session that runs stays as it is.
    pub async fn start(&self, creator: &Creator, session: &SessionHandle) -> Result<SessionView, SessionError> {
        let (registry, session, creator) = (self.clone(), session.clone(), creator.clone());
        // A task of its own, which a client that disconnects does not cut off.
        let starting = tokio::spawn(async move { registry.start_in_turn(&creator, &session).await });
        starting.await.map_err(|error| SessionError::Internal(error.to_string()))?
    }

    async fn start_in_turn(&self, creator: &Creator, session: &SessionHandle) -> Result<SessionView, SessionError> {
        let turn = session.keep_turn().await?;
        match session.phase() {
            Phase::Stopped => {}
            Phase::Creating | Phase::Running | Phase::Paused => {
                drop(turn);
                return session.created().await;
            }
            over => {
                let gone = || SessionError::NotFound(session.id().clone());
                return Err(over.refusal(session.id()).unwrap_or_else(gone));
            }
        }
        self.unpark(session, Demand::of(&session.facts().spec.resources), creator)?;
        if let Err(error) = session.ask_to_keep(|done| KeepAsked::Start { done }).await {
            self.table().park(session.id());
            return Err(error);
        }
        Ok(session.view())
    }

    /// Takes the place of a running session for a stopped one.
    fn unpark(&self, session: &SessionHandle, demand: Demand, creator: &Creator) -> Result<(), SessionError> {
        let (id, owner) = (session.id(), &session.facts().spec.owner);
        let mut table = self.table();
        table.refuse_if_closed()?;
        if !table.release_parked(id, &demand) {
            return Ok(());
        }
        // An admin who starts the session of another key has the daemon's limits only; the owner has the session.
        let limits = if creator.owner == *owner { creator.limits } else { OwnerLimits::default() };
        let creator = Creator { owner: owner.clone(), limits, ..creator.clone() };
        match self.make_room(&mut table, &demand, &creator) {
            Ok(()) => {
                table.set_demand(id, demand);
                Ok(())
            }
            Err(error) => {
                table.restore_demand(id, demand.parked());
                Err(error)
            }
        }
    }
}
