//! From a path to what it names, by steps that a hostile process beside us cannot bend.
//!
//! Every step opens one name, without following it, below a directory that is held open; symbolic links are read and taken
//! apart here. So whatever is renamed or replaced meanwhile, each step lands on something that was below the root at that
//! moment: `..` goes back to a directory held, never to where the kernel thinks its parent is now; an absolute link begins
//! again at the root; and the links of `/proc` are words like any other and never jumped through. These are the rules of
//! `openat2(RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS)`, by hand, since not every kernel has that call.
//!
//! It refuses relative paths that leave the workspace by their own `..`; links may leave it, but not the root.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat, readlinkat};
use nix::sys::stat::{FileStat, Mode, fstat, mkdirat};
use shared_protocol::ErrorBody;

use super::error::{At, from_errno, invalid, shown};
use super::node::{Node, is_directory, is_symlink, same_file};

/// As the kernel has it.
const MAX_PATH: usize = 4096;
/// Directories held open at once by one walk. A path that goes deeper can be taken in two steps by no other means either.
const MAX_DEPTH: usize = 512;
/// As the kernel has it.
const MAX_LINKS: usize = 40;
/// What directories that are made on the way get.
const MADE_MODE: u32 = 0o755;

/// Where paths begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places {
    /// The directory that is `/` for every path.
    pub root: PathBuf,
    /// Where relative paths begin: a path below `root`, as a client would give it.
    pub workspace: PathBuf,
}

impl Places {
    /// The workspace is configured as commands see it; where the root is not `/`, its part below the root is meant.
    pub fn new(root: &Path, workspace: &Path) -> Self {
        let below = workspace.strip_prefix(root).unwrap_or(workspace);
        Self { root: root.to_owned(), workspace: Path::new("/").join(below) }
    }
}

/// What becomes of a symbolic link that is the last part of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Last {
    Follow,
    Keep,
}

/// What becomes of directories on the way that are not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    Fail,
    Make,
}

/// What a path led to.
pub struct Place {
    /// From the root to the directory that holds the name.
    dirs: Vec<OwnedFd>,
    /// `None` where the path ends in a directory without naming it: `/`, `.`, `..`.
    pub name: Option<Vec<u8>>,
    /// `None` where nothing has that name yet.
    pub node: Option<Node>,
    /// The path ended in a slash.
    pub only_directory: bool,
}

impl Place {
    pub fn parent(&self) -> BorrowedFd<'_> {
        // Never empty: the root is put there first and never taken away.
        self.dirs[self.dirs.len() - 1].as_fd()
    }

    /// The name to make, move or remove.
    pub fn name(&self, path: &[u8]) -> Result<&[u8], ErrorBody> {
        self.name.as_deref().ok_or_else(|| {
            invalid(format!(
                "{}: a path that ends in `/`, `.` or `..` alone cannot be changed; give a name",
                shown(path)
            ))
        })
    }

    pub fn node(self, path: &[u8]) -> Result<Node, ErrorBody> {
        self.node.ok_or_else(|| from_errno(path, Errno::ENOENT))
    }

    /// Whether this is one of the directories that lead to `other`, or `other` itself.
    pub fn leads_to(&self, other: &Self) -> Result<bool, Errno> {
        let Some(node) = &self.node else { return Ok(false) };
        if other.node.as_ref().is_some_and(|o| same_file(&o.stat, &node.stat)) {
            return Ok(true);
        }
        for dir in &other.dirs {
            if same_file(&fstat(dir)?, &node.stat) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Follows `path` to what it names.
pub fn resolve(places: &Places, path: &[u8], last: Last, missing: Missing) -> Result<Place, ErrorBody> {
    let path_from_root = from_root(places, path)?;
    let root = open(&places.root, dir_flags(), Mode::empty()).at(places.root.as_os_str().as_bytes())?;
    walk(root, &path_from_root, last, missing).at(path)
}

/// The workspace itself, with all the directories that lead to it.
pub fn workspace(places: &Places) -> Result<Place, ErrorBody> {
    resolve(places, places.workspace.as_os_str().as_bytes(), Last::Follow, Missing::Fail)
}

/// Decides where a path begins, and refuses what can be refused without looking.
fn from_root(places: &Places, path: &[u8]) -> Result<Vec<u8>, ErrorBody> {
    if path.is_empty() || path.contains(&0) {
        return Err(invalid("path must not be empty or hold a NUL byte"));
    }
    if path.len() > MAX_PATH {
        return Err(invalid(format!("path is longer than {MAX_PATH} bytes")));
    }
    if path.first() == Some(&b'/') {
        return Ok(path.to_owned());
    }
    let mut depth = 0usize;
    for part in path.split(|b| *b == b'/') {
        match part {
            b"" | b"." => {}
            b".." => {
                depth =
                    depth.checked_sub(1).ok_or_else(|| invalid("path leaves the workspace: use an absolute path"))?;
            }
            _ => depth += 1,
        }
    }
    Ok([places.workspace.as_os_str().as_bytes(), b"/", path].concat())
}

pub fn dir_flags() -> OFlag {
    OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC
}

/// The names of a path in order, and whether it insists on a directory at its end.
fn parts(path: &[u8]) -> (impl DoubleEndedIterator<Item = Vec<u8>>, bool) {
    let only_directory = path.ends_with(b"/") || path.ends_with(b"/.") || path == b".";
    let names = path.split(|b| *b == b'/').filter(|part| !part.is_empty() && *part != b".").map(<[u8]>::to_vec);
    (names, only_directory)
}

fn walk(root: OwnedFd, path: &[u8], last: Last, missing: Missing) -> Result<Place, Errno> {
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
            Err(Errno::ENOENT) if is_last => return Ok(Place { dirs, name: Some(name), node: None, only_directory }),
            Err(Errno::ENOENT) if missing == Missing::Make => make(here, &name)?,
            other => other?,
        };
        let stat = fstat(&fd)?;
        if is_symlink(&stat) && !(is_last && last == Last::Keep) {
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
            return Ok(Place { dirs, name: Some(name), node: Some(Node { fd, stat }), only_directory });
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
    Ok(Place { dirs, name: None, node: Some(Node { fd, stat }), only_directory: true })
}

fn open_name(dir: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, Errno> {
    openat(dir, name, OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC, Mode::empty())
}

/// Makes a directory and opens whatever has its name then: another process may have been faster.
fn make(dir: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, Errno> {
    match mkdirat(dir, name, Mode::from_bits_truncate(MADE_MODE)) {
        Ok(()) | Err(Errno::EEXIST) => open_name(dir, name),
        Err(errno) => Err(errno),
    }
}

#[cfg(test)]
#[path = "resolve_test.rs"]
mod tests;
