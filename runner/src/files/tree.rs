//! Walks or removes everything below a directory, with held descriptors. Links are shown and never followed.
//!
//! Both hold one or two descriptors per level and a bounded batch of names. `walk` goes no deeper than `MAX_LEVELS` and
//! tells its visitor; `remove` moves directories that are too deep up to the top and continues.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, renameat};
use nix::sys::stat::{FileStat, fstatat};
use nix::unistd::{UnlinkatFlags, unlinkat};
use shared_protocol::ErrorBody;

use super::error::{At, from_errno};
use super::inode::{is_directory, open_directory};
use super::protocol::ReplyWriter;
use super::temporary;

/// The most nested directories that a walk enters.
pub const MAX_LEVELS: usize = 256;
/// The most names that a removal holds for each level.
const REMOVE_BATCH: usize = 512;
/// How often a directory is emptied again because something was created in it meanwhile.
const MAX_REMOVE_ROUNDS: usize = 16;

/// An entry that a walk has found.
pub struct Entry<'a> {
    /// The path relative to the start of the walk.
    pub path: &'a [u8],
    pub dir: BorrowedFd<'a>,
    pub name: &'a [u8],
    pub stat: &'a FileStat,
}

/// Whether a walk enters a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Descend {
    Enter,
    Skip,
}

/// Receives the entries of a walk.
pub trait Visitor {
    /// Called for every entry that still exists, and for a directory before its content.
    fn entry(&mut self, entry: &Entry<'_>) -> Result<Descend, ErrorBody>;

    /// Called for a directory that could not be entered, because it cannot be read or is too deep.
    fn not_entered(&mut self, path: &[u8], why: Errno) -> Result<(), ErrorBody>;
}

/// Shows a visitor everything below `top`, a directory open for reading, in the order of the filesystem.
pub fn walk(top: OwnedFd, asked: &[u8], visitor: &mut dyn Visitor) -> Result<(), ErrorBody> {
    level(&top, asked, &mut Vec::new(), 1, visitor)
}

fn level(
    dir: &OwnedFd,
    asked: &[u8],
    path: &mut Vec<u8>,
    levels: usize,
    visitor: &mut dyn Visitor,
) -> Result<(), ErrorBody> {
    let mut names = Dir::from_fd(open_directory(dir.as_fd(), b".").at(asked)?).at(asked)?;
    for entry in names.iter() {
        let entry = entry.at(asked)?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        let stat = match fstatat(dir, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Err(Errno::ENOENT) => continue,
            other => other.at(&below(asked, path, name))?,
        };
        let parent_length = path.len();
        push(path, name);
        if visitor.entry(&Entry { path, dir: dir.as_fd(), name, stat: &stat })? == Descend::Enter && is_directory(&stat)
        {
            let opened = if levels < MAX_LEVELS { open_directory(dir.as_fd(), name) } else { Err(Errno::ENAMETOOLONG) };
            match opened {
                Ok(child) => level(&child, asked, path, levels + 1, visitor)?,
                // The directory was removed, or replaced by something that is not a directory.
                Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => {}
                Err(why) => visitor.not_entered(path, why)?,
            }
        }
        path.truncate(parent_length);
    }
    Ok(())
}

fn push(path: &mut Vec<u8>, name: &[u8]) {
    if !path.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name);
}

/// A path for an error: the client's path, followed by the path below it.
pub fn below(asked: &[u8], path: &[u8], name: &[u8]) -> Vec<u8> {
    [asked, path, name].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(&b'/')
}

/// Removes a directory and everything in it.
pub fn remove(parent: BorrowedFd<'_>, name: &[u8], asked: &[u8], reply: &mut ReplyWriter<'_>) -> Result<(), ErrorBody> {
    let top = open_directory(parent, name).at(asked)?;
    let mut removal = Removal { top: &top, asked, reply };
    removal.directory(parent, name, &top, &mut Vec::new(), 1)
}

struct Removal<'a, 'b> {
    top: &'a OwnedFd,
    asked: &'a [u8],
    reply: &'a mut ReplyWriter<'b>,
}

impl Removal<'_, '_> {
    /// Empties and removes the directory `name`, open as `dir`.
    fn directory(
        &mut self,
        parent: BorrowedFd<'_>,
        name: &[u8],
        dir: &OwnedFd,
        path: &mut Vec<u8>,
        levels: usize,
    ) -> Result<(), ErrorBody> {
        for round in 1.. {
            self.content(dir, path, levels)?;
            match unlinkat(parent, name, UnlinkatFlags::RemoveDir) {
                Ok(()) | Err(Errno::ENOENT) => break,
                Err(Errno::ENOTEMPTY | Errno::EEXIST) if round < MAX_REMOVE_ROUNDS => {}
                Err(errno) => return Err(from_errno(&below(self.asked, path, b""), errno)),
            }
        }
        Ok(())
    }

    /// Removes the content of a directory, batch by batch, until it is empty: on some filesystems, removing entries while
    /// reading skips names.
    fn content(&mut self, dir: &OwnedFd, path: &mut Vec<u8>, levels: usize) -> Result<(), ErrorBody> {
        loop {
            let names = batch(dir).at(&below(self.asked, path, b""))?;
            if names.is_empty() {
                return Ok(());
            }
            for name in names {
                self.reply.report_progress().at(self.asked)?;
                let shown = below(self.asked, path, &name);
                match fstatat(dir, name.as_slice(), AtFlags::AT_SYMLINK_NOFOLLOW) {
                    Err(Errno::ENOENT) => {}
                    Err(errno) => return Err(from_errno(&shown, errno)),
                    Ok(stat) if !is_directory(&stat) => {
                        match unlinkat(dir, name.as_slice(), UnlinkatFlags::NoRemoveDir) {
                            Ok(()) | Err(Errno::ENOENT) => {}
                            Err(errno) => return Err(from_errno(&shown, errno)),
                        }
                    }
                    Ok(_) if levels >= MAX_LEVELS => {
                        renameat(dir, name.as_slice(), self.top, temporary::name().as_slice()).at(&shown)?;
                    }
                    Ok(_) => {
                        let child = open_directory(dir.as_fd(), &name).at(&shown)?;
                        let parent_length = path.len();
                        push(path, &name);
                        self.directory(dir.as_fd(), &name, &child, path, levels + 1)?;
                        path.truncate(parent_length);
                    }
                }
            }
        }
    }
}

fn batch(dir: &OwnedFd) -> Result<Vec<Vec<u8>>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::from_fd(open_directory(dir.as_fd(), b".")?)?.iter() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(name.to_vec());
        }
        if names.len() == REMOVE_BATCH {
            break;
        }
    }
    Ok(names)
}
