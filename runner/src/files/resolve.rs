//! Resolves a path to a file, in steps that a hostile process cannot redirect.
//!
//! Each step opens one name, without following a link, below a directory that is held open. This code reads and resolves
//! symbolic links itself. So even if something is renamed or replaced meanwhile, each step finds something that was below
//! the root at that moment: `..` goes back to a held directory, not to its current parent; an absolute link starts again at
//! the root; and the links of `/proc` are plain text. These are the rules of `openat2(RESOLVE_IN_ROOT |
//! RESOLVE_NO_MAGICLINKS)`, done by hand, because not every kernel has that call.
//!
//! Relative paths that leave the workspace by their own `..` are refused. Links may leave the workspace, but not the root.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat, readlinkat};
use nix::sys::stat::{FileStat, Mode, fstat, mkdirat};
use shared_protocol::ErrorBody;
use shared_protocol::runner::check_path;

use super::error::{At, from_errno, invalid, shown};
use super::inode::{Inode, is_directory, is_symlink, same_file};

/// The most directories that one walk holds open.
const MAX_DEPTH: usize = 512;
/// The most links on one path, as in the kernel.
const MAX_LINKS: usize = 40;
/// The mode of missing directories that are created on the way.
const MADE_MODE: u32 = 0o755;

/// The directories where paths start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Roots {
    /// The directory that is `/` for every path.
    pub root: PathBuf,
    /// The directory where relative paths start: a path below `root`, as a client would write it.
    pub workspace: PathBuf,
}

impl Roots {
    /// Makes the roots. The workspace is configured as commands see it; if the root is not `/`, only the part below the root
    /// counts.
    pub fn new(root: &Path, workspace: &Path) -> Self {
        let below = workspace.strip_prefix(root).unwrap_or(workspace);
        Self { root: root.to_owned(), workspace: Path::new("/").join(below) }
    }
}

/// What to do with a symbolic link at the end of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinalLink {
    Follow,
    Keep,
}

/// What to do with missing directories on the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MissingDirs {
    Fail,
    Create,
}

/// A resolved path.
pub struct Resolved {
    /// The directories from the root to the one that holds the name.
    dirs: Vec<OwnedFd>,
    /// The last name. `None` if the path ends in a directory without naming it: `/`, `.`, `..`.
    pub name: Option<Vec<u8>>,
    /// The inode with that name. `None` if the name is free.
    pub inode: Option<Inode>,
    /// Whether the path ended in a slash.
    pub only_directory: bool,
}

