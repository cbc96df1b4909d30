//! What the daemon writes down of its sessions, so that it can be killed at any moment: SQLite in the data directory, and the
//! only folder that speaks SQL.
//!
//! One thread owns the connection (`writer`); everybody else holds a `Store` and sends it writes over a bounded queue. What
//! waits there together is committed together, so that a storm of creates shares its commits. A write that is answered with `Ok`
//! survives `kill -9`; one that fails has changed nothing. A power cut may take the last ones, with all the sandboxes they speak of.
//!
//! It refuses to start on a database that is damaged, locked or from a newer version (`open`): never with an empty one in its
//! place. It knows nothing of sandboxes, and no request that only uses a session waits for it.

mod error;
mod open;
mod row;
mod schema;
mod statements;
#[cfg(test)]
mod store_test;
mod writer;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use shared_protocol::SessionId;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

pub use error::StoreError;
pub use row::{SessionRow, StoredEnd, StoredFacts, StoredKey, Touch};
use writer::{Condition, Job, Writer};

/// The database's file in the data directory.
pub const FILE_NAME: &str = "cove.db";

/// Writes that wait for the thread; more wait at the door.
const QUEUE_LENGTH: usize = 1024;
/// For one write. A commit takes less than a millisecond; more is a disk that hangs.
const WRITE_TIMEOUT: Duration = Duration::from_secs(20);

/// One change, whole or not at all.
#[derive(Debug, Clone)]
pub enum Write {
    /// A row that was not there, before anything of its sandbox is made.
    Insert(Box<SessionRow>),
    /// The sandbox is there and is a session's. From `creating` or `paused`.
    Running {
        id: SessionId,
        at: SystemTime,
    },
    Paused {
        id: SessionId,
    },
    /// The sandbox is there and waits in a pool. From `creating`.
    PoolIdle {
        id: SessionId,
    },
    /// A sandbox that waited in a pool becomes this session, whose row takes the place of its own, in the status that it
    /// has. Refused with `NotIdle` unless the row is `pool_idle`: of two claims one wins.
    Claim(Box<SessionRow>),
    /// It is to end, before it does.
    Destroying {
        id: SessionId,
        end: StoredEnd,
    },
    /// Nothing of it is left but this.
    Ended {
        id: SessionId,
        end: StoredEnd,
        at: SystemTime,
    },
    /// As if it had never been.
    Forget {
        id: SessionId,
    },
    /// Uses of sessions since the last time.
    Touch(Vec<Touch>),
    /// Forgets what ended before, and the oldest beyond so many.
    Prune {
        before: SystemTime,
        keep: usize,
    },
}

impl Write {
    /// What must not be lost because the disk was full for a while: tried again with the next write that works.
    fn is_owed(&self) -> bool {
        matches!(self, Self::Destroying { .. } | Self::Ended { .. } | Self::Forget { .. })
    }
}

#[derive(Clone)]
pub struct Store {
    backend: Backend,
    condition: Arc<Condition>,
}

#[derive(Clone)]
enum Backend {
    Thread(mpsc::Sender<Job>),
    /// Tests that hold the clock still need answers that take no time.
    #[cfg(test)]
    Inline(Arc<std::sync::Mutex<Writer>>),
}

impl Store {
    /// Opens or makes it, with all that it knows. Blocking; for the daemon's start, which holds the data directory's lock.
    pub fn open(path: &Path) -> Result<(Self, Vec<SessionRow>), StoreError> {
        let connection = open::open(path)?;
        let rows = statements::load(&connection).map_err(|error| open::explain(path, error))?;
        let condition = Arc::<Condition>::default();
        let writer = Writer::new(connection, condition.clone());
        let (queue, jobs) = mpsc::channel(QUEUE_LENGTH);
        std::thread::Builder::new()
            .name("store".into())
            .spawn(move || writer.run(jobs))
            .map_err(|error| StoreError::Failed(format!("no thread for it: {error}")))?;
        Ok((Self { backend: Backend::Thread(queue), condition }, rows))
    }

    /// Returns once it is committed.
    pub async fn write(&self, write: Write) -> Result<(), StoreError> {
        match &self.backend {
            Backend::Thread(queue) => {
                let (done, answer) = oneshot::channel();
                let sent = async {
                    queue.send(Job::Write { write, done }).await.map_err(|_| StoreError::Closed)?;
                    answer.await.map_err(|_| StoreError::Closed)?
                };
                timeout(WRITE_TIMEOUT, sent).await.unwrap_or(Err(StoreError::TimedOut(WRITE_TIMEOUT)))
            }
            #[cfg(test)]
            Backend::Inline(writer) => {
                writer.lock().unwrap_or_else(std::sync::PoisonError::into_inner).write_one(write)
            }
        }
    }

    /// Sends it and does not wait. Lost where the queue is full, and where it fails.
    pub fn write_later(&self, write: Write) {
        match &self.backend {
            Backend::Thread(queue) => drop(queue.try_send(Job::Write { write, done: oneshot::channel().0 })),
            #[cfg(test)]
            Backend::Inline(writer) => {
                drop(writer.lock().unwrap_or_else(std::sync::PoisonError::into_inner).write_one(write));
            }
        }
    }

    /// Why the last write failed, until one works.
    pub fn failure(&self) -> Option<String> {
        self.condition.failure()
    }

    /// Whether a write that failed waits to be tried again.
    pub fn owes(&self) -> bool {
        self.condition.owes()
    }

    /// Writes what is in the queue and closes the file. Later writes fail.
    pub async fn close(&self) {
        match &self.backend {
            Backend::Thread(queue) => {
                let (done, answer) = oneshot::channel();
                if timeout(WRITE_TIMEOUT, queue.send(Job::Close { done })).await.is_ok_and(|sent| sent.is_ok()) {
                    let _ = timeout(WRITE_TIMEOUT, answer).await;
                }
            }
            #[cfg(test)]
            Backend::Inline(_) => {}
        }
    }
}

#[cfg(test)]
impl Store {
    /// A real database, written to by whoever calls.
    pub fn inline(path: &Path) -> Result<(Self, Vec<SessionRow>), StoreError> {
        let connection = open::open(path)?;
        let rows = statements::load(&connection).map_err(|error| open::explain(path, error))?;
        let condition = Arc::<Condition>::default();
        let writer = Writer::new(connection, condition.clone());
        Ok((Self { backend: Backend::Inline(Arc::new(std::sync::Mutex::new(writer))), condition }, rows))
    }

    /// One that nobody reads again.
    pub fn in_memory() -> Self {
        Self::inline(Path::new(":memory:")).expect("memory is no file").0
    }

    /// What is in it now.
    pub fn rows(&self) -> Vec<SessionRow> {
        let Backend::Inline(writer) = &self.backend else { panic!("only of an inline one") };
        writer.lock().expect("no test panics with it").rows()
    }

    /// From now on SQLite refuses every write, as on a disk that cannot be written to; or no longer.
    pub fn refuse_writes(&self, refuse: bool) {
        let Backend::Inline(writer) = &self.backend else { panic!("only of an inline one") };
        writer.lock().expect("no test panics with it").refuse_writes(refuse);
    }
}
