//! Changes of files below a directory, told as they happen. The runner sends a frame per line; the daemon sends the same frames to clients.

use serde::{Deserialize, Serialize};

use crate::ErrorBody;

/// The longest line of a watch. The longest one has two paths that are not UTF-8, each escaped and in base64.
pub const MAX_WATCH_LINE_BYTES: usize = 128 << 10;

/// What happened to a file or directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// It is new at this path. It may have come from outside of the watched tree, and may have replaced another file.
    Created,
    /// Its content was written, or a program that could write to it has closed it.
    Modified,
    /// It is gone from this path. It may have gone to a place outside of the watched tree.
    Deleted,
    /// It had another path in the watched tree, `from`. What had this path before is replaced.
    Moved,
}

/// One change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct FileChange {
    /// What happened.
    pub kind: ChangeKind,
    /// The path in the form that other calls take: it begins with the path that the watch was asked for.
    pub path: String,
    /// The exact bytes of the path, present only if they are not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_base64: Option<String>,
    /// The path that a moved file had before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The exact bytes of `from`, present only if they are not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_base64: Option<String>,
    /// Whether it is a directory. A symbolic link is none.
    pub is_dir: bool,
}

/// Why a watch is over although nothing failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum WatchEnd {
    /// The watched directory was deleted.
    Deleted,
    /// The watched directory, or one above it, was moved: its path does not lead to it any more.
    Moved,
    /// The file system of the watched directory was unmounted.
    Unmounted,
}

/// One line of a watch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum WatchFrame {
    /// The first line: whatever changes from now on is told.
    Ready {
        /// Whether a directory below is not watched, because it is too deep or the sandbox user may not read it.
        truncated: bool,
    },
    /// Something has changed.
    Change(FileChange),
    /// Changes were lost, because there were more of them than the client took. List the directory again: what changes after this
    /// line is told.
    Overflow,
    /// The watched directory is gone. This is the last line.
    Ended {
        /// What became of it.
        reason: WatchEnd,
    },
    /// The watch failed. This is the last line.
    Error(ErrorBody),
}
