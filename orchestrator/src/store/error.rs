//! What can go wrong with the store, by what a caller can do about it.

use std::path::PathBuf;
use std::time::Duration;

use shared_protocol::SessionId;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// It is not one that this daemon can work with; an operator has to look. Only at the start.
    #[error("the store {} {problem}: {advice}", path.display())]
    Unusable { path: PathBuf, problem: String, advice: &'static str },
    /// The write is not in it.
    #[error("the store cannot be written: {0}")]
    Failed(String),
    /// Whether the write is in it is not known.
    #[error("the store did not answer within {} s", .0.as_secs())]
    TimedOut(Duration),
    /// It waits in no pool, or no longer.
    #[error("the sandbox {0} is not there to be claimed")]
    NotIdle(SessionId),
    #[error("the store is closed: the daemon is stopping")]
    Closed,
}
