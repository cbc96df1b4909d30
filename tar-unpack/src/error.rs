//! Why a stream was not unpacked.

use std::io;

use crate::reader::TarError;

/// Bytes of a path that an error shows.
const MAX_SHOWN: usize = 512;

/// Why unpacking ended early. Whatever was unpacked before stays, since a stream cannot be read twice.
#[derive(Debug, thiserror::Error)]
#[error("{error}{}", suffix(*entries))]
pub struct Failure {
    pub error: UnpackError,
    /// The entries that were unpacked before.
    pub entries: u64,
}

fn suffix(entries: u64) -> String {
    match entries {
        0 => String::new(),
        count => format!("; entries unpacked before it, which stay: {count}"),
    }
}

#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    /// The stream is not a tar stream, or not a whole one.
    #[error(transparent)]
    Stream(#[from] TarError),
    /// The stream asks for something that is not done for strangers.
    #[error("the entry {:?} is refused: {why}", shown(path))]
    Refused { path: Vec<u8>, why: String },
    /// A system call failed for an entry.
    #[error("{}: {error}", shown(path))]
    Io { path: Vec<u8>, error: io::Error },
}

/// A path as people read it: what is not UTF-8 is replaced, and what is very long is cut.
pub fn shown(path: &[u8]) -> String {
    match path.get(..MAX_SHOWN) {
        Some(start) if path.len() > MAX_SHOWN => format!("{}…", String::from_utf8_lossy(start)),
        _ => String::from_utf8_lossy(path).into_owned(),
    }
}

/// Lets a call be followed by `.at(path)?`.
pub trait At<T> {
    fn at(self, path: &[u8]) -> Result<T, UnpackError>;
}

impl<T, E: Into<io::Error>> At<T> for Result<T, E> {
    fn at(self, path: &[u8]) -> Result<T, UnpackError> {
        self.map_err(|error| UnpackError::Io { path: path.to_vec(), error: error.into() })
    }
}
