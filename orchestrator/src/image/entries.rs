//! Unpacks the entries of an archive below a directory: files, directories, links. What removes something of a lower layer, a
//! whiteout, is told apart by its name.
//!
//! It runs in a process whose root is that directory, so no name or link leads outside; see `unpack`.

use std::collections::BTreeSet;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use nix::sys::stat::{Mode, SFlag, mknod};
use serde::{Deserialize, Serialize};
use tar::{Entry, EntryType};

use super::ImportSummary;

/// What a layer puts beside a name to remove it, and into a directory to remove what lower layers have in it.
pub const WHITEOUT: &[u8] = b".wh.";
pub const OPAQUE: &[u8] = b".wh..wh..opq";
/// Names of a file system that is no longer in use; they mean nothing.
const OLD: &[u8] = b".wh..wh.";

/// The attribute by which overlayfs knows that nothing below a directory shows through.
pub const OPAQUE_ATTRIBUTE: &str = "trusted.overlay.opaque";
/// Attributes of files are records of this name in an archive. Of them only those of users are kept: the others mean capabilities,
/// labels and the insides of an overlay, and are for no sandbox to have.
pub const ATTRIBUTE_RECORD: &str = "SCHILY.xattr.";
const KEPT_ATTRIBUTES: &str = "user.";
const REFUSED_ATTRIBUTES: &str = "user.overlay.";

/// The owner that unpacked files get.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Owners {
    OfArchive,
    Ours,
}

/// How much may be unpacked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnpackLimits {
    /// Bytes of the archive without its compression, and of the files in it.
    pub bytes: u64,
    pub entries: u64,
}

/// What becomes of whiteouts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whiteouts {
    /// They are files like others: the archive is a whole root file system.
    AreFiles,
    /// They become what overlayfs has for them.
    ForOverlay,
    /// They have been applied to the tree before.
    AreDone,
}

/// What the name of an entry says.
#[derive(Debug, PartialEq, Eq)]
pub enum Meaning<'a> {
    File,
    /// Removes this name from the lower layers.
    Removes(PathBuf),
    /// Removes everything that lower layers have in this directory.
    Empties(&'a Path),
    Nothing,
}

/// What an entry of a layer means by its name. Pure.
pub fn meaning(path: &Path) -> Meaning<'_> {
    let Some(name) = path.file_name().map(|name| name.as_bytes()) else { return Meaning::File };
    let parent = path.parent().unwrap_or(Path::new(""));
    if name == OPAQUE {
        return Meaning::Empties(parent);
    }
    if name.starts_with(OLD) {
        return Meaning::Nothing;
    }
    match name.strip_prefix(WHITEOUT) {
        None => Meaning::File,
        Some(b"" | b"." | b"..") => Meaning::Nothing,
        Some(removed) => Meaning::Removes(parent.join(std::ffi::OsStr::from_bytes(removed))),
    }
}

/// Unpacks all entries of an archive below `root`.
pub fn unpack_entries(
    from: impl Read,
    root: &Path,
    owners: Owners,
    whiteouts: Whiteouts,
    limits: UnpackLimits,
) -> Result<ImportSummary, String> {
    let mut archive = archive(from, owners);
    let mut summary = ImportSummary::default();
    // They count for lower layers alone, whatever their place in the archive. So they come after everything else.
    let mut removed: BTreeSet<PathBuf> = BTreeSet::new();
    let mut emptied: BTreeSet<PathBuf> = BTreeSet::new();
    let mut count = 0_u64;
    for entry in archive.entries().map_err(not_a_tar)? {
        let mut entry = entry.map_err(damaged)?;
        count += 1;
        if count > limits.entries {
            return Err(format!("it has more than {} entries, which is the limit", limits.entries));
        }
        let path = entry.path().map_err(damaged)?.into_owned();
        match (whiteouts, meaning(&path)) {
            (Whiteouts::AreFiles, _) | (_, Meaning::File) => {}
            (Whiteouts::AreDone, _) | (_, Meaning::Nothing) => continue,
            (Whiteouts::ForOverlay, Meaning::Removes(name)) => {
                removed.insert(name);
                continue;
            }
            (Whiteouts::ForOverlay, Meaning::Empties(directory)) => {
                emptied.insert(directory.to_owned());
                continue;
            }
        }
        let kind = entry.header().entry_type();
        if kind.is_character_special() || kind.is_block_special() || kind.is_fifo() {
            summary.skipped += 1;
            continue;
        }
        // A sparse entry can claim any size.
        summary.bytes = summary.bytes.saturating_add(entry.size());
        if summary.bytes > limits.bytes {
            return Err(super::stream::TooLarge { limit: limits.bytes }.to_string());
        }
        let name = path.display().to_string();
        if whiteouts != Whiteouts::AreFiles {
            make_way(root, &path, kind).map_err(|e| format!("replacing {name:?}: {e}"))?;
        }
        if !entry.unpack_in(root).map_err(|e| format!("unpacking {name:?}: {}", cause(&e)))? {
            return Err(format!("the archive contains {name:?}, which leads out of the image"));
        }
        keep_attributes(&mut entry, root, &path);
        summary.files += 1;
    }
    for name in removed {
        white_out(root, &name).map_err(|e| format!("removing {:?}: {e}", name.display().to_string()))?;
    }
    for directory in emptied {
        make_opaque(root, &directory).map_err(|e| format!("emptying {:?}: {e}", directory.display().to_string()))?;
    }
    Ok(summary)
}

