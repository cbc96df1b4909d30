//! Imported root file systems: `images/NAME/rootfs`, complete or not there at all.

mod import;
mod unpack;

use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;

pub use import::{ImportError, ImportSummary, import};
pub use unpack::main as unpack_main;

/// Names that begin so are of imports that have not ended, or of images that are being removed.
const HIDDEN: char = '.';

/// Where an image's root file system is, if it was imported.
pub fn rootfs(images_dir: &Path, name: &str) -> Option<PathBuf> {
    if !is_name(name) {
        return None;
    }
    let path = images_dir.join(name).join("rootfs");
    path.is_dir().then_some(path)
}

pub fn exists(images_dir: &Path, name: &str) -> bool {
    rootfs(images_dir, name).is_some()
}

/// Sorted.
pub fn names(images_dir: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(images_dir) else { return Vec::new() };
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| exists(images_dir, name))
        .collect();
    names.sort();
    names
}

/// One image, as a listing shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ImageSummary {
    pub name: String,
    /// Of all files in it.
    pub bytes: u64,
}

/// Sorted by name.
pub fn list(images_dir: &Path) -> Vec<ImageSummary> {
    let summary = |name: String| {
        let bytes = rootfs(images_dir, &name).map_or(0, |path| size(&path));
        ImageSummary { name, bytes }
    };
    names(images_dir).into_iter().map(summary).collect()
}

/// Links are not followed, and what cannot be read counts as nothing.
fn size(directory: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(directory) else { return 0 };
    let of_entry = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(found) if found.is_dir() => size(&entry.path()),
        Ok(found) => found.len(),
        Err(_) => 0,
    };
    entries.flatten().map(of_entry).sum()
}

/// Takes it away at once and then deletes it. Sandboxes that run from it lose their files: end them first.
pub fn remove(images_dir: &Path, name: &str) -> io::Result<()> {
    if rootfs(images_dir, name).is_none() {
        return Err(io::Error::new(io::ErrorKind::NotFound, format!("there is no image {name:?}")));
    }
    let doomed = images_dir.join(format!("{HIDDEN}removed-{}-{name}", std::process::id()));
    std::fs::rename(images_dir.join(name), &doomed)?;
    std::fs::remove_dir_all(doomed)
}

/// As other names that travel in URLs and are directories.
fn is_name(name: &str) -> bool {
    shared_protocol::SessionId::new(name).is_ok()
}
