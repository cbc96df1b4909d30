//! Small files in JSON. Larger files use `files/{path}` and `archive`, which carry raw bytes.

use serde::{Deserialize, Serialize};

/// A small file to write.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct FsWriteRequest {
    /// The file's path: absolute, or relative to `/workspace`.
    pub path: String,
    /// The content as text. An empty string makes an empty file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The content in base64. Give either this or `text`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_base64: Option<String>,
}

/// A small file's content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct FsReadView {
    /// The path as it was asked for.
    pub path: String,
    /// The content in base64.
    pub content_base64: String,
    /// Whether the file is longer than `max_bytes`.
    pub truncated: bool,
}

/// A directory to create.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct MkdirRequest {
    /// The directory's path: absolute, or relative to `/workspace`.
    pub path: String,
    /// Also create missing parent directories, and accept a directory that exists, as `mkdir -p` does.
    #[serde(default)]
    pub parents: bool,
}

/// A file or directory to move.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct MoveRequest {
    /// The path that it has now: absolute, or relative to `/workspace`.
    pub from: String,
    /// The path that it gets.
    pub to: String,
    /// Replace what is at `to`.
    #[serde(default)]
    pub overwrite: bool,
}

/// The reply to a multipart upload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct UploadedView {
    /// Always true: a failure is an error body.
    pub ok: bool,
    /// The paths of the files that were written.
    pub paths: Vec<String>,
}
