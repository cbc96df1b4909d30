//! One session's row in the store, as its driver keeps it: an intent before each effect.
//!
//! A create that cannot be written down is not done. An end is done all the same, since a sandbox that nobody can end would be
//! worse than a row that says too little: the store tries that write again, and the next start of the daemon finds the sandbox
//! gone.

use tokio::time::Instant;
use tracing::warn;

use super::clock::Clock;
use super::{End, SessionError};
use crate::store::{SessionRow, Store, StoreError, Write};
use shared_protocol::SessionId;

#[derive(Clone)]
pub struct Ledger {
    /// `None` for a sandbox of the daemon's own: the next start finds it without a row, and removes it.
    store: Option<Store>,
    id: SessionId,
    clock: Clock,
}

impl Ledger {
    pub fn new(store: Option<Store>, id: SessionId, clock: Clock) -> Self {
        Self { store, id, clock }
    }

    async fn write(&self, write: Write) -> Result<(), StoreError> {
        match &self.store {
            Some(store) => store.write(write).await,
            None => Ok(()),
        }
    }

    /// Before anything is made.
    pub async fn intend(&self, row: SessionRow) -> Result<(), SessionError> {
        let intended = self.write(Write::Insert(Box::new(row))).await;
        if let Err(StoreError::TimedOut(_)) = intended {
            self.forget().await;
        }
        intended.map_err(|error| self.refuse("create", &error))
    }

    /// It is there, and nobody has been told yet.
    pub async fn running(&self) -> Result<(), SessionError> {
        let at = self.clock.wall(Instant::now());
        self.write(Write::Running { id: self.id.clone(), at }).await.map_err(|error| self.refuse("create", &error))
    }

    /// It is there, and waits in a pool.
    pub async fn pool_idle(&self) -> Result<(), SessionError> {
        self.write(Write::PoolIdle { id: self.id.clone() }).await.map_err(|error| self.refuse("fill", &error))
    }

    /// One that waited in a pool is this session from now on.
    pub async fn claim(&self, row: SessionRow) -> Result<(), SessionError> {
        self.write(Write::Claim(Box::new(row))).await.map_err(|error| self.refuse("claim", &error))
    }

    /// Not waited for, since requests wait for the one who calls. If it is lost the next start finds out: what is frozen is woken.
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

    /// Before the sandbox is ended.
    pub async fn destroying(&self, end: &End) {
        let write = Write::Destroying { id: self.id.clone(), end: end.to_stored() };
        self.or_log("destroy", self.write(write).await);
    }

    /// Nothing of the sandbox is left.
    pub async fn ended(&self, end: &End) {
        let at = self.clock.wall(Instant::now());
        let write = Write::Ended { id: self.id.clone(), end: end.to_stored(), at };
        self.or_log("destroy", self.write(write).await);
    }

    /// It never came to be.
    pub async fn forget(&self) {
        self.or_log("forget", self.write(Write::Forget { id: self.id.clone() }).await);
    }

    fn refuse(&self, step: &str, error: &StoreError) -> SessionError {
        warn!(session_id = %self.id, step, cause = %error, "session failed");
        SessionError::Internal(error.to_string())
    }

    fn or_log(&self, step: &str, result: Result<(), StoreError>) {
        if let Err(cause) = result {
            warn!(session_id = %self.id, step, %cause, "session is not written down");
        }
    }
}
