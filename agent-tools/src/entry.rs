//! An entry of a directory tree, as a walk reports it.

/// What an entry is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum EntryKind {
    File,
    Directory,
    Symlink,
    /// A socket, a pipe or a device.
    Other,
}

/// An entry below the root of a walk.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Entry {
    /// Relative to the root, with `/` between names. Any bytes but NUL.
    pub path: Vec<u8>,
    pub kind: EntryKind,
    pub size: u64,
    /// Seconds since 1970.
    pub modified: i64,
    /// Where a symlink points, if that is known.
    pub link_target: Option<Vec<u8>>,
}

impl Entry {
    /// The names on the way from the root to the entry, without empty ones and `.`.
    pub(crate) fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.path.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".")
    }
}
