//! Files and directories in the sandbox. Requests carry paths as percent-encoded query parameters, so a name can have any bytes.
//! Replies give a name that is not UTF-8 both in a readable form and in base64.

use serde::{Deserialize, Serialize};

/// The kind of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum FileKind {
    File,
    Directory,
    Symlink,
    Fifo,
    Socket,
    BlockDevice,
    CharDevice,
}

/// A file or directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct FileView {
    /// The path: in a listing, relative to the listed directory; for a single file, as it was asked for.
    pub path: String,
    /// The exact bytes of the path, present only if they are not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_base64: Option<String>,
    /// The kind of file.
    pub kind: FileKind,
    /// The size in bytes.
    pub size: u64,
    /// The permission bits as a decimal number: 493 is 0o755.
    pub mode: u32,
    /// The owner's user id in the sandbox.
    pub uid: u32,
    /// The owner's group id in the sandbox.
    pub gid: u32,
    /// When the content was last changed: Unix time in milliseconds.
    pub mtime_ms: i64,
    /// Where a symbolic link points to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub symlink_target: Option<String>,
}

/// A directory listing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct ListView {
    /// The entries, sorted by the bytes of their paths.
    pub entries: Vec<FileView>,
    /// Whether the listing is incomplete: the directory has too many entries, or a part of it cannot be read.
    pub truncated: bool,
}

/// The reply to a write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct WroteView {
    /// How many bytes were written.
    pub bytes: u64,
}
