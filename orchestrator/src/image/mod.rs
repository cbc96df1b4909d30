//! Imported root file systems: `images/NAME/rootfs`, complete or not there at all.

use std::path::{Path, PathBuf};

/// Where an image's root file system is, if it was imported.
pub fn rootfs(images_dir: &Path, name: &str) -> Option<PathBuf> {
    if shared_protocol::SessionId::new(name).is_err() {
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
