//! Images in layers, in `images/.store` of the data directory: what is there, where it is, who uses it.
//!
//! ```text
//! layers/HEX           an unpacked layer, by the digest of its archive (its diff id); whiteouts as overlayfs has them
//! layers/HEX.json      its size
//! references/NAME.json an image: its layers, and what it says about programs
//! uses/SANDBOX.json    the layers that a sandbox has mounted
//! blobs/HEX            a compressed layer that is being downloaded; a later pull continues it
//! staging/…            what is not complete yet
//! discarded/…          what a process that is gone had staged, and is being deleted
//! locks/…              files that processes lock
//! ```
//!
//! Several processes use one store at a time: a daemon, and commands without a daemon. A layer or an image gets its name only when it
//! is complete and on the disk. Whoever adds holds the store's lock shared; whoever removes layers holds it alone.
//!
//! Nothing here downloads or unpacks, and nothing is opened inside a layer. Every call reads the disk and blocks.

mod lock;
mod record;
mod removal;
mod uses;

use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use oci_registry::Reference;

pub use lock::{LayerLock, StoreLock};
pub use record::{ImageSettings, ImageUser, LayerInfo, StoredImage, are_layers};
pub use removal::Removed;

use crate::failpoint;

/// The directory below `images`. Its first character keeps it from being an image.
const STORE: &str = ".store";

const LAYERS: &str = "layers";
const REFERENCES: &str = "references";
const USES: &str = "uses";
const BLOBS: &str = "blobs";
const STAGING: &str = "staging";
const DISCARDED: &str = "discarded";
const LOCKS: &str = "locks";

/// The largest record that is read.
const MAX_RECORD_BYTES: u64 = 8 << 20;

#[derive(Debug, Clone)]
pub struct ImageStore {
    root: PathBuf,
}

impl ImageStore {
    /// The store in the directory of images, which need not exist.
    pub fn new(images_dir: &Path) -> Self {
        Self { root: images_dir.join(STORE) }
    }

    /// Makes the store's directories.
    pub fn make(&self) -> io::Result<()> {
        [LAYERS, REFERENCES, USES, BLOBS, STAGING, DISCARDED, LOCKS]
            .iter()
            .try_for_each(|name| std::fs::DirBuilder::new().recursive(true).mode(0o700).create(self.root.join(name)))
    }

    /// The directory with all layers. Each has the name of its digest there.
    pub fn layers_dir(&self) -> PathBuf {
        self.root.join(LAYERS)
    }

    pub fn layer(&self, name: &str) -> PathBuf {
        self.layers_dir().join(name)
    }

    pub fn has_layer(&self, name: &str) -> bool {
        self.layer(name).is_dir()
    }

    /// The size of a layer, as it was when it was unpacked.
    pub fn layer_info(&self, name: &str) -> LayerInfo {
        read_json(&self.info(name)).unwrap_or_default()
    }

    fn info(&self, name: &str) -> PathBuf {
        self.layers_dir().join(format!("{name}.json"))
    }

    /// Where a layer is downloaded to.
    pub fn blob(&self, hex: &str) -> PathBuf {
        self.root.join(BLOBS).join(hex)
    }

    /// The image of this name. The name is one that an import gave, or a reference, whole or as people write it.
    pub fn find(&self, name: &str) -> Option<StoredImage> {
        let exact = self.read_reference(name);
        exact.or_else(|| self.read_reference(&name.parse::<Reference>().ok()?.to_string()))
    }

    fn read_reference(&self, name: &str) -> Option<StoredImage> {
        read_json::<StoredImage>(&self.reference(name)).filter(|image| image.name == name && image.is_valid())
    }

    fn reference(&self, name: &str) -> PathBuf {
        // A name may have slashes and be long, so the file has the name's digest. The name itself is in it.
        self.root.join(REFERENCES).join(format!("{}.json", oci_registry::Digest::of(name.as_bytes()).hex()))
    }

    /// All images, sorted by name.
    pub fn images(&self) -> Vec<StoredImage> {
        let Ok(entries) = std::fs::read_dir(self.root.join(REFERENCES)) else { return Vec::new() };
        let mut images: Vec<StoredImage> = entries
            .filter_map(|entry| read_json::<StoredImage>(&entry.ok()?.path()))
            .filter(StoredImage::is_valid)
            .collect();
        images.sort_by(|a, b| a.name.cmp(&b.name));
        images
    }

    /// A new directory for what is not complete. It is removed when this is dropped.
    pub fn stage(&self) -> io::Result<Staging> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = self.root.join(STAGING).join(format!("{}-{number}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Staging { path })
    }

    /// Gives a complete tree the name of its layer. First everything is written to the disk.
    pub fn add_layer(&self, tree: &Path, name: &str, info: &LayerInfo) -> io::Result<()> {
        let directory = File::open(self.layers_dir())?;
        write_json(&self.info(name), info)?;
        failpoint::at("image.layer.sized")?;
        // One call for the whole file system: a call for each of many thousand files takes much longer.
        rustix::fs::syncfs(&directory)?;
        match std::fs::rename(tree, self.layer(name)) {
            // Another process was quicker. A layer is the same whoever unpacked it.
            Err(_) if self.has_layer(name) => {}
            renamed => renamed?,
        }
        failpoint::at("image.layer.named")?;
        directory.sync_all()
    }

    /// Stores an image under its name, instead of an earlier one of this name.
    pub fn add_image(&self, image: &StoredImage, _lock: &StoreLock) -> io::Result<()> {
        write_json(&self.reference(&image.name), image)?;
        failpoint::at("image.record.named")?;
        File::open(self.root.join(REFERENCES))?.sync_all()
    }

    /// How many bytes may still be written to the store's file system.
    pub fn free_bytes(&self) -> io::Result<u64> {
        let status = rustix::fs::statvfs(&self.root)?;
        Ok(status.f_bavail.saturating_mul(status.f_frsize))
    }
}

/// A directory for what is not complete yet.
pub struct Staging {
    path: PathBuf,
}

impl Staging {
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes a directory below, with the mode that the root of a file system has.
    pub fn make(&self, name: &str) -> io::Result<PathBuf> {
        let path = self.path.join(name);
        std::fs::DirBuilder::new().mode(0o755).create(&path)?;
        // The umask does not decide what a sandbox sees.
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
        Ok(path)
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Option<T> {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(MAX_RECORD_BYTES).read_to_end(&mut bytes).ok()?;
    serde_json::from_slice(&bytes).ok()
}

/// Writes a file completely or not at all, also if the host loses power.
fn write_json(path: &Path, value: &impl serde::Serialize) -> io::Result<()> {
    let fresh = path.with_extension(format!("{}.new", std::process::id()));
    let mut file = File::options().create(true).write(true).truncate(true).mode(0o600).open(&fresh)?;
    let written = file.write_all(&serde_json::to_vec(value)?).and_then(|()| file.sync_all());
    let written = written.and_then(|()| failpoint::at("image.record.written"));
    written.and_then(|()| std::fs::rename(&fresh, path)).inspect_err(|_| drop(std::fs::remove_file(&fresh)))
}

#[cfg(test)]
#[path = "image_store_test.rs"]
mod tests;