/// Removes from a tree of lower layers what a layer removes.
pub fn apply_whiteouts(from: impl Read, root: &Path) -> Result<(), String> {
    for entry in archive(from, Owners::Ours).entries().map_err(not_a_tar)? {
        let entry = entry.map_err(damaged)?;
        let path = entry.path().map_err(damaged)?.into_owned();
        let applied = match meaning(&path) {
            Meaning::Removes(name) => existing(root, &name).map_or(Ok(()), |place| remove_tree(&place)),
            Meaning::Empties(directory) => empty(root, directory),
            Meaning::File | Meaning::Nothing => Ok(()),
        };
        applied.map_err(|e| format!("removing what {:?} removes: {e}", path.display().to_string()))?;
    }
    Ok(())
}

fn archive<R: Read>(from: R, owners: Owners) -> tar::Archive<R> {
    let mut archive = tar::Archive::new(from);
    archive.set_preserve_permissions(true);
    archive.set_preserve_ownerships(owners == Owners::OfArchive);
    archive
}

fn not_a_tar(error: io::Error) -> String {
    format!("it is not a tar archive: {error}")
}

/// The innermost cause of an error: what the kernel, or the limit, said.
fn cause(error: &io::Error) -> String {
    let mut innermost: &dyn std::error::Error = error;
    while let Some(inner) = innermost.source() {
        innermost = inner;
    }
    innermost.to_string()
}

fn damaged(error: io::Error) -> String {
    match error.get_ref().is_some_and(|inner| inner.is::<super::stream::TooLarge>()) {
        true => error.to_string(),
        false => format!("it is not a tar archive, or it is damaged: {error}"),
    }
}

/// Where an entry is unpacked, if its name stays below the root: no `..`, and no part of the way a link.
fn place(root: &Path, path: &Path) -> Option<PathBuf> {
    let mut place = root.to_owned();
    let parts: Vec<Component<'_>> =
        path.components().filter(|part| !matches!(part, Component::CurDir | Component::RootDir)).collect();
    for (n, part) in parts.iter().enumerate() {
        let Component::Normal(name) = part else { return None };
        place.push(name);
        let is_link = std::fs::symlink_metadata(&place).is_ok_and(|found| found.is_symlink());
        if is_link && n + 1 < parts.len() {
            return None;
        }
    }
    Some(place)
}

fn existing(root: &Path, path: &Path) -> Option<PathBuf> {
    place(root, path).filter(|place| place != root && std::fs::symlink_metadata(place).is_ok())
}

/// Removes what is in the way of an entry of another kind: a directory takes the place of a file, and a file that of a directory.
fn make_way(root: &Path, path: &Path, kind: EntryType) -> io::Result<()> {
    let Some(place) = existing(root, path) else { return Ok(()) };
    let is_directory = std::fs::symlink_metadata(&place)?.is_dir();
    if is_directory == kind.is_dir() { Ok(()) } else { remove_tree(&place) }
}

