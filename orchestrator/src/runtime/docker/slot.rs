//! Creates that are under way, so that a destroy meets them: it tells them to stop and waits for its turn.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use shared_protocol::SessionId;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard, watch};

use crate::runtime::RuntimeError;

pub struct Slot {
    turn: Arc<AsyncMutex<()>>,
    cancelled: watch::Sender<bool>,
}

/// Held by the one who works on a sandbox.
pub type Turn = OwnedMutexGuard<()>;

#[derive(Default)]
pub struct Slots(Mutex<HashMap<SessionId, Arc<Slot>>>);

impl Slots {
    fn with<T>(&self, look: impl FnOnce(&mut HashMap<SessionId, Arc<Slot>>) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// For a create, which has the first turn.
    pub fn open(&self, id: &SessionId) -> Result<(Arc<Slot>, Turn), RuntimeError> {
        let slot = Arc::new(Slot { turn: Arc::default(), cancelled: watch::Sender::new(false) });
        let turn = slot.turn.clone().try_lock_owned().map_err(|e| RuntimeError::failed("taking the first turn", e))?;
        self.with(|slots| {
            if slots.contains_key(id) {
                return Err(RuntimeError::failed("making the container", format!("sandbox {id} exists")));
            }
            slots.insert(id.clone(), slot.clone());
            Ok((slot, turn))
        })
    }

    /// For a destroy. `None` where there was no create, as of a sandbox of an earlier daemon.
    pub async fn cancel(&self, id: &SessionId) -> Option<Turn> {
        let slot = self.with(|slots| slots.get(id).cloned())?;
        slot.cancelled.send_replace(true);
        Some(slot.turn.clone().lock_owned().await)
    }

    /// Whether this daemon makes it, or has made it.
    pub fn is_open(&self, id: &SessionId) -> bool {
        self.with(|slots| slots.contains_key(id))
    }

    pub fn close(&self, id: &SessionId) {
        self.with(|slots| slots.remove(id));
    }
}

impl Slot {
    /// The work's result, or `Gone` as soon as somebody destroys the sandbox.
    pub async fn unless_cancelled<T>(
        &self,
        id: &SessionId,
        work: impl Future<Output = Result<T, RuntimeError>>,
    ) -> Result<T, RuntimeError> {
        let mut cancelled = self.cancelled.subscribe();
        tokio::select! {
            biased;
            _ = cancelled.wait_for(|cancelled| *cancelled) => Err(RuntimeError::Gone(id.clone())),
            result = work => result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_destroy_cancels_a_create_and_waits_for_its_end() {
        let slots = Arc::new(Slots::default());
        let id = SessionId::new("one").unwrap();
        let (slot, turn) = slots.open(&id).unwrap();
        assert!(slots.open(&id).is_err(), "there are two of one name");
        let creating = slot.unless_cancelled(&id, std::future::pending::<Result<(), _>>());
        let destroying = slots.cancel(&id);
        tokio::pin!(destroying);
        assert!(futures_util::poll!(&mut destroying).is_pending(), "it does not wait");
        assert!(matches!(creating.await, Err(RuntimeError::Gone(_))));
        drop(turn);
        assert!(destroying.await.is_some());
        slots.close(&id);
        assert!(slots.cancel(&id).await.is_none());
    }
}
