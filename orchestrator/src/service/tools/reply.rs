//! What a tool answers.

use bytes::Bytes;
use serde_json::Value;
use shared_protocol::SessionId;

use crate::runner_client::RunnerError;
use crate::service::CallError;
use crate::session::SessionError;

/// A part of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolContent {
    Text(String),
    Image { media_type: &'static str, data: Bytes },
}

/// The answer of a tool.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolReply {
    /// What the model reads.
    pub content: Vec<ToolContent>,
    /// The same as values, for programs.
    pub structured: Option<Value>,
    /// Whether the model should do something else.
    pub is_error: bool,
    /// The session that later calls should use, if it is another one.
    pub moved_to: Option<SessionId>,
}

impl ToolReply {
    pub(super) fn text(text: impl Into<String>, structured: Value) -> Self {
        let content = vec![ToolContent::Text(text.into())];
        Self { content, structured: Some(structured), is_error: false, moved_to: None }
    }

    /// An answer that tells the model what went wrong and what it can do.
    pub(super) fn failure(text: impl Into<String>) -> Self {
        let content = vec![ToolContent::Text(text.into())];
        Self { content, structured: None, is_error: true, moved_to: None }
    }
}

/// Turns what the runner refused into an answer: the model can do something about it. The other errors are for whoever runs the agent: the
/// session is gone, or its sandbox is lost.
pub(super) fn for_model(error: CallError) -> Result<ToolReply, CallError> {
    match error {
        CallError::Runner(RunnerError::Refused(body)) => Ok(ToolReply::failure(body.message)),
        error => Err(error),
    }
}

/// The same for calls about the session itself, as far as another call may help.
pub(super) fn for_model_of_session(error: SessionError) -> Result<ToolReply, CallError> {
    match error {
        SessionError::InvalidRequest(_)
        | SessionError::Conflict(_)
        | SessionError::Limit { .. }
        | SessionError::Forbidden(_)
        | SessionError::NeedsAdmin(_)
        | SessionError::SnapshotNotFound(_) => Ok(ToolReply::failure(error.to_string())),
        error => Err(error.into()),
    }
}
