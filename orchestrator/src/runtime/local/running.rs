//! The sandboxes that run now, each held by a pidfd of its first process, and the blocks of user ids that are in use.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use shared_protocol::SessionId;
use tokio::sync::oneshot;

use super::ids;

/// The longest wait for all processes of a sandbox to end after its first process was killed. It takes milliseconds, unless a
/// process hangs in the kernel.
const END_TIMEOUT: Duration = Duration::from_secs(10);

pub struct RunningSandbox {
    pub pid: i32,
    pub pidfd: Arc<OwnedFd>,
}

pub struct RunningSandboxes {
    shared: Arc<Mutex<Shared>>,
}

struct Shared {
    sandboxes: HashMap<SessionId, RunningSandbox>,
    blocks: BTreeSet<u32>,
    /// Where the search for a free block continues, so that a block that was just freed is not the next one taken.
    next: u32,
}

impl RunningSandboxes {
    /// Makes an empty table. `name` is the daemon's name: daemons on one host start their search at different blocks.
    pub fn new(name: &str) -> Self {
        let start = name.bytes().fold(0u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into())) % ids::BLOCKS;
        let shared = Shared { sandboxes: HashMap::new(), blocks: BTreeSet::new(), next: start };
        Self { shared: Arc::new(Mutex::new(shared)) }
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn take_block(&self) -> Option<u32> {
        let mut shared = self.lock();
        let start = shared.next;
        let free = (0..ids::BLOCKS).map(|n| (start + n) % ids::BLOCKS).find(|block| !shared.blocks.contains(block))?;
        shared.blocks.insert(free);
        shared.next = (free + 1) % ids::BLOCKS;
        Some(free)
    }

    pub fn reserve_block(&self, block: u32) {
        self.lock().blocks.insert(block);
    }

    pub fn free(&self, block: u32) {
        self.lock().blocks.remove(&block);
    }

    /// The number and the pidfd of a sandbox's first process.
    pub fn process(&self, id: &SessionId) -> Option<(i32, Arc<OwnedFd>)> {
        self.lock().sandboxes.get(id).map(|sandbox| (sandbox.pid, sandbox.pidfd.clone()))
    }

    /// Adds a sandbox and watches it. The receiver gets `why()` if the sandbox ends while it is in the table.
    pub fn insert(
        &self,
        id: &SessionId,
        sandbox: RunningSandbox,
        why: impl FnOnce() -> String + Send + 'static,
    ) -> oneshot::Receiver<String> {
        let (report_end, ended) = oneshot::channel();
        let pidfd = sandbox.pidfd.clone();
        self.lock().sandboxes.insert(id.clone(), sandbox);
        let (shared, id) = (self.shared.clone(), id.clone());
        tokio::spawn(async move {
            if let Err(error) = readable(&pidfd).await {
                tracing::error!(session_id = %id, %error, "cannot watch a sandbox");
                return;
            }
            // If the sandbox is no longer in the table, it was destroyed on purpose.
            let is_ours = {
                let shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
                shared.sandboxes.get(&id).is_some_and(|sandbox| Arc::ptr_eq(&sandbox.pidfd, &pidfd))
            };
            if is_ours {
                let _ = report_end.send(why());
            }
        });
        ended
    }

    pub fn remove(&self, id: &SessionId) -> Option<RunningSandbox> {
        self.lock().sandboxes.remove(id)
    }
}

/// Waits until the process has ended, with all of its pid namespace.
pub async fn wait_for_end(pidfd: &Arc<OwnedFd>) -> io::Result<()> {
    match tokio::time::timeout(END_TIMEOUT, readable(pidfd)).await {
        Ok(result) => result,
        Err(_) => Err(io::Error::new(
            io::ErrorKind::TimedOut,
            format!("a process hangs in the kernel: not ended {} s after KILL", END_TIMEOUT.as_secs()),
        )),
    }
}

/// Waits until the pidfd is readable. It registers a copy, because one descriptor can be registered only once.
async fn readable(pidfd: &Arc<OwnedFd>) -> io::Result<()> {
    let watched = crate::sys::async_fd::register_readable(pidfd.try_clone()?)?;
    let _ = watched.readable().await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_given_once_until_it_is_freed() {
        let table = RunningSandboxes::new("x");
        let all: BTreeSet<u32> = std::iter::from_fn(|| table.take_block()).collect();
        assert_eq!(all.len(), ids::BLOCKS as usize);
        table.free(7);
        assert_eq!(table.take_block(), Some(7));
        assert_eq!(table.take_block(), None);
    }
}
