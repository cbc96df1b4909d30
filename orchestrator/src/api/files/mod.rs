//! Files of a session or a workspace. Small files are JSON documents (`documents`); larger ones are raw bytes (`raw`,
//! `archive`) or a form (`upload`). `watch` tells what changes.

pub mod archive;
pub mod documents;
pub mod raw;
pub mod upload;
pub mod watch;

use std::future::Future;

use axum::body::Body;

use crate::api::error::ApiError;
use crate::api::extract::Intake;
use crate::service::files::FileSource;

/// Passes a request's body to `write`. If `write` fails, the rest of the body is still read, so that the client gets to read
/// the answer.
pub(in crate::api) async fn deliver<T, E, F>(body: Body, write: impl FnOnce(FileSource) -> F) -> Result<T, ApiError>
where
    F: Future<Output = Result<T, E>>,
    E: Into<ApiError>,
{
    let (intake, source) = Intake::of_file(body);
    match write(source).await {
        Ok(written) => Ok(written),
        Err(error) => {
            intake.drain().await;
            Err(error.into())
        }
    }
}
