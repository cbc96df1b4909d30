//! The thread that owns the connection.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use rusqlite::{Connection, TransactionBehavior};
use shared_protocol::SessionId;
use tokio::sync::{mpsc, oneshot};

use super::statements::apply;
use super::{StoreError, Write};
use crate::failpoint;

/// Writes in one transaction; those behind them wait for the next.
const MAX_GROUP: usize = 256;
/// Failed writes that are kept for later. Beyond them the next start of the daemon finds out by itself what has ended.
const MAX_OWED: usize = 4096;

pub enum Job {
    Write { write: Write, done: oneshot::Sender<Result<(), StoreError>> },
    Close { done: oneshot::Sender<()> },
}

/// How it is doing, for those who ask without waiting.
#[derive(Debug, Default)]
pub struct Condition(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    failure: Option<String>,
    owes: bool,
}

impl Condition {
    pub fn failure(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).failure.clone()
    }

    pub fn owes(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).owes
    }

    fn set(&self, failure: Option<String>, owes: bool) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = State { failure, owes };
    }
}

pub struct Writer {
    connection: Connection,
    condition: std::sync::Arc<Condition>,
    owed: VecDeque<Write>,
}

impl Writer {
    pub fn new(connection: Connection, condition: std::sync::Arc<Condition>) -> Self {
        Self { connection, condition, owed: VecDeque::new() }
    }

    /// Until it is told to close, or nobody is left to tell it.
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
                // Who no longer waits is told by the row itself.
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

    /// One result for each. Together if that works; otherwise each by itself, so that one bad write fails alone.
    fn write_all(&mut self, writes: Vec<Write>) -> Vec<Result<(), StoreError>> {
        if writes.is_empty() {
            return Vec::new();
        }
        self.pay();
        let results = match self.commit(&writes) {
            Ok(results) => results,
            Err(_) if writes.len() > 1 => {
                let one = |write: &Write| self.commit(std::slice::from_ref(write)).and_then(|mut only| only.remove(0));
                writes.iter().map(one).collect()
            }
            Err(error) => vec![Err(error)],
        };
        let mut failure = None;
        for (write, result) in writes.into_iter().zip(&results) {
            if let Err(error @ StoreError::Failed(_)) = result {
                failure = Some(error.to_string());
                if write.is_owed() && self.owed.len() < MAX_OWED {
                    self.owed.push_back(write);
                }
            }
        }
        self.condition.set(failure, !self.owed.is_empty());
        results
    }

    /// Tries what failed before. It stays until it works.
    fn pay(&mut self) {
        if self.owed.is_empty() {
            return;
        }
        let owed: Vec<Write> = self.owed.drain(..).collect();
        if self.commit(&owed).is_err() {
            self.owed = owed.into();
        }
    }

    /// All of them in one transaction, or none.
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

/// Of a write that found its row in another state than it must be in, or not at all.
fn refused(write: &Write) -> Result<(), StoreError> {
    let other = |id: &SessionId| Err(StoreError::Failed(format!("what it says of {id} is not what happened to it")));
    match write {
        Write::Claim(row) => Err(StoreError::NotIdle(row.id.clone())),
        // Somebody would be told that it is there.
        Write::Running { id, .. } | Write::PoolIdle { id } => other(id),
        _ => Ok(()),
    }
}

fn failed(error: rusqlite::Error) -> StoreError {
    StoreError::Failed(error.to_string())
}
