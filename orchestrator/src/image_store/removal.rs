//! Removes images, and layers that nothing needs. A layer disappears from its name at once; then its files are deleted.

use std::collections::BTreeSet;
use std::io;

use serde::Serialize;

use super::{BLOBS, DISCARDED, ImageStore, LAYERS, LOCKS, REFERENCES, STAGING, StoreLock, USES};
use crate::failpoint;

/// What a removal freed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Removed {
    pub layers: u64,
    pub bytes: u64,
    /// Downloads and other leftovers of pulls that were interrupted.
    pub leftovers: u64,
}

impl ImageStore {
    /// Removes an image's name, and the layers that no other image and no sandbox uses. `None` if there is no such image.
    pub fn remove(&self, name: &str, lock: &StoreLock) -> io::Result<Option<Removed>> {
        let Some(image) = self.find(name) else { return Ok(None) };
        std::fs::remove_file(self.reference(&image.name))?;
        failpoint::at("image.remove.unnamed")?;
        self.remove_layers(|layer| image.layers.iter().any(|own| own == layer), lock).map(Some)
    }

    /// Removes all layers that no image and no sandbox uses, and what interrupted pulls have left.
    pub fn prune(&self, lock: &StoreLock) -> io::Result<Removed> {
        let mut removed = self.remove_layers(|_| true, lock)?;
        failpoint::at("image.prune.layers")?;
        for place in [BLOBS, STAGING, DISCARDED] {
            for entry in std::fs::read_dir(self.root.join(place))? {
                let entry = entry?;
                removed.bytes += entry.metadata().map_or(0, |found| if found.is_dir() { 0 } else { found.len() });
                removed.leftovers += 1;
                match entry.file_type()?.is_dir() {
                    true => std::fs::remove_dir_all(entry.path())?,
                    false => std::fs::remove_file(entry.path())?,
                }
                failpoint::at("image.prune.leftover")?;
            }
        }
        // Nobody holds a lock of a layer: for that, one must hold the store's lock.
        for entry in std::fs::read_dir(self.root.join(LOCKS))?.flatten() {
            if entry.file_name().len() == 64 {
                let _ = std::fs::remove_file(entry.path());
            }
        }
        self.remove_loose_records(lock)?;
        Ok(removed)
    }

    /// Removes what processes that are gone have left half-made, for the start of a daemon. Downloads stay: the next pull continues
    /// them. Nothing happens while somebody pulls or removes.
    pub fn discard_leftovers(&self) -> io::Result<()> {
        if !self.root.exists() {
            return Ok(());
        }
        self.make()?;
        let Some(lock) = self.try_lock_to_remove()? else { return Ok(()) };
        self.remove_loose_records(&lock)?;
        // Whoever stages holds the lock shared. Files are deleted without the lock, so that nobody waits for that.
        for entry in std::fs::read_dir(self.root.join(STAGING))? {
            let entry = entry?;
            let mut place = entry.file_name();
            place.push(format!("-by-{}", std::process::id()));
            std::fs::rename(entry.path(), self.root.join(DISCARDED).join(place))?;
        }
        drop(lock);
        for entry in std::fs::read_dir(self.root.join(DISCARDED))? {
            match std::fs::remove_dir_all(entry?.path()) {
                // Another process does the same.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                removed => removed?,
            }
        }
        Ok(())
    }

    /// Removes records that were being written when their writer ended, and sizes of layers that are not there.
    fn remove_loose_records(&self, _lock: &StoreLock) -> io::Result<()> {
        for place in [REFERENCES, LAYERS, USES] {
            for entry in std::fs::read_dir(self.root.join(place))?.flatten() {
                let path = entry.path();
                let has_extension = |wanted: &str| path.extension().is_some_and(|extension| extension == wanted);
                let is_loose = place == LAYERS && has_extension("json") && !path.with_extension("").is_dir();
                if has_extension("new") || is_loose {
                    let _ = std::fs::remove_file(&path);
                }
            }
        }
        Ok(())
    }

    /// Removes those of the layers that are chosen and that no image and no sandbox uses.
    pub fn remove_layers(&self, is_chosen: impl Fn(&str) -> bool, _lock: &StoreLock) -> io::Result<Removed> {
        let mut needed: BTreeSet<String> = self.images().into_iter().flat_map(|image| image.layers).collect();
        needed.extend(self.used_layers()?);
        let mut removed = Removed::default();
        for entry in std::fs::read_dir(self.layers_dir())? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            if !entry.file_type()?.is_dir() || needed.contains(&name) || !is_chosen(&name) {
                continue;
            }
            let info = self.layer_info(&name);
            // The rename comes first: half a layer must not be found under its name, also after a crash.
            let staging = self.stage()?;
            std::fs::rename(entry.path(), staging.path().join("layer"))?;
            failpoint::at("image.remove.moved")?;
            let _ = std::fs::remove_file(self.info(&name));
            drop(staging);
            removed.layers += 1;
            removed.bytes += info.bytes;
        }
        Ok(removed)
    }
}
