//! Lists many directories and reads many files in one call, for tools that walk and search.

use crate::runner_client::{GatherStream, Gathered};
use crate::service::CallError;
use crate::service::in_sandbox::in_session;
use crate::session::Activity;

/// The items of a call, in the order in which they were asked for.
pub struct GatheredFiles {
    stream: GatherStream,
    activity: Activity,
}

impl GatheredFiles {
    pub(super) fn new(activity: Activity, stream: GatherStream) -> Self {
        Self { stream, activity }
    }

    /// The next item; `None` after the last one.
    pub async fn next(&mut self) -> Result<Option<Gathered>, CallError> {
        in_session(&self.activity, self.stream.next()).await
    }
}
