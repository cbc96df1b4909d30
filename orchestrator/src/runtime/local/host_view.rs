//! Shows parts of the host in a new root, read-only: whole directories, and the entries of a directory that have certain names.
//!
//! Where the plan says so, they are shown through an overlay, which gives the sandbox inodes of its own. Mounts that only serve to be
//! copied from have places on the sandbox's disk, to which no path inside leads. They go with the old root.

use std::cell::OnceCell;
use std::fs::FileType;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;

use nix::fcntl::{OFlag, openat, readlinkat};
use nix::sys::stat::{FchmodatFlags, Mode, fchmodat, mkdirat};
use nix::unistd::symlinkat;

use super::etc;
use super::plan::View;
use super::root::{EMPTY_DIRECTORY, O_DIRECTORY_PATH, READ_ONLY, bound_tree, by_descriptor, open_directory};
use crate::sys::mount::{self, Submounts};

/// The places on the disk of an overlay over the host's root, and of one over a directory whose entries are shown.
const HOST_DIRECTORY: &str = ".host";
const ENTRIES_DIRECTORY: &str = ".entries";

/// The most entries of a directory that are shown by name. Each is a mount.
const MAX_NAMES: usize = 256;

const DIRECTORY_MODE: Mode = Mode::from_bits_truncate(0o755);

#[derive(Default)]
pub struct HostView {
    /// An overlay over the host's root, once something needs it.
    root: OnceCell<OwnedFd>,
}

impl HostView {
    /// A directory of the host as a detached, read-only mount.
    pub fn tree(&self, source: &Path, view: View, disk: &OwnedFd) -> io::Result<OwnedFd> {
        match view {
            View::Overlay => read_only_overlay(&open_directory(source)?, disk),
            View::PartOfRoot => mount::clone_tree(self.root(disk)?, below_root(source)?, Submounts::Exclude),
            View::Bind => bound_tree(source, READ_ONLY, None),
        }
    }

    /// Shows in `into` what has one of these names in a directory of the host.
    pub fn show_names(
        &self,
        source: &Path,
        names: &[String],
        view: View,
        into: &OwnedFd,
        disk: &OwnedFd,
    ) -> io::Result<()> {
        let from = match view {
            View::Overlay => hidden(&self.tree(source, view, disk)?, ENTRIES_DIRECTORY, disk)?,
            View::PartOfRoot => openat(self.root(disk)?, below_root(source)?, O_DIRECTORY_PATH, Mode::empty())?,
            View::Bind => open_directory(source)?,
        };
        show_entries(source, &from, into, names, view)
    }

    /// The overlay over the host's root.
    fn root(&self, disk: &OwnedFd) -> io::Result<&OwnedFd> {
        if let Some(root) = self.root.get() {
            return Ok(root);
        }
        let overlay = read_only_overlay(&open_directory(Path::new("/"))?, disk)?;
        let root = hidden(&overlay, HOST_DIRECTORY, disk)?;
        Ok(self.root.get_or_init(|| root))
    }
}

fn below_root(path: &Path) -> io::Result<&Path> {
    path.strip_prefix("/").map_err(io::Error::other)
}

/// Gives a mount a place on the disk: only parts of a mount that has a place can be copied.
pub fn hidden(tree: &OwnedFd, name: &str, disk: &OwnedFd) -> io::Result<OwnedFd> {
    mkdirat(disk, name, Mode::from_bits_truncate(0o700))?;
    let place = openat(disk, name, O_DIRECTORY_PATH, Mode::empty())?;
    mount::attach(tree.as_fd(), place.as_fd())?;
    Ok(openat(disk, name, O_DIRECTORY_PATH, Mode::empty())?)
}

/// Shows what has one of these names in `from`, which is `source` on the host.
fn show_entries(source: &Path, from: &OwnedFd, into: &OwnedFd, names: &[String], view: View) -> io::Result<()> {
    let mut shown = 0;
    for entry in std::fs::read_dir(source)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        let parts = etc::names_in(names, &name);
        if etc::is_one_of(names, &name) {
            show_entry(from, into, &name, entry.file_type()?, view)?;
        } else if !parts.is_empty() && entry.file_type()?.is_dir() {
            mkdirat(into, name.as_str(), DIRECTORY_MODE)?;
            fchmodat(into, name.as_str(), DIRECTORY_MODE, FchmodatFlags::FollowSymlink)?;
            let from = openat(from, name.as_str(), O_DIRECTORY_PATH, Mode::empty())?;
            let into = openat(into, name.as_str(), O_DIRECTORY_PATH, Mode::empty())?;
            show_entries(&entry.path(), &from, &into, &parts, view)?;
        } else {
            continue;
        }
        shown += 1;
        if shown > MAX_NAMES {
            return Err(io::Error::other(format!("more than {MAX_NAMES} names are to be shown")));
        }
    }
    Ok(())
}

/// Shows one file, directory or link of a directory.
fn show_entry(from: &OwnedFd, into: &OwnedFd, name: &str, kind: FileType, view: View) -> io::Result<()> {
    let made = if kind.is_symlink() {
        symlinkat(readlinkat(from, name)?.as_os_str(), into, name)
    } else if kind.is_dir() {
        mkdirat(into, name, DIRECTORY_MODE)
    } else if kind.is_file() {
        let flags = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_WRONLY | OFlag::O_CLOEXEC;
        openat(into, name, flags, Mode::from_bits_truncate(0o444)).map(drop)
    } else {
        return Ok(());
    };
    match made {
        // It is one of the files that Cove has written.
        Err(nix::Error::EEXIST) => return Ok(()),
        made => made?,
    }
    if kind.is_symlink() {
        return Ok(());
    }
    let tree = mount::clone_tree(from, Path::new(name), Submounts::Exclude)?;
    if view == View::Bind {
        mount::restrict(tree.as_fd(), READ_ONLY, Submounts::Exclude)?;
    }
    let place = openat(into, name, OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC, Mode::empty())?;
    mount::attach(tree.as_fd(), place.as_fd())
}

/// Makes a read-only overlay over a directory, which must be mounted somewhere. `disk` has the empty directory that stands in for a
/// second layer: the kernel wants two.
pub fn read_only_overlay(lower: &OwnedFd, disk: &OwnedFd) -> io::Result<OwnedFd> {
    let layers = format!("{}:{}", by_descriptor(lower, ""), by_descriptor(disk, EMPTY_DIRECTORY));
    mount::new_filesystem("overlay", &[("lowerdir", layers)], READ_ONLY)
}
