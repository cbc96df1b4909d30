//! Work in a sandbox, for as long as its session lasts.
//!
//! A session that ends under a request cuts the runner's connection too. Which of the two is seen first is chance; what the
//! client hears is why: the session's own error wins.

use std::future::Future;
use std::pin::pin;

use futures_util::FutureExt as _;

use super::error::ApiError;
use crate::runner_client::RunnerError;
use crate::session::{Activity, SessionError};

/// Does `work` until it is done or the session is over.
pub async fn in_session<T>(
    activity: &Activity,
    work: impl Future<Output = Result<T, RunnerError>>,
) -> Result<T, ApiError> {
    let mut ended = pin!(activity.ended());
    tokio::select! {
        biased;
        done = work => done.map_err(|error| explain(activity, error, &mut ended)),
        error = ended.as_mut() => Err(error.into()),
    }
}

/// What a client is told of a runner's failure.
pub fn explain(
    activity: &Activity,
    error: RunnerError,
    ended: &mut (impl Future<Output = SessionError> + Unpin),
) -> ApiError {
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
