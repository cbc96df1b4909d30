//! Removes a tree that somebody hostile has made: links are never followed, depth costs neither stack nor descriptors, and
//! what cannot be read is made readable first.
//!
//! Nobody else is in the tree: it was moved to the trash, and no sandbox has it mounted any more. A directory that lies too
//! deep is moved up to the trash and has its turn there.

use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use nix::dir::{Dir, Type};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, renameat};
use nix::sys::stat::{FchmodatFlags, Mode, SFlag, fchmodat, fstatat};
use nix::unistd::{UnlinkatFlags, unlinkat};

/// Directories open at once, and frames on the stack.
const MAX_DEPTH: usize = 64;

/// Removes everything in the trash. Goes on past what cannot be removed, and says so at the end with the first reason.
pub fn empty_trash(trash: &Path) -> io::Result<()> {
    let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let root = OwnedFd::from(std::fs::File::open(trash)?);
    let tag = getrandom::u64().map_err(io::Error::other)?;
    let mut sweep = Sweep { root: root.as_fd(), tag, moved: 0, first_error: None };
    // Each round ends with fewer levels than it began with, so that rounds end. What cannot be removed makes no new round.
    loop {
        let moved_before = sweep.moved;
        let mut dir = Dir::openat(root.as_fd(), c".", flags, Mode::empty())?;
        sweep.content(&mut dir, 0);
        if sweep.moved == moved_before {
            break;
        }
    }
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
    /// Of the names that directories moved up get: an earlier sweep may have left some.
    tag: u64,
    moved: u64,
    first_error: Option<(CString, Errno)>,
}

impl Sweep<'_> {
    fn content(&mut self, dir: &mut Dir, depth: usize) {
        // Taken out of the iterator first: what is removed while it reads may or may not appear.
        let mut names: Vec<(CString, Option<Type>)> = Vec::new();
        for entry in dir.iter() {
            match entry {
                Ok(entry) if matches!(entry.file_name().to_bytes(), b"." | b"..") => {}
                Ok(entry) => names.push((entry.file_name().to_owned(), entry.file_type())),
                Err(error) => self.note(c".", error),
            }
        }
        for (name, kind) in names {
            if let Err(error) = self.entry(dir, &name, kind, depth) {
                self.note(&name, error);
            }
        }
    }

    fn entry(&mut self, parent: &Dir, name: &CStr, kind: Option<Type>, depth: usize) -> Result<(), Errno> {
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
        let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let opened = Dir::openat(parent, name, flags, Mode::empty());
        // Its owner may have taken the right to read or to change it from everybody; it is known to be no link.
        let mut dir = match opened {
            Err(Errno::EACCES) => {
                fchmodat(parent, name, Mode::S_IRWXU, FchmodatFlags::FollowSymlink)?;
                Dir::openat(parent, name, flags, Mode::empty())?
            }
            other => other?,
        };
        // Not being able to is no error yet: root needs no permission.
        let _ = nix::sys::stat::fchmod(&dir, Mode::S_IRWXU);
        self.content(&mut dir, depth + 1);
        unlinkat(parent, name, UnlinkatFlags::RemoveDir)
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
        // Relative to the last, since no path can be so long.
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
