//! Imports an archive of layers that was unpacked into a directory: an OCI layout, or what `docker save` writes.
//!
//! The directory comes from a stranger. So every name in it is resolved with the directory as its root, and every document and layer is
//! checked against its digest.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat, openat2};
use nix::sys::stat::Mode;
use oci_registry::{Digest, ImageConfig, Manifest, Platform, choose_platform, is_index};
use serde::Deserialize;

use super::ImportSummary;
use super::error::{ImageError, at};
use super::layers::{self, Budget, Keeping, MAX_LAYERS};
use crate::image_store::{ImageStore, StoredImage};

/// The documents that tell what a directory is.
const DOCKER_MANIFEST: &str = "manifest.json";
const OCI_LAYOUT: &str = "oci-layout";
const OCI_INDEX: &str = "index.json";

const MAX_DOCUMENT_BYTES: u64 = 8 << 20;
/// An index may name an index.
const MAX_INDEX_DEPTH: usize = 2;

/// Whether a directory has layers in it rather than a root file system.
pub fn is_layout(directory: &Path) -> bool {
    let has = |name: &str| std::fs::symlink_metadata(directory.join(name)).is_ok();
    (has(DOCKER_MANIFEST) || (has(OCI_LAYOUT) && has(OCI_INDEX))) && !has("bin") && !has("usr")
}

/// One image of `manifest.json`.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Saved {
    config: String,
    layers: Vec<String>,
}

/// What is in the directory: the configuration, and where each layer is.
struct Found {
    digest: Option<Digest>,
    config: ImageConfig,
    layers: Vec<String>,
}

pub fn import(store: &ImageStore, name: &str, directory: &Path) -> Result<ImportSummary, ImageError> {
    let root = openat(AT_FDCWD, directory, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())
        .map_err(|e| at(format!("opening {}", directory.display()))(e.into()))?;
    let found = Layout { root }.look()?;
    let diff_ids = found.0.config.rootfs.diff_ids.clone();
    store.make().map_err(at("making the store of images"))?;
    let busy = || ImageError::Busy("somebody removes images; try again when that is over".into());
    let lock = store.try_lock_to_add().map_err(at("locking the store of images"))?.ok_or_else(busy)?;
    let (found, layout) = found;
    let mut budget = Budget(u64::MAX);
    let keeping = Keeping::here(store)?;
    let names = match keeping {
        Keeping::Shared => {
            for (path, diff_id) in found.layers.iter().zip(&diff_ids) {
                if !store.has_layer(diff_id.hex()) {
                    layers::add(store, diff_id, layout.open(path)?, &mut budget)?;
                }
            }
            let last = layers::add_last(store, &diff_ids)?;
            diff_ids.iter().map(|diff_id| diff_id.hex().to_owned()).chain([last]).collect()
        }
        Keeping::InOne => {
            let archive = |n: usize| layout.open(&found.layers[n]);
            vec![layers::add_flat(store, &diff_ids, archive, budget)?]
        }
    };
    let mut summary = ImportSummary::default();
    for info in names.iter().map(|layer: &String| store.layer_info(layer)) {
        summary.files += info.files;
        summary.bytes += info.bytes;
    }
    let config = found.config.config.unwrap_or_default();
    let user = match keeping {
        Keeping::Shared => layers::find_user(store, &names, config.user.as_deref())?,
        // There, commands have one user.
        Keeping::InOne => None,
    };
    let image = StoredImage {
        name: name.to_owned(),
        digest: found.digest,
        layers: names,
        created: found.config.created,
        stored: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs()),
        config,
        committed_from: None,
        user,
    };
    store.add_image(&image, &lock).map_err(at("storing the image's name"))?;
    Ok(summary)
}

struct Layout {
    root: OwnedFd,
}

impl Layout {
    /// Finds the image, and this for its layers.
    fn look(self) -> Result<(Found, Self), ImageError> {
        let found = match self.document(DOCKER_MANIFEST) {
            Ok(bytes) => self.saved(&bytes)?,
            Err(_) => self.oci()?,
        };
        let (layers, contents) = (found.layers.len(), found.config.rootfs.diff_ids.len());
        if layers == 0 || layers != contents || layers > MAX_LAYERS {
            let message =
                format!("the image has {layers} layers and says that it has {contents}; 1 to {MAX_LAYERS} are taken");
            return Err(ImageError::Archive(message));
        }
        Ok((found, self))
    }

    fn saved(&self, bytes: &[u8]) -> Result<Found, ImageError> {
        let images: Vec<Saved> = serde_json::from_slice(bytes).map_err(|e| not_understood(DOCKER_MANIFEST, &e))?;
        let [image] = images.as_slice() else {
            let message = format!("the archive has {} images, and one is imported at a time", images.len());
            return Err(ImageError::Archive(message));
        };
        let config = ImageConfig::parse(&self.document(&image.config)?)?;
        Ok(Found { digest: None, config, layers: image.layers.clone() })
    }

    fn oci(&self) -> Result<Found, ImageError> {
        let mut bytes = self.document(OCI_INDEX)?;
        let mut digest = None;
        for _ in 0..=MAX_INDEX_DEPTH {
            if !is_index(&bytes, None, OCI_INDEX)? {
                let manifest = Manifest::parse(&bytes, "the manifest")?;
                let config = ImageConfig::parse(&self.blob(&manifest.config.digest)?)?;
                let layers = manifest.layers.iter().map(|layer| blob_path(&layer.digest)).collect();
                return Ok(Found { digest, config, layers });
            }
            let chosen = choose_platform(&bytes, &Platform::own(), OCI_INDEX)?;
            bytes = self.blob(&chosen.digest)?;
            digest = Some(chosen.digest);
        }
        Err(ImageError::Archive("an index names an index, and that another one".into()))
    }

    fn blob(&self, digest: &Digest) -> Result<Vec<u8>, ImageError> {
        let bytes = self.document(&blob_path(digest))?;
        match Digest::of(&bytes) == *digest {
            true => Ok(bytes),
            false => Err(ImageError::Archive(format!("blob {} does not have its digest", digest.short()))),
        }
    }

    fn document(&self, path: &str) -> Result<Vec<u8>, ImageError> {
        let mut bytes = Vec::new();
        let reading = |e| at(format!("reading {path:?} of the archive"))(e);
        self.open(path)?.take(MAX_DOCUMENT_BYTES).read_to_end(&mut bytes).map_err(reading)?;
        Ok(bytes)
    }

    fn open(&self, path: &str) -> Result<File, ImageError> {
        let how = OpenHow::new()
            .flags(OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)
            .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS);
        let missing = |e: nix::Error| at(format!("opening {path:?} of the archive"))(e.into());
        openat2(&self.root, path, how).map(File::from).map_err(missing)
    }
}

fn blob_path(digest: &Digest) -> String {
    format!("blobs/sha256/{}", digest.hex())
}

fn not_understood(what: &str, error: &serde_json::Error) -> ImageError {
    ImageError::Archive(format!("{what} is not understood: {error}"))
}
