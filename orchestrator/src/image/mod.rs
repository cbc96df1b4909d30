//! Imported images: `images/NAME/rootfs` in the data directory. An image is there completely or not at all.

#[cfg(any(test, fuzzing))]
#[path = "fuzz_test.rs"]
pub mod fuzz;
mod import;
mod unpack;

use std::io;
use std::path::Path;

use serde::Serialize;

pub use import::{ImportError, ImportSummary, import};
pub use unpack::main as unpack_main;

use crate::runtime::local::images::{is_name, names, rootfs};

/// The first character of directories that are not images: imports that are not complete, and images that are being removed.
const HIDDEN: char = '.';

/// An image as `cove image ls` shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ImageSummary {
    pub name: String,
    /// The size of all files in it.
    pub bytes: u64,
}

/// All images, sorted by name.
pub fn list(images_dir: &Path) -> Vec<ImageSummary> {
    let summary = |name: String| {
        let bytes = rootfs(images_dir, &name).map_or(0, |path| size(&path));
        ImageSummary { name, bytes }
    };
    names(images_dir).into_iter().map(summary).collect()
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

/// Removes an image: it disappears at once, then its files are deleted. Sandboxes that use it lose their files, so end them first.
pub fn remove(images_dir: &Path, name: &str) -> io::Result<()> {
    if rootfs(images_dir, name).is_none() {
        return Err(io::Error::new(io::ErrorKind::NotFound, format!("there is no image {name:?}")));
    }
    let doomed = images_dir.join(format!("{HIDDEN}removed-{}-{name}", std::process::id()));
    std::fs::rename(images_dir.join(name), &doomed)?;
    std::fs::remove_dir_all(doomed)
}
