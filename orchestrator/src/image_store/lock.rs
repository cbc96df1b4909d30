//! Locks between processes: of the store, and of one layer while it is made. The kernel frees them when their holder ends, in
//! whatever way.

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use super::{ImageStore, LOCKS};

const STORE_LOCK: &str = "store";

/// The right to add to the store, or the right to remove from it.
pub struct StoreLock {
    _file: File,
}

/// The right to make one layer.
pub struct LayerLock {
    _file: File,
}

impl ImageStore {
    /// The right to add: others may add meanwhile, and nobody removes. `None` if somebody removes right now.
    pub fn try_lock_to_add(&self) -> io::Result<Option<StoreLock>> {
        let file = open(&self.root.join(LOCKS).join(STORE_LOCK))?;
        taken(file.try_lock_shared()).map(|is_taken| is_taken.then_some(StoreLock { _file: file }))
    }

    /// The right to add, when whoever removes right now has finished.
    pub(super) fn wait_to_add(&self) -> io::Result<StoreLock> {
        let file = open(&self.root.join(LOCKS).join(STORE_LOCK))?;
        file.lock_shared()?;
        Ok(StoreLock { _file: file })
    }

    /// The right to remove. `None` if somebody adds or removes right now.
    pub fn try_lock_to_remove(&self) -> io::Result<Option<StoreLock>> {
        let file = open(&self.root.join(LOCKS).join(STORE_LOCK))?;
        taken(file.try_lock()).map(|is_taken| is_taken.then_some(StoreLock { _file: file }))
    }

    /// The right to make a layer. `None` if somebody makes it right now.
    pub fn try_lock_layer(&self, name: &str) -> io::Result<Option<LayerLock>> {
        let file = open(&self.root.join(LOCKS).join(name))?;
        taken(file.try_lock()).map(|is_taken| is_taken.then_some(LayerLock { _file: file }))
    }
}

fn open(path: &Path) -> io::Result<File> {
    File::options().create(true).write(true).truncate(false).mode(0o600).open(path)
}

fn taken(result: Result<(), TryLockError>) -> io::Result<bool> {
    match result {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}
