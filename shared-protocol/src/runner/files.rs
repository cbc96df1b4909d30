//! Files and directories of the sandbox. Paths come as percent-encoded query parameters, so that a name of any bytes can
//! be asked for; names in answers that are not UTF-8 come with their bytes in base64 beside the readable form.

use serde::{Deserialize, Serialize};

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

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct FileView {
    /// Relative to the listed directory; of a single file, the path that was asked for.
    pub path: String,
    /// Where the name is not UTF-8, and `path` therefore only resembles it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_base64: Option<String>,
    pub kind: FileKind,
    pub size: u64,
    /// Permission bits, as in 0o755.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub mtime_ms: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub symlink_target: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct ListView {
    /// Sorted by path, bytewise.
    pub entries: Vec<FileView>,
    /// There were more than the runner lists.
    pub truncated: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct WroteView {
    pub bytes: u64,
}
