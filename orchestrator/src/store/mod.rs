//! The daemon's record of its sessions and its API keys: an SQLite database in the data directory, so that the daemon can be
//! killed at any moment. Only this folder contains SQL.
//!
//! One thread owns the connection (`writer`). All other code holds a `Store` and sends writes over a bounded queue. Writes
//! that wait together are committed together, so many creates at once share their commits. A write that returned `Ok`
//! survives `kill -9`; a write that failed has changed nothing. A power cut may lose the last writes about sessions, but it also
//! ends all the sandboxes that they describe. A write about keys, snapshots or a stop survives it: a key that was removed must not
//! come back, and what a client was told is kept must be there.
//!
//! The store refuses a database that is damaged, locked or from a newer version (`open`), and never replaces it by an empty
//! one. It knows nothing of sandboxes, and no request that only uses a session waits for it.

mod error;
mod key_row;
mod open;
mod row;
mod schema;
mod snapshot_row;
mod statements;
#[cfg(test)]
mod store_test;
mod writer;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use shared_protocol::api::{InjectionSpec, NetworkSpec};
use shared_protocol::{KeyName, SessionId, SnapshotId};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::owner::NetworkMaximum;
use crate::spec::LinkGenerations;

pub use error::StoreError;
pub use key_row::KeyRow;
pub use row::{SessionRow, StoredEnd, StoredKey, Touch};
pub use snapshot_row::{SnapshotFacts, SnapshotRow};
use writer::{Job, StoreHealth, Writer};

/// The name of the database's file in the data directory.
pub const FILE_NAME: &str = "cove.db";

/// The most writes that wait for the thread. If the queue is full, senders wait.
const QUEUE_LENGTH: usize = 1024;
/// The longest time for one write. A commit takes less than a millisecond; only a disk that hangs takes longer than this.
const WRITE_TIMEOUT: Duration = Duration::from_secs(20);

/// One change. It happens as a whole or not at all.
#[derive(Debug, Clone)]
pub enum Write {
    /// Adds a row. This happens before any part of its sandbox is made.
    Insert(Box<SessionRow>),
    /// The sandbox exists and belongs to a session. Allowed from `creating`, `paused` or `stopped`.
    Running {
        id: SessionId,
        at: SystemTime,
    },
    Paused {
        id: SessionId,
    },
    /// The session is about to be stopped: its processes end, and its disk stays. Allowed from `running` or `paused`.
    Stopped {
        id: SessionId,
    },
    /// The sandbox exists and waits in a pool. Allowed from `creating`.
    PoolIdle {
        id: SessionId,
    },
    /// Replaces the row of a pooled sandbox by the row of the session that claims it, with that row's status. Refused with
    /// `NotIdle` unless the old row is `pool_idle`, so of two claims one wins.
    Claim(Box<SessionRow>),
    /// Changes the lifetime, the labels or the network of a session that lives. `None` leaves a value as it is.
    Update {
        id: SessionId,
        lifetime: Option<Duration>,
        labels: Option<BTreeMap<String, String>>,
        network: Option<Box<(NetworkSpec, NetworkMaximum)>>,
        links: Option<LinkGenerations>,
        inject: Option<Vec<InjectionSpec>>,
    },
    /// The session is about to end. This is written before anything is removed.
    Destroying {
        id: SessionId,
        end: StoredEnd,
    },
    /// The session has ended, and only this row is left of it.
    Ended {
        id: SessionId,
        end: StoredEnd,
        at: SystemTime,
    },
    /// Removes the row, as if the session had never existed.
    Forget {
        id: SessionId,
    },
    /// The latest uses of sessions since the last such write.
    Touch(Vec<Touch>),
    /// Removes sessions that ended before a time, and the oldest ones beyond a number.
    Prune {
        before: SystemTime,
        keep: usize,
    },
    /// Adds a key. Refused with `KeyExists` if there is one with that name.
    AddKey(Box<KeyRow>),
    /// Removes a key. Refused with `NoKey` if there is none with that name.
    RemoveKey {
        name: KeyName,
    },
    /// Adds a snapshot. This happens before any part of it is made.
    AddSnapshot(Box<SnapshotRow>),
    /// All of the snapshot is on the disk.
    SnapshotReady(Box<SnapshotRow>),
    /// Removes the row of a snapshot. This happens before any part of it is removed.
    RemoveSnapshot {
        id: SnapshotId,
    },
}

impl Write {
    /// Whether the write must be on the disk before it is answered.
    fn must_survive_a_power_cut(&self) -> bool {
        let is_key = matches!(self, Self::AddKey(_) | Self::RemoveKey { .. });
        // These outlive a restart of the host, in contrast to sandboxes. What starts or ends a stopped session does too.
        let is_kept = matches!(self, Self::SnapshotReady(_) | Self::RemoveSnapshot { .. } | Self::Stopped { .. });
        is_key || is_kept
    }

