//! What is kept on the host of a sandbox that does not run: its disk, the state of its shells, and a record. A snapshot and a stopped
//! sandbox have the same.
//!
//! ```text
//! DATA/containers/ID/record.json     what a snapshot of this sandbox has to copy; written before its container is made
//! DATA/containers/ID/kept/           a stopped sandbox
//! DATA/container-snapshots/ID/       a snapshot
//!     disk          what the runner gave out, which nobody else looks into
//!     state.json    the state of the shells
//!     record.json   how much it holds; written last
//! ```
//!
//! **Invariant:** such a directory is made first and removed last, so everything that a crash leaves of it has its name.

use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use shared_protocol::runner::SandboxState;

use crate::runtime::{RuntimeError, files};

const RECORD_FILE: &str = "record.json";
const STATE_FILE: &str = "state.json";
const DISK_FILE: &str = "disk";

/// What is known of a sandbox when its container is made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxRecord {
    /// The id of its image.
    pub image: String,
    /// The engine's id of its container, once that is made.
    pub container: Option<String>,
    /// The directories that are in memory, and so are copied.
    pub directories: Vec<String>,
    /// The most bytes that their files can have.
    pub max_bytes: u64,
    pub writable_root: bool,
    /// The variables that the container was made with. An image that is made of it has them too.
    pub variables: Vec<String>,
}

impl SandboxRecord {
    pub fn write(&self, sandbox: &Path) -> io::Result<()> {
        write(&sandbox.join(RECORD_FILE), self)
    }

    /// The record of a sandbox. `None` if an older version of cove made it.
    pub fn read(sandbox: &Path) -> io::Result<Option<Self>> {
        match read(&sandbox.join(RECORD_FILE)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            record => record.map(Some),
        }
    }
}

/// What is kept beside a disk and the state of its shells.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptRecord {
    /// What it holds, with the changes of a writable root.
    pub bytes: u64,
    pub has_own_image: bool,
    /// The variables in its image that are not those of the sandbox's own image.
    pub variables: Vec<String>,
}

/// The directory of a snapshot, or of a stopped sandbox.
#[derive(Debug, Clone)]
pub struct Kept(PathBuf);

impl Kept {
    pub fn new(directory: PathBuf) -> Self {
        Self(directory)
    }

    /// Makes the directory, without anything that an earlier attempt has left.
    pub fn make(&self) -> io::Result<()> {
        self.remove()?;
        files::private_directory(&self.0)
    }

    pub fn disk(&self) -> PathBuf {
        self.0.join(DISK_FILE)
    }

    pub fn read(&self) -> Result<KeptRecord, RuntimeError> {
        read(&self.0.join(RECORD_FILE)).map_err(|e| RuntimeError::failed("reading the record of a kept disk", e))
    }

    pub fn is_complete(&self) -> bool {
        self.0.join(RECORD_FILE).exists()
    }

    pub fn write(&self, record: &KeptRecord) -> io::Result<()> {
        write(&self.0.join(RECORD_FILE), record)
    }

    pub fn write_state(&self, state: &SandboxState) -> io::Result<()> {
        write(&self.0.join(STATE_FILE), state)
    }

    pub fn read_state(&self) -> Result<SandboxState, RuntimeError> {
        files::read_state(&self.0.join(STATE_FILE))
            .map_err(|error| RuntimeError::failed("reading the state of the kept shells", error))
    }

    /// Waits until the disk of the host has everything.
    pub fn sync(&self) -> io::Result<()> {
        let files = [DISK_FILE, STATE_FILE, RECORD_FILE].map(|name| self.0.join(name));
        let parent = self.0.parent().map(Path::to_owned);
        let places = files.into_iter().chain([self.0.clone()]).chain(parent);
        places.into_iter().try_for_each(|place| std::fs::File::open(place)?.sync_all())
    }

    /// A missing directory is no error.
    pub fn remove(&self) -> io::Result<()> {
        match std::fs::remove_dir_all(&self.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }
}

/// Replaces a file atomically: a reader sees the old one or the new one.
fn write(path: &Path, content: &impl Serialize) -> io::Result<()> {
    let fresh = path.with_extension("new");
    let mut file = std::fs::File::options().create(true).write(true).truncate(true).mode(0o600).open(&fresh)?;
    file.write_all(&serde_json::to_vec(content)?)?;
    std::fs::rename(fresh, path)
}

fn read<T: DeserializeOwned>(path: &Path) -> io::Result<T> {
    Ok(serde_json::from_slice(&std::fs::read(path)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_complete_when_its_record_is_there() {
        let place = tempfile::tempdir().unwrap();
        let kept = Kept::new(place.path().join("kept"));
        kept.make().unwrap();
        std::fs::write(kept.disk(), b"old").unwrap();
        kept.make().unwrap();
        assert!(!kept.disk().exists(), "nothing of an earlier attempt is left");
        std::fs::write(kept.disk(), b"disk").unwrap();
        let state = SandboxState::default();
        kept.write_state(&state).unwrap();
        assert!(!kept.is_complete());
        let record = KeptRecord { bytes: 4, has_own_image: false, variables: vec!["A".into()] };
        kept.write(&record).unwrap();
        assert!(kept.is_complete());
        kept.sync().unwrap();
        assert_eq!((kept.read().unwrap(), kept.read_state().unwrap()), (record, state));
        kept.remove().unwrap();
        kept.remove().unwrap();
        assert_eq!(SandboxRecord::read(place.path()).unwrap(), None, "an older sandbox has none");
    }
}
