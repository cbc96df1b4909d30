//! Work inside a sandbox that stops when its session ends.
//!
//! A session that ends during a call also cuts the runner's connection. Which of the two the call sees first is chance, so
//! the session's error takes precedence: it says why.

use std::future::Future;
use std::pin::{Pin, pin};

use futures_util::FutureExt as _;

use super::CallError;
use crate::runner_client::RunnerError;
use crate::session::{Activity, SessionError};

/// Resolves with the session's error when the session ends.
pub(super) type Ended = Pin<Box<dyn Future<Output = SessionError> + Send>>;

/// Runs `work` until it is done or the session ends.
pub(super) async fn in_session<T>(
    activity: &Activity,
    work: impl Future<Output = Result<T, RunnerError>>,
) -> Result<T, CallError> {
    let mut ended = pin!(activity.ended());
    tokio::select! {
        biased;
        done = work => done.map_err(|error| explain(activity, error, &mut ended)),
        error = ended.as_mut() => Err(error.into()),
    }
}

/// The error to report for a runner's failure, which may be a consequence of the session's end.
pub(super) fn explain(
    activity: &Activity,
    error: RunnerError,
    ended: &mut (impl Future<Output = SessionError> + Unpin),
) -> CallError {
    match &error {
        RunnerError::Refused(_) => return error.into(),
        RunnerError::Lost(cause) => tracing::info!(session_id = %activity.session_id(), %cause, "a runner was lost"),
        RunnerError::Hostile(cause) => {
            tracing::warn!(session_id = %activity.session_id(), %cause, "a runner broke the protocol");
        }
    }
    match ended.now_or_never() {
        Some(end) => end.into(),
        None => error.into(),
    }
}
