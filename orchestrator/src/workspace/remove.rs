//! Removes a directory tree that may be hostile: links are never followed, depth costs neither stack nor descriptors, the
//! number and the length of names cost no memory, and an unreadable directory is made readable first.
//!
//! Nobody else uses the tree: it was moved to the trash, and no sandbox has it mounted. A directory that is too deep is
//! moved up to the trash and removed from there.

use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use nix::dir::{Dir, Type};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat, renameat};
use nix::sys::stat::{FchmodatFlags, Mode, SFlag, fchmodat, fstatat};
use nix::unistd::{UnlinkatFlags, unlinkat};

/// The most directories that are open at once, each with two descriptors, and the most frames on the stack.
const MAX_DEPTH: usize = 64;

const OPEN_FLAGS: OFlag = OFlag::O_DIRECTORY.union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);

/// Removes everything in the trash. If something cannot be removed, it continues, and returns the first error at the end.
pub fn empty_trash(trash: &Path) -> io::Result<()> {
    let root = OwnedFd::from(std::fs::File::open(trash)?);
    let tag = getrandom::u64().map_err(io::Error::other)?;
    let mut sweep = Sweep { root: root.as_fd(), tag, moved: 0, first_error: None };
    // Each round removes something or moves something up, so the loop ends. Files that cannot be removed cause no new round.
    while sweep.content(root.as_fd(), 0)? {}
    match sweep.first_error {
        None => Ok(()),
        Some((name, error)) => {
            let name = OsStr::from_bytes(name.as_bytes()).to_string_lossy().into_owned();
            Err(io::Error::new(io::Error::from(error).kind(), format!("{name:?}: {error}")))
        }
    }
}

struct Sweep<'a> {
    root: BorrowedFd<'a>,
    /// The number in the next name of a directory that is moved up. An earlier sweep may have left some of these names.
    tag: u64,
    moved: u64,
    first_error: Option<(CString, Errno)>,
}

impl Sweep<'_> {
    /// Removes what is in a directory, while it is read. Returns whether anything was removed: then an entry may have been
    /// missed, because a file system may skip some while others disappear.
    fn content(&mut self, dir: BorrowedFd<'_>, depth: usize) -> Result<bool, Errno> {
        let mut removed = false;
        for entry in Dir::openat(dir, c".", OPEN_FLAGS, Mode::empty())?.iter() {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    self.note(c".", error);
                    break;
                }
            };
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            match self.entry(dir, name, entry.file_type(), depth) {
                Ok(()) => removed = true,
                Err(error) => self.note(name, error),
            }
        }
        Ok(removed)
    }

    fn entry(&mut self, parent: BorrowedFd<'_>, name: &CStr, kind: Option<Type>, depth: usize) -> Result<(), Errno> {
        let is_dir = match kind {
            Some(kind) => kind == Type::Directory,
            None => {
                let stat = fstatat(parent, name, AtFlags::AT_SYMLINK_NOFOLLOW)?;
                SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits()) == SFlag::S_IFDIR
            }
        };
        if !is_dir {
            return unlinkat(parent, name, UnlinkatFlags::NoRemoveDir);
        }
        if unlinkat(parent, name, UnlinkatFlags::RemoveDir).is_ok() {
            return Ok(());
        }
        if depth == MAX_DEPTH {
            let up = CString::new(format!("deep-{:x}-{}", self.tag, self.moved)).map_err(|_| Errno::EINVAL)?;
            renameat(parent, name, self.root, up.as_c_str())?;
            self.moved += 1;
            return Ok(());
        }
        let open = || openat(parent, name, OPEN_FLAGS, Mode::empty());
        // Its owner may have removed all permissions to read or change it. It is known to be no link.
        let dir = match open() {
            Err(Errno::EACCES) => {
                fchmodat(parent, name, Mode::S_IRWXU, FchmodatFlags::FollowSymlink)?;
                open()?
            }
            other => other?,
        };
        // A failure is no error yet: root needs no permission.
        let _ = nix::sys::stat::fchmod(&dir, Mode::S_IRWXU);
        loop {
            let removed = self.content(dir.as_fd(), depth + 1)?;
            match unlinkat(parent, name, UnlinkatFlags::RemoveDir) {
                Err(Errno::ENOTEMPTY) if removed => {}
                other => return other,
            }
        }
    }

    fn note(&mut self, name: &CStr, error: Errno) {
        if self.first_error.is_none() && error != Errno::ENOENT {
            self.first_error = Some((name.to_owned(), error));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_link_is_removed_and_not_what_it_points_to() {
        let folder = tempfile::tempdir().unwrap();
        let (trash, outside) = (folder.path().join("trash"), folder.path().join("outside"));
        std::fs::create_dir_all(trash.join("w/a")).unwrap();
        std::fs::create_dir(&outside).unwrap();
        std::fs::write(outside.join("precious"), "x").unwrap();
        std::os::unix::fs::symlink(&outside, trash.join("w/a/link")).unwrap();
        std::os::unix::fs::symlink(outside.join("precious"), trash.join("file-link")).unwrap();
        empty_trash(&trash).unwrap();
        assert_eq!(std::fs::read_dir(&trash).unwrap().count(), 0);
        assert_eq!(std::fs::read_to_string(outside.join("precious")).unwrap(), "x");
    }

    #[test]
    fn depth_beyond_every_limit_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let trash = folder.path().join("trash");
        std::fs::create_dir(&trash).unwrap();
        // Each step is relative to the last directory, because no path can be that long.
        let mut at = OwnedFd::from(std::fs::File::open(&trash).unwrap());
        for _ in 0..3000 {
            nix::sys::stat::mkdirat(&at, c"d", Mode::S_IRWXU).unwrap();
            at = nix::fcntl::openat(&at, c"d", OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty()).unwrap();
        }
        empty_trash(&trash).unwrap();
        assert_eq!(std::fs::read_dir(&trash).unwrap().count(), 0);
    }

    #[test]
    fn what_its_owner_may_not_read_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let trash = folder.path().join("trash");
        std::fs::create_dir_all(trash.join("w/shut/inner")).unwrap();
        std::fs::write(trash.join("w/shut/file"), "x").unwrap();
        std::fs::set_permissions(trash.join("w/shut"), std::fs::Permissions::from_mode(0o000)).unwrap();
        empty_trash(&trash).unwrap();
        assert_eq!(std::fs::read_dir(&trash).unwrap().count(), 0);
    }
}