impl Resolved {
    pub fn parent(&self) -> BorrowedFd<'_> {
        // This is never empty: the root comes first and is never removed.
        self.dirs[self.dirs.len() - 1].as_fd()
    }

    /// The last name, for creating, moving or removing it.
    pub fn name(&self, path: &[u8]) -> Result<&[u8], ErrorBody> {
        self.name.as_deref().ok_or_else(|| {
            invalid(format!(
                "{}: a path that ends in `/`, `.` or `..` alone cannot be changed; give a name",
                shown(path)
            ))
        })
    }

    pub fn inode(self, path: &[u8]) -> Result<Inode, ErrorBody> {
        self.inode.ok_or_else(|| from_errno(path, Errno::ENOENT))
    }

    /// Whether this is `other`, or one of the directories that lead to it.
    pub fn leads_to(&self, other: &Self) -> Result<bool, Errno> {
        let Some(inode) = &self.inode else { return Ok(false) };
        if other.inode.as_ref().is_some_and(|o| same_file(&o.stat, &inode.stat)) {
            return Ok(true);
        }
        for dir in &other.dirs {
            if same_file(&fstat(dir)?, &inode.stat) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Resolves `path`.
pub fn resolve(roots: &Roots, path: &[u8], last: FinalLink, missing: MissingDirs) -> Result<Resolved, ErrorBody> {
    let path_from_root = from_root(roots, path)?;
    let root = open(&roots.root, dir_flags(), Mode::empty()).at(roots.root.as_os_str().as_bytes())?;
    walk(root, &path_from_root, last, missing).at(path)
}

/// Resolves the workspace itself, with all the directories that lead to it.
pub fn workspace(roots: &Roots) -> Result<Resolved, ErrorBody> {
    resolve(roots, roots.workspace.as_os_str().as_bytes(), FinalLink::Follow, MissingDirs::Fail)
}

/// The path from the root. Refuses invalid paths without touching a file.
fn from_root(roots: &Roots, path: &[u8]) -> Result<Vec<u8>, ErrorBody> {
    check_path(path)?;
    if path.first() == Some(&b'/') {
        return Ok(path.to_owned());
    }
    Ok([roots.workspace.as_os_str().as_bytes(), b"/", path].concat())
}

pub fn dir_flags() -> OFlag {
    OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC
}

/// The names of a path in order, and whether it must end in a directory.
fn parts(path: &[u8]) -> (impl DoubleEndedIterator<Item = Vec<u8>>, bool) {
    let only_directory = path.ends_with(b"/") || path.ends_with(b"/.") || path == b".";
    let names = path.split(|b| *b == b'/').filter(|part| !part.is_empty() && *part != b".").map(<[u8]>::to_vec);
    (names, only_directory)
}

fn walk(root: OwnedFd, path: &[u8], last: FinalLink, missing: MissingDirs) -> Result<Resolved, Errno> {
    let mut dirs = vec![root];
    let (names, mut only_directory) = parts(path);
    let mut ahead: VecDeque<Vec<u8>> = names.collect();
    let mut links = 0;
    while let Some(name) = ahead.pop_front() {
        if name == b".." {
            if dirs.len() > 1 {
                dirs.pop();
            }
            continue;
        }
        let here = dirs[dirs.len() - 1].as_fd();
        let is_last = ahead.is_empty();
        let fd = match open_name(here, &name) {
            Err(Errno::ENOENT) if is_last => {
                return Ok(Resolved { dirs, name: Some(name), inode: None, only_directory });
            }
            Err(Errno::ENOENT) if missing == MissingDirs::Create => make(here, &name)?,
            other => other?,
        };
        let stat = fstat(&fd)?;
        if is_symlink(&stat) && !(is_last && last == FinalLink::Keep) {
            links += 1;
            if links > MAX_LINKS {
                return Err(Errno::ELOOP);
            }
            let text = readlinkat(&fd, "")?.into_vec();
            if text.first() == Some(&b'/') {
                dirs.truncate(1);
            }
            let (names, ends_in_directory) = parts(&text);
            only_directory |= is_last && ends_in_directory;
            names.rev().for_each(|name| ahead.push_front(name));
        } else if is_last {
            if only_directory && !is_directory(&stat) {
                return Err(Errno::ENOTDIR);
            }
            return Ok(Resolved { dirs, name: Some(name), inode: Some(Inode { fd, stat }), only_directory });
        } else if !is_directory(&stat) {
            return Err(Errno::ENOTDIR);
        } else if dirs.len() >= MAX_DEPTH {
            return Err(Errno::ENAMETOOLONG);
        } else {
            dirs.push(fd);
        }
    }
    let fd = openat(&dirs[dirs.len() - 1], ".", dir_flags(), Mode::empty())?;
    let stat: FileStat = fstat(&fd)?;
    Ok(Resolved { dirs, name: None, inode: Some(Inode { fd, stat }), only_directory: true })
}

fn open_name(dir: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, Errno> {
    openat(dir, name, OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC, Mode::empty())
}

/// Makes a directory and opens whatever has its name afterwards, because another process may have been faster.
fn make(dir: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, Errno> {
    match mkdirat(dir, name, Mode::from_bits_truncate(MADE_MODE)) {
        Ok(()) | Err(Errno::EEXIST) => open_name(dir, name),
        Err(errno) => Err(errno),
    }
}

#[cfg(test)]
#[path = "resolve_test.rs"]
mod tests;
