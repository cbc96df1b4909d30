//! The errors of the store, by what a caller can do about them.

use std::path::PathBuf;
use std::time::Duration;

use shared_protocol::{KeyName, SessionId};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The daemon cannot work with this database, and an operator has to look at it. Happens only at the start.
    #[error("the store {} {problem}: {advice}", path.display())]
    Unusable { path: PathBuf, problem: String, advice: &'static str },
    /// The write failed and changed nothing.
    #[error("the store cannot be written: {0}")]
    Failed(String),
    /// It is unknown whether the write succeeded.
    #[error("the store did not answer within {} s", .0.as_secs())]
    TimedOut(Duration),
    /// The sandbox does not wait in a pool, or no longer does.
    #[error("the sandbox {0} is not there to be claimed")]
    NotIdle(SessionId),
    #[error("there is a key {0} already")]
    KeyExists(KeyName),
    #[error("there is no key {0}")]
    NoKey(KeyName),
    #[error("the store is closed: the daemon is stopping")]
    Closed,
}
