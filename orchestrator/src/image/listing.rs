//! Lists, describes and removes images. Every call reads the disk and blocks.

use std::collections::BTreeMap;
use std::path::Path;

use oci_registry::{Digest, RuntimeConfig};
use serde::Serialize;

use super::error::{ImageError, at};
use super::{BUILT_IN_IMAGES, HIDDEN, HOST_IMAGE, is_name, names, rootfs};
use crate::image_store::{ImageStore, Removed, StoredImage};

/// How the names of directories begin, after the hidden character, that a process makes in the directory of images and removes again.
const LEFTOVERS: [&str; 2] = ["import-", "removed-"];

/// Where an image comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ImageSource {
    /// It is the host's own system.
    Host,
    Import,
    Registry,
    /// It was made from a session.
    Commit,
    /// The configuration says that it is another image.
    #[serde(untagged)]
    Setting(String),
}

impl ImageSource {
    fn of(image: &StoredImage) -> Self {
        match is_name(&image.name) {
            _ if image.committed_from.is_some() => Self::Commit,
            true => Self::Import,
            false => Self::Registry,
        }
    }
}

impl std::fmt::Display for ImageSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Host => HOST_IMAGE,
            Self::Import => "import",
            Self::Registry => "registry",
            Self::Commit => "commit",
            Self::Setting(image) => image,
        })
    }
}

/// An image as `cove image ls` shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ImageSummary {
    pub name: String,
    pub source: ImageSource,
    /// The digest of its manifest, if it came from a registry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
    /// The size of all files in it.
    pub bytes: u64,
    /// How much of that is in layers that another image has too.
    pub shared_bytes: u64,
    /// When it was made, as it says itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created: Option<String>,
}

/// An image as `cove image inspect` shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ImageDetails {
    #[serde(flatten)]
    pub summary: ImageSummary,
    /// The layers, the lowest first. Empty for a root file system that was imported.
    pub layers: Vec<LayerDetails>,
    /// What the image says about programs. `Entrypoint` and `Cmd` are not used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<RuntimeConfig>,
    /// What it was made from, if it was made from a session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub committed_from: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LayerDetails {
    pub digest: String,
    pub bytes: u64,
    pub files: u64,
}

/// All images, sorted by name: those that are here, the names that `configured` gives to images, and the names that stand for the host's
/// own system.
pub fn list(images_dir: &Path, configured: &BTreeMap<String, String>) -> Vec<ImageSummary> {
    let store = ImageStore::new(images_dir);
    let stored = store.images();
    let counts = layer_counts(&stored);
    let mut images: Vec<ImageSummary> = stored.iter().map(|image| summary(&store, image, &counts)).collect();
    images.extend(names(images_dir).into_iter().map(|name| flat_summary(images_dir, name)));
    // What is configured wins, also over an image of that name.
    images.retain(|image| !configured.contains_key(&image.name));
    images.extend(configured.iter().map(|(name, image)| match image.as_str() {
        HOST_IMAGE => elsewhere(name, ImageSource::Host),
        image => elsewhere(name, ImageSource::Setting(image.to_owned())),
    }));
    let is_here = |name: &&str| images.iter().any(|image| image.name == **name) || store.find(name).is_some();
    let hosts: Vec<&str> = BUILT_IN_IMAGES.into_iter().filter(|name| !is_here(name)).collect();
    images.extend(hosts.into_iter().map(|name| elsewhere(name, ImageSource::Host)));
    images.sort_by(|a, b| a.name.cmp(&b.name));
    images
}

pub fn inspect(images_dir: &Path, name: &str) -> Result<ImageDetails, ImageError> {
    if rootfs(images_dir, name).is_some() {
        let summary = flat_summary(images_dir, name.to_owned());
        return Ok(ImageDetails { summary, layers: Vec::new(), config: None, committed_from: None });
    }
    let store = ImageStore::new(images_dir);
    let image = store.find(name).ok_or_else(|| ImageError::Missing(name.to_owned()))?;
    let layers = image.layers.iter().map(|layer| {
        let info = store.layer_info(layer);
        LayerDetails { digest: format!("sha256:{layer}"), bytes: info.bytes, files: info.files }
    });
    let layers = layers.collect();
    let summary = summary(&store, &image, &layer_counts(&store.images()));
    Ok(ImageDetails { summary, layers, config: Some(image.config), committed_from: image.committed_from })
}

/// Removes an image: its name disappears at once, then its files are deleted. Layers that another image or a sandbox uses stay.
/// Sandboxes that use an imported root file system lose their files, so end them first.
pub fn remove(images_dir: &Path, name: &str) -> Result<Removed, ImageError> {
    if let Some(root) = rootfs(images_dir, name) {
        let bytes = size(&root);
        let doomed = images_dir.join(format!("{HIDDEN}removed-{}-{name}", std::process::id()));
        let removing = || format!("removing image {name:?}");
        std::fs::rename(images_dir.join(name), &doomed).map_err(at(removing()))?;
        std::fs::remove_dir_all(doomed).map_err(at(removing()))?;
        return Ok(Removed { bytes, ..Removed::default() });
    }
    let store = ImageStore::new(images_dir);
    let missing = || ImageError::Missing(name.to_owned());
    // Looked up first: without any image there may be no store, and so nothing to lock.
    store.find(name).ok_or_else(missing)?;
    let lock = lock(&store)?;
    store.remove(name, &lock).map_err(at(format!("removing image {name:?}")))?.ok_or_else(missing)
}