fn remove_tree(place: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(place)?.is_dir() {
        true => std::fs::remove_dir_all(place),
        false => std::fs::remove_file(place),
    }
}

fn empty(root: &Path, directory: &Path) -> io::Result<()> {
    // A link is no directory of the image, wherever it leads.
    let is_directory = |place: &PathBuf| std::fs::symlink_metadata(place).is_ok_and(|found| found.is_dir());
    let Some(place) = place(root, directory).filter(is_directory) else { return Ok(()) };
    for entry in std::fs::read_dir(place)? {
        remove_tree(&entry?.path())?;
    }
    Ok(())
}

/// Puts into a layer what makes overlayfs hide a name of the layers below.
fn white_out(root: &Path, name: &Path) -> io::Result<()> {
    let Some(place) = place(root, name) else { return Ok(()) };
    match std::fs::symlink_metadata(&place) {
        // The layer has something of this name: a directory of its own, which shows nothing of the lower ones.
        Ok(found) if found.is_dir() => make_opaque(root, name),
        Ok(_) => Ok(()),
        Err(_) => {
            if let Some(parent) = place.parent() {
                std::fs::create_dir_all(parent)?;
            }
            // A device with the number 0:0, which needs no privileges.
            Ok(mknod(&place, SFlag::S_IFCHR, Mode::empty(), 0)?)
        }
    }
}

fn make_opaque(root: &Path, directory: &Path) -> io::Result<()> {
    let is_other = |place: &PathBuf| std::fs::symlink_metadata(place).is_ok_and(|found| !found.is_dir());
    let Some(place) = place(root, directory).filter(|place| !is_other(place)) else { return Ok(()) };
    std::fs::create_dir_all(&place)?;
    Ok(rustix::fs::lsetxattr(&place, OPAQUE_ATTRIBUTE, b"y", rustix::fs::XattrFlags::empty())?)
}

/// Whether an image keeps an attribute of this name.
pub fn is_kept_attribute(name: &str) -> bool {
    name.starts_with(KEPT_ATTRIBUTES) && !name.starts_with(REFUSED_ATTRIBUTES)
}

/// Sets those attributes of a file that a sandbox may have. A file system without attributes is no error.
fn keep_attributes(entry: &mut Entry<'_, impl Read>, root: &Path, path: &Path) {
    let Ok(Some(records)) = entry.pax_extensions() else { return };
    let Some(place) = existing(root, path) else { return };
    for record in records.flatten() {
        let name = record.key().ok().and_then(|key| key.strip_prefix(ATTRIBUTE_RECORD));
        if let Some(name) = name.filter(|name| is_kept_attribute(name)) {
            let _ = rustix::fs::lsetxattr(&place, name, record.value_bytes(), rustix::fs::XattrFlags::empty());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_what_it_removes() {
        let removes = |path: &'static str| meaning(Path::new(path));
        assert_eq!(removes("a/b"), Meaning::File);
        assert_eq!(removes("a/.wh.b"), Meaning::Removes("a/b".into()));
        assert_eq!(removes(".wh.b"), Meaning::Removes("b".into()));
        assert_eq!(removes("a/.wh..b"), Meaning::Removes("a/.b".into()));
        assert_eq!(removes("a/.wh..wh..opq"), Meaning::Empties(Path::new("a")));
        assert_eq!(removes(".wh..wh..opq"), Meaning::Empties(Path::new("")));
        for nothing in ["a/.wh.", "a/.wh..", "a/.wh...", "a/.wh..wh.plnk", ".wh..wh.aufs"] {
            assert_eq!(removes(nothing), Meaning::Nothing, "{nothing}");
        }
        assert_eq!(removes("a/.whatever"), Meaning::File);
    }

    #[test]
    fn no_name_leads_out_of_the_root_or_through_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        std::os::unix::fs::symlink("/etc", root.join("link")).unwrap();
        assert_eq!(place(root, Path::new("./a/b")), Some(root.join("a/b")));
        assert_eq!(place(root, Path::new("/a")), Some(root.join("a")));
        assert_eq!(place(root, Path::new("link")), Some(root.join("link")));
        assert_eq!(place(root, Path::new("link/passwd")), None);
        assert_eq!(place(root, Path::new("../a")), None);
        assert_eq!(place(root, Path::new("a/../../b")), None);
    }
}
