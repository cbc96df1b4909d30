//! One session's row in the store. The driver writes each intent before the effect.
//!
//! If a create cannot be stored, it is not done. An end is done anyway, because a sandbox that nobody can end would be worse
//! than an outdated row: the store tries that write again, and the next start of the daemon finds the sandbox gone.

use shared_protocol::SessionId;
use tokio::time::Instant;
use tracing::warn;

use crate::session::resolve::Update;
use crate::session::{Clock, EndReason, SessionError};
use crate::store::{SessionRow, Store, StoreError, Write};

#[derive(Clone)]
pub struct SessionRecord {
    /// The store. `None` for a workspace sandbox: the next start finds it without a row, and removes it.
    store: Option<Store>,
    id: SessionId,
    clock: Clock,
}

impl SessionRecord {
    pub fn new(store: Option<Store>, id: SessionId, clock: Clock) -> Self {
        Self { store, id, clock }
    }

    async fn write(&self, write: Write) -> Result<(), StoreError> {
        match &self.store {
            Some(store) => store.write(write).await,
            None => Ok(()),
        }
    }

    /// Stores that a sandbox is about to be created.
    pub async fn intend(&self, row: SessionRow) -> Result<(), SessionError> {
        let intended = self.write(Write::Insert(Box::new(row))).await;
        if let Err(StoreError::TimedOut(_)) = intended {
            self.forget().await;
        }
        intended.map_err(|error| self.refuse("create", &error))
    }

    /// Stores that the sandbox exists, before any client is told.
    pub async fn running(&self) -> Result<(), SessionError> {
        let at = self.clock.wall(Instant::now());
        self.write(Write::Running { id: self.id.clone(), at }).await.map_err(|error| self.refuse("create", &error))
    }

    /// Stores that the sandbox exists and waits in a pool.
    pub async fn pool_idle(&self) -> Result<(), SessionError> {
        self.write(Write::PoolIdle { id: self.id.clone() }).await.map_err(|error| self.refuse("fill", &error))
    }

    /// Stores that a pooled sandbox belongs to this session from now on.
    pub async fn claim(&self, row: SessionRow) -> Result<(), SessionError> {
        self.write(Write::Claim(Box::new(row))).await.map_err(|error| self.refuse("claim", &error))
    }

    /// Stores whether the session is paused. It does not wait for the write, because requests wait for the caller. If the
    /// write is lost, the next start finds out: it wakes a sandbox that is frozen.
    pub fn paused(&self, is_paused: bool) {
        let id = self.id.clone();
        let write = match is_paused {
            true => Write::Paused { id },
            false => Write::Running { id, at: self.clock.wall(Instant::now()) },
        };
        if let Some(store) = &self.store {
            store.write_later(write);
        }
    }

    /// Stores that the session is about to be stopped.
    pub async fn stopped(&self) -> Result<(), SessionError> {
        self.write(Write::Stopped { id: self.id.clone() }).await.map_err(|error| self.refuse("stop", &error))
    }

    /// Stores a change of the session before it takes effect.
    pub async fn update(&self, update: &Update) -> Result<(), SessionError> {
        let Update { lifetime, labels, network, links, inject } = update.clone();
        let network = network.map(|policy| Box::new((policy.asked, policy.maximum)));
        let write = Write::Update { id: self.id.clone(), lifetime, labels, network, links, inject };
        self.write(write).await.map_err(|error| self.refuse("update", &error))
    }

    /// Stores that the sandbox is about to be removed.
    pub async fn destroying(&self, end: &EndReason) {
        let write = Write::Destroying { id: self.id.clone(), end: end.to_stored() };
        self.or_log("destroy", self.write(write).await);
    }

    /// Stores that nothing is left of the sandbox.
    pub async fn ended(&self, end: &EndReason) {
        let at = self.clock.wall(Instant::now());
        let write = Write::Ended { id: self.id.clone(), end: end.to_stored(), at };
        self.or_log("destroy", self.write(write).await);
    }

    /// Removes the row of a create that failed.
    pub async fn forget(&self) {
        self.or_log("forget", self.write(Write::Forget { id: self.id.clone() }).await);
    }

    fn refuse(&self, step: &str, error: &StoreError) -> SessionError {
        warn!(session_id = %self.id, step, cause = %error, "session failed");
        SessionError::Internal(error.to_string())
    }

    fn or_log(&self, step: &str, result: Result<(), StoreError>) {
        if let Err(cause) = result {
            warn!(session_id = %self.id, step, %cause, "session could not be stored");
        }
    }
}