/// Removes layers that no image and no sandbox uses, and what interrupted pulls and imports have left.
pub fn prune(images_dir: &Path) -> Result<Removed, ImageError> {
    let store = ImageStore::new(images_dir);
    store.make().map_err(at("opening the store of images"))?;
    let lock = lock(&store)?;
    let mut removed = store.prune(&lock).map_err(at("removing what is not used"))?;
    removed.leftovers += remove_leftovers(images_dir).map_err(at("removing what imports have left"))?;
    Ok(removed)
}

/// Removes what processes that are gone have left half-made. For the start of a daemon.
pub fn discard_leftovers(images_dir: &Path) -> Result<(), ImageError> {
    ImageStore::new(images_dir).discard_leftovers().map_err(at("removing what pulls have left"))?;
    match images_dir.exists() {
        true => remove_leftovers(images_dir).map(drop).map_err(at("removing what imports have left")),
        false => Ok(()),
    }
}

/// Removes directories of imports and removals whose process is gone. A process that has the number by now keeps one until later.
fn remove_leftovers(images_dir: &Path) -> std::io::Result<u64> {
    let mut count = 0;
    for entry in std::fs::read_dir(images_dir)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        let owner = LEFTOVERS.iter().find_map(|kind| name.strip_prefix(HIDDEN)?.strip_prefix(kind)?.split('-').next());
        let Some(pid) = owner.and_then(|pid| pid.parse::<u32>().ok()) else { continue };
        if !Path::new("/proc").join(pid.to_string()).exists() {
            std::fs::remove_dir_all(entry.path())?;
            count += 1;
        }
    }
    Ok(count)
}

fn lock(store: &ImageStore) -> Result<crate::image_store::StoreLock, ImageError> {
    let busy = || ImageError::Busy("an image is being pulled or removed right now; try again when that is over".into());
    store.try_lock_to_remove().map_err(at("locking the store of images"))?.ok_or_else(busy)
}

/// How many images have each layer.
fn layer_counts(images: &[StoredImage]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for layer in images.iter().flat_map(|image| &image.layers) {
        *counts.entry(layer.clone()).or_default() += 1;
    }
    counts
}

fn summary(store: &ImageStore, image: &StoredImage, counts: &BTreeMap<String, usize>) -> ImageSummary {
    let (mut bytes, mut shared_bytes) = (0, 0);
    for layer in &image.layers {
        let size = store.layer_info(layer).bytes;
        bytes += size;
        if counts.get(layer).is_some_and(|count| *count > 1) {
            shared_bytes += size;
        }
    }
    let (digest, created) = (image.digest.clone(), image.created.clone());
    ImageSummary { name: image.short_name(), source: ImageSource::of(image), digest, bytes, shared_bytes, created }
}

fn flat_summary(images_dir: &Path, name: String) -> ImageSummary {
    let bytes = rootfs(images_dir, &name).map_or(0, |path| size(&path));
    ImageSummary { name, source: ImageSource::Import, digest: None, bytes, shared_bytes: 0, created: None }
}

/// A name that has no files of its own.
fn elsewhere(name: &str, source: ImageSource) -> ImageSummary {
    ImageSummary { name: name.to_owned(), source, digest: None, bytes: 0, shared_bytes: 0, created: None }
}

/// The size of all files below a directory. Links are not followed, and what cannot be read does not count.
fn size(directory: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(directory) else { return 0 };
    let of_entry = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(found) if found.is_dir() => size(&entry.path()),
        Ok(found) => found.len(),
        Err(_) => 0,
    };
    entries.flatten().map(of_entry).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_without_an_image_is_listed_as_the_hosts_own_system() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("node/rootfs")).unwrap();
        let configured = [("python".to_owned(), "node".to_owned()), ("old".to_owned(), "host".to_owned())].into();
        let listed: Vec<(String, String)> =
            list(folder.path(), &configured).into_iter().map(|image| (image.name, image.source.to_string())).collect();
        let expected = [("base", "host"), ("host", "host"), ("node", "import"), ("old", "host"), ("python", "node")];
        assert_eq!(listed, expected.map(|(name, source)| (name.to_owned(), source.to_owned())));
        let json = serde_json::to_value(ImageSource::Setting("node".into())).unwrap();
        assert_eq!((json, serde_json::to_value(ImageSource::Host).unwrap()), ("node".into(), "host".into()));
    }

    #[test]
    fn what_a_process_that_is_gone_has_left_is_removed_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        // No process has this number: it is above every kernel's limit.
        let (gone, own) = (u32::MAX, std::process::id());
        let names = [
            format!(".import-{gone}-x"),
            format!(".removed-{gone}-x-y"),
            format!(".import-{own}-x"),
            ".other".to_owned(),
            format!("import-{gone}-x"),
        ];
        for name in &names {
            std::fs::create_dir_all(folder.path().join(name).join("rootfs")).unwrap();
        }
        assert_eq!(prune(folder.path()).unwrap().leftovers, 2);
        let stays: Vec<bool> = names.iter().map(|name| folder.path().join(name).exists()).collect();
        assert_eq!(stays, [false, false, true, true, true]);
    }
}