    /// Whether the write must not get lost if the disk is full for a while. Such a write is tried again after the next write
    /// that succeeds.
    fn is_owed(&self) -> bool {
        matches!(self, Self::Destroying { .. } | Self::Ended { .. } | Self::Forget { .. } | Self::RemoveSnapshot { .. })
    }
}

#[derive(Clone)]
pub struct Store {
    backend: Backend,
    health: Arc<StoreHealth>,
    /// The keys that the database had when it was opened.
    keys: Arc<[KeyRow]>,
    /// The snapshots that the database had when it was opened.
    snapshots: Arc<[SnapshotRow]>,
}

#[derive(Clone)]
enum Backend {
    Thread(mpsc::Sender<Job>),
    /// Writes on the caller's thread, for tests that hold the clock still and need answers that take no time.
    #[cfg(test)]
    Inline(Arc<std::sync::Mutex<Writer>>),
}

impl Store {
    /// Opens or creates the database and reads all rows. It blocks; only the daemon's start calls it, while it holds the
    /// data directory's lock.
    pub fn open(path: &Path) -> Result<(Self, Vec<SessionRow>), StoreError> {
        let connection = open::open(path)?;
        let rows = statements::load(&connection).map_err(|error| open::explain(path, error))?;
        let keys = key_row::load(&connection).map_err(|error| open::explain(path, error))?.into();
        let snapshots = snapshot_row::load(&connection).map_err(|error| open::explain(path, error))?.into();
        let health = Arc::<StoreHealth>::default();
        let writer = Writer::new(connection, health.clone());
        let (queue, jobs) = mpsc::channel(QUEUE_LENGTH);
        std::thread::Builder::new()
            .name("store".into())
            .spawn(move || writer.run(jobs))
            .map_err(|error| StoreError::Failed(format!("no thread for it: {error}")))?;
        Ok((Self { backend: Backend::Thread(queue), health, keys, snapshots }, rows))
    }

    /// The keys that the database had when it was opened.
    pub fn keys_at_open(&self) -> &[KeyRow] {
        &self.keys
    }

    /// The snapshots that the database had when it was opened.
    pub fn snapshots_at_open(&self) -> &[SnapshotRow] {
        &self.snapshots
    }

    /// Writes, and returns when the write is committed.
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

    /// Sends a write and does not wait for it. The write is lost if the queue is full or the write fails.
    pub fn write_later(&self, write: Write) {
        match &self.backend {
            Backend::Thread(queue) => drop(queue.try_send(Job::Write { write, done: oneshot::channel().0 })),
            #[cfg(test)]
            Backend::Inline(writer) => {
                drop(writer.lock().unwrap_or_else(std::sync::PoisonError::into_inner).write_one(write));
            }
        }
    }

    /// Why the last write failed. `None` after the next write that succeeds.
    pub fn failure(&self) -> Option<String> {
        self.health.failure()
    }

    /// Whether a failed write waits to be tried again.
    pub fn owes(&self) -> bool {
        self.health.owes()
    }

    /// Writes everything in the queue and closes the file. Later writes fail.
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
    /// A real database that is written on the caller's thread.
    pub fn inline(path: &Path) -> Result<(Self, Vec<SessionRow>), StoreError> {
        let connection = open::open(path)?;
        let rows = statements::load(&connection).map_err(|error| open::explain(path, error))?;
        let keys = key_row::load(&connection).map_err(|error| open::explain(path, error))?.into();
        let snapshots = snapshot_row::load(&connection).map_err(|error| open::explain(path, error))?.into();
        let health = Arc::<StoreHealth>::default();
        let writer = Writer::new(connection, health.clone());
        let backend = Backend::Inline(Arc::new(std::sync::Mutex::new(writer)));
        Ok((Self { backend, health, keys, snapshots }, rows))
    }

    /// A database in memory, for tests that do not open it again.
    pub fn in_memory() -> Self {
        Self::inline(Path::new(":memory:")).expect("memory is no file").0
    }

    /// All rows of the database.
    pub fn rows(&self) -> Vec<SessionRow> {
        let Backend::Inline(writer) = &self.backend else { panic!("this store is not inline") };
        writer.lock().expect("no test panics with it").rows()
    }

    /// Makes SQLite refuse every write from now on, as on a disk that cannot be written to, or accept writes again.
    pub fn refuse_writes(&self, refuse: bool) {
        let Backend::Inline(writer) = &self.backend else { panic!("this store is not inline") };
        writer.lock().expect("no test panics with it").refuse_writes(refuse);
    }
}
