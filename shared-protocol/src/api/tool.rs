//! The tools of agents, as they are called over HTTP.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::SessionId;

/// A part of a tool's answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ToolContentView {
    /// Text for the model.
    Text {
        /// The text.
        text: String,
    },
    /// An image for the model.
    Image {
        /// Its type, such as `image/png`.
        media_type: String,
        /// Its bytes in base64.
        data_base64: String,
    },
}

/// The answer of a tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct ToolReplyView {
    /// What the model reads.
    pub content: Vec<ToolContentView>,
    /// The same as values, for programs. An error has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub structured: Option<Value>,
    /// Whether the model should do something else: its call could not be carried out, or its command failed.
    pub is_error: bool,
    /// The session that later calls should use, if the tool has made another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
}
