//! The thread that owns the database connection.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use rusqlite::{Connection, TransactionBehavior};
use shared_protocol::SessionId;
use tokio::sync::{mpsc, oneshot};

use super::statements::apply;
use super::{StoreError, Write};
use crate::failpoint;

/// The most writes in one transaction. Further writes wait for the next one.
const MAX_GROUP: usize = 256;
/// The most failed writes that are kept for later. The next start of the daemon finds out itself about any others.
const MAX_OWED: usize = 4096;

pub enum Job {
    Write { write: Write, done: oneshot::Sender<Result<(), StoreError>> },
    Close { done: oneshot::Sender<()> },
}

/// The result of the latest writes, readable without waiting.
#[derive(Debug, Default)]
pub struct StoreHealth(Mutex<WriteReport>);

#[derive(Debug, Default)]
struct WriteReport {
    failure: Option<String>,
    owes: bool,
}

impl StoreHealth {
    pub fn failure(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).failure.clone()
    }

    pub fn owes(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).owes
    }

    fn set(&self, failure: Option<String>, owes: bool) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = WriteReport { failure, owes };
    }
}

pub struct Writer {
    connection: Connection,
    health: std::sync::Arc<StoreHealth>,
    owed: VecDeque<Write>,
}

impl Writer {
    pub fn new(connection: Connection, health: std::sync::Arc<StoreHealth>) -> Self {
        Self { connection, health, owed: VecDeque::new() }
    }

    /// Writes until it is told to close, or until no sender is left.
    pub fn run(mut self, mut jobs: mpsc::Receiver<Job>) {
        while let Some(first) = jobs.blocking_recv() {
            let (mut writes, mut answers, mut close) = (Vec::new(), Vec::new(), None);
            let mut next = Some(first);
            while let Some(job) = next {
                match job {
                    Job::Write { write, done } => {
                        writes.push(write);
                        answers.push(done);
                    }
                    Job::Close { done } => close = Some(done),
                }
                next = if close.is_none() && writes.len() < MAX_GROUP { jobs.try_recv().ok() } else { None };
            }
            let results = self.write_all(writes);
            for (done, result) in answers.into_iter().zip(results) {
                // The receiver may have stopped waiting; the row in the database then tells what happened.
                let _ = done.send(result);
            }
            if let Some(done) = close {
                drop(self.connection);
                let _ = done.send(());
                return;
            }
        }
    }

    #[cfg(test)]
    pub fn write_one(&mut self, write: Write) -> Result<(), StoreError> {
        self.write_all(vec![write]).pop().unwrap_or(Err(StoreError::Closed))
    }

    #[cfg(test)]
    pub fn rows(&self) -> Vec<super::SessionRow> {
        super::statements::load(&self.connection).expect("a table that can be read")
    }

    #[cfg(test)]
    pub fn refuse_writes(&self, refuse: bool) {
        self.connection.pragma_update(None, "query_only", refuse).expect("a setting of SQLite's");
    }

    /// Applies the writes and returns one result for each: all in one transaction if that works, otherwise one by one, so
    /// that a bad write fails alone.
    fn write_all(&mut self, writes: Vec<Write>) -> Vec<Result<(), StoreError>> {
        if writes.is_empty() {
            return Vec::new();
        }
        self.pay();
        let is_synced = writes.iter().any(Write::must_survive_a_power_cut);
        let ready = if is_synced { self.synced(true) } else { Ok(()) };
        let results = match ready.and_then(|()| self.commit(&writes)) {
            Ok(results) => results,
            Err(_) if writes.len() > 1 => {
                let one = |write: &Write| self.commit(std::slice::from_ref(write)).and_then(|mut only| only.remove(0));
                writes.iter().map(one).collect()
            }
            Err(error) => vec![Err(error)],
        };
        if is_synced && self.synced(false).is_err() {
            tracing::warn!("the store still waits for the disk at every write");
        }
        let mut failure = None;
        for (write, result) in writes.into_iter().zip(&results) {
            if let Err(error @ StoreError::Failed(_)) = result {
                failure = Some(error.to_string());
                if write.is_owed() && self.owed.len() < MAX_OWED {
                    self.owed.push_back(write);
                }
            }
        }
        self.health.set(failure, !self.owed.is_empty());
        results
    }

    /// Sets whether a commit waits until the disk has it.
    fn synced(&self, is_synced: bool) -> Result<(), StoreError> {
        let level = if is_synced { "FULL" } else { "NORMAL" };
        self.connection.pragma_update(None, "synchronous", level).map_err(failed)
    }

    /// Tries the failed writes again. They stay in the queue until they succeed.
    fn pay(&mut self) {
        if self.owed.is_empty() {
            return;
        }
        let owed: Vec<Write> = self.owed.drain(..).collect();
        if self.commit(&owed).is_err() {
            self.owed = owed.into();
        }
    }

    /// Commits all writes in one transaction, or none.
    fn commit(&mut self, writes: &[Write]) -> Result<Vec<Result<(), StoreError>>, StoreError> {
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
        let mut results = Vec::with_capacity(writes.len());
        for write in writes {
            let is_done = apply(&transaction, write).map_err(failed)?;
            results.push(if is_done { Ok(()) } else { refused(write) });
        }
        failpoint::at("store.commit").map_err(|error| StoreError::Failed(error.to_string()))?;
        transaction.commit().map_err(failed)?;
        failpoint::pass("store.committed");
        Ok(results)
    }
}

/// The result of a write whose row is missing or in the wrong status: an error if somebody relies on the write.
fn refused(write: &Write) -> Result<(), StoreError> {
    let other = |id: &SessionId| Err(StoreError::Failed(format!("what it says of {id} is not what happened to it")));
    match write {
        Write::Claim(row) => Err(StoreError::NotIdle(row.id.clone())),
        // Without this error, a client would be told that the session exists.
        Write::Running { id, .. } | Write::PoolIdle { id } | Write::Update { id, .. } | Write::Stopped { id } => {
            other(id)
        }
        Write::SnapshotReady(row) => Err(StoreError::Failed(format!("the snapshot {} is not being made", row.id))),
        Write::AddKey(row) => Err(StoreError::KeyExists(row.name.clone())),
        Write::RemoveKey { name } => Err(StoreError::NoKey(name.clone())),
        _ => Ok(()),
    }
}

fn failed(error: rusqlite::Error) -> StoreError {
    StoreError::Failed(error.to_string())
}
