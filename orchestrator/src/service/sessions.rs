//! Use cases for sessions: create, describe, list, change, pause, resume, destroy.

use shared_protocol::SessionId;
use shared_protocol::api::{CreateSessionRequest, SessionView, StatsView, UpdateSessionRequest};

use super::Caller;
use super::access::Access;
use crate::session::{Registry, SessionError, SessionFilter};

pub struct Sessions {
    access: Access,
    registry: Registry,
}

impl Sessions {
    pub(super) fn new(access: Access, registry: Registry) -> Self {
        Self { access, registry }
    }

    /// Creates a session of the caller. A second call of the same caller with the same idempotency key and request returns
    /// the same session.
    pub async fn create(
        &self,
        caller: &Caller,
        request: CreateSessionRequest,
        idempotency_key: Option<&str>,
    ) -> Result<SessionView, SessionError> {
        self.registry.create_for(&caller.creator(), request, idempotency_key).await
    }

    pub fn list(&self, caller: &Caller, filter: &SessionFilter) -> Vec<SessionView> {
        self.access.visible_sessions(caller, self.registry.list(filter))
    }

    pub fn get(&self, caller: &Caller, id: &SessionId) -> Result<SessionView, SessionError> {
        Ok(self.access.session(caller, id)?.view())
    }

    /// Destroys a session. A session that has already ended stays as it is.
    pub async fn destroy(&self, caller: &Caller, id: &SessionId) -> Result<(), SessionError> {
        self.access.session(caller, id)?;
        self.registry.destroy(id).await
    }

    /// Changes a session's lifetime or labels. Everything is checked before the session is touched.
    pub async fn update(
        &self,
        caller: &Caller,
        id: &SessionId,
        request: UpdateSessionRequest,
    ) -> Result<SessionView, SessionError> {
        let session = self.access.session(caller, id)?;
        session.update(self.registry.check_update(request)?).await
    }

    /// Freezes a session until a call needs its sandbox.
    pub async fn pause(&self, caller: &Caller, id: &SessionId) -> Result<SessionView, SessionError> {
        self.access.session(caller, id)?.pause().await
    }

    /// Wakes a session. This counts as activity.
    pub async fn resume(&self, caller: &Caller, id: &SessionId) -> Result<SessionView, SessionError> {
        self.access.session(caller, id)?.resume().await
    }

    /// Reads what a session uses now. This does not count as activity, so a monitor keeps no session alive.
    pub async fn stats(&self, caller: &Caller, id: &SessionId) -> Result<StatsView, SessionError> {
        self.access.session(caller, id)?;
        self.registry.stats(id).await
    }
}
