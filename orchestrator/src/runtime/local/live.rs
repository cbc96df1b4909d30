//! The sandboxes that run now, each held by a descriptor of its first process, and the blocks of ids that are taken.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use shared_protocol::SessionId;
use tokio::io::Interest;
use tokio::sync::oneshot;

use super::ids;

/// For the kernel to take down a process namespace after its first process was killed. Milliseconds, but for a process that
/// hangs in the kernel.
const END_TIMEOUT: Duration = Duration::from_secs(10);

pub struct Live {
    pub pid: i32,
    pub pidfd: Arc<OwnedFd>,
}

pub struct LiveTable {
    state: Arc<Mutex<State>>,
}

struct State {
    sandboxes: HashMap<SessionId, Live>,
    blocks: BTreeSet<u32>,
    /// Where the search for a free block goes on: a block just freed is not the next one taken.
    next: u32,
}

impl LiveTable {
    /// `name` makes daemons of one host begin at different blocks.
    pub fn new(name: &str) -> Self {
        let start = name.bytes().fold(0u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into())) % ids::BLOCKS;
        let state = State { sandboxes: HashMap::new(), blocks: BTreeSet::new(), next: start };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn take_block(&self) -> Option<u32> {
        let mut state = self.lock();
        let start = state.next;
        let free = (0..ids::BLOCKS).map(|n| (start + n) % ids::BLOCKS).find(|block| !state.blocks.contains(block))?;
        state.blocks.insert(free);
        state.next = (free + 1) % ids::BLOCKS;
        Some(free)
    }

    pub fn claim_block(&self, block: u32) {
        self.lock().blocks.insert(block);
    }

    pub fn free(&self, block: u32) {
        self.lock().blocks.remove(&block);
    }

    /// A sandbox's first process.
    pub fn process(&self, id: &SessionId) -> Option<(i32, Arc<OwnedFd>)> {
        self.lock().sandboxes.get(id).map(|live| (live.pid, live.pidfd.clone()))
    }

    /// Begins to watch. The receiver gets `why()` if the sandbox ends while it is in the table.
    pub fn insert(
        &self,
        id: &SessionId,
        live: Live,
        why: impl FnOnce() -> String + Send + 'static,
    ) -> oneshot::Receiver<String> {
        let (tell, told) = oneshot::channel();
        let pidfd = live.pidfd.clone();
        self.lock().sandboxes.insert(id.clone(), live);
        let (state, id) = (self.state.clone(), id.clone());
        tokio::spawn(async move {
            if let Err(error) = readable(&pidfd).await {
                tracing::error!(session_id = %id, %error, "a sandbox cannot be watched");
                return;
            }
            // Removed by then: it was asked to end.
            let is_ours = {
                let state = state.lock().unwrap_or_else(PoisonError::into_inner);
                state.sandboxes.get(&id).is_some_and(|live| Arc::ptr_eq(&live.pidfd, &pidfd))
            };
            if is_ours {
                let _ = tell.send(why());
            }
        });
        told
    }

    pub fn remove(&self, id: &SessionId) -> Option<Live> {
        self.lock().sandboxes.remove(id)
    }
}

/// Waits for the process to have ended, with all of its namespace.
pub async fn ended(pidfd: &Arc<OwnedFd>) -> io::Result<()> {
    match tokio::time::timeout(END_TIMEOUT, readable(pidfd)).await {
        Ok(result) => result,
        Err(_) => Err(io::Error::new(
            io::ErrorKind::TimedOut,
            format!("a process hangs in the kernel: not ended {} s after KILL", END_TIMEOUT.as_secs()),
        )),
    }
}

/// On a copy, since one descriptor can be registered once.
async fn readable(pidfd: &Arc<OwnedFd>) -> io::Result<()> {
    let watched = crate::sys::pidfd::register(pidfd.try_clone()?, Interest::READABLE)?;
    let _ = watched.readable().await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_given_once_until_it_is_freed() {
        let table = LiveTable::new("x");
        let all: BTreeSet<u32> = std::iter::from_fn(|| table.take_block()).collect();
        assert_eq!(all.len(), ids::BLOCKS as usize);
        table.free(7);
        assert_eq!(table.take_block(), Some(7));
        assert_eq!(table.take_block(), None);
    }
}
