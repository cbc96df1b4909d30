//! One lock for each sandbox that this daemon makes, so that a destroy and a create of the same sandbox never overlap: a destroy
//! cancels the create and waits until it has ended.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use shared_protocol::SessionId;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard, watch};

use crate::runtime::RuntimeError;

pub struct SandboxLock {
    lock: Arc<AsyncMutex<()>>,
    cancelled: watch::Sender<bool>,
}

/// Held by the task that makes or removes a sandbox.
pub type SandboxGuard = OwnedMutexGuard<()>;

/// The locks of all sandboxes that this daemon makes or has made, until they are removed.
#[derive(Default)]
pub struct SandboxLocks(Mutex<HashMap<SessionId, Arc<SandboxLock>>>);

impl SandboxLocks {
    fn with<T>(&self, look: impl FnOnce(&mut HashMap<SessionId, Arc<SandboxLock>>) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Adds the lock of a sandbox that is about to be made, and holds it. It fails if there is already one with that id.
    pub fn add(&self, id: &SessionId) -> Result<(Arc<SandboxLock>, SandboxGuard), RuntimeError> {
        let lock = Arc::new(SandboxLock { lock: Arc::default(), cancelled: watch::Sender::new(false) });
        let guard = lock.lock.clone().try_lock_owned().map_err(|e| RuntimeError::failed("locking the sandbox", e))?;
        self.with(|locks| {
            if locks.contains_key(id) {
                return Err(RuntimeError::failed("making the container", format!("sandbox {id} exists")));
            }
            locks.insert(id.clone(), lock.clone());
            Ok((lock, guard))
        })
    }

    /// Cancels the create of a sandbox, waits for its end and holds the lock. `None` if this daemon did not make the
    /// sandbox.
    pub async fn cancel_create(&self, id: &SessionId) -> Option<SandboxGuard> {
        let lock = self.with(|locks| locks.get(id).cloned())?;
        lock.cancelled.send_replace(true);
        Some(lock.lock.clone().lock_owned().await)
    }

    /// Whether this daemon makes or has made the sandbox.
    pub fn contains(&self, id: &SessionId) -> bool {
        self.with(|locks| locks.contains_key(id))
    }

    pub fn remove(&self, id: &SessionId) {
        self.with(|locks| locks.remove(id));
    }
}

impl SandboxLock {
    /// The result of `work`, or `Gone` as soon as the sandbox is destroyed.
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
        let locks = Arc::new(SandboxLocks::default());
        let id = SessionId::new("one").unwrap();
        let (lock, guard) = locks.add(&id).unwrap();
        assert!(locks.add(&id).is_err(), "there are two with one id");
        let creating = lock.unless_cancelled(&id, std::future::pending::<Result<(), _>>());
        let destroying = locks.cancel_create(&id);
        tokio::pin!(destroying);
        assert!(futures_util::poll!(&mut destroying).is_pending(), "it does not wait");
        assert!(matches!(creating.await, Err(RuntimeError::Gone(_))));
        drop(guard);
        assert!(destroying.await.is_some());
        locks.remove(&id);
        assert!(locks.cancel_create(&id).await.is_none());
    }
}
