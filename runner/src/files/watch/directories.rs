//! The watched directories and the kernel's watches on them: adds them, finds new ones, and gives up those that have left.
//!
//! The kernel watches single directories. One that appears is watched first and read afterwards, so that nothing falls between the two.
//! Events are older than what the file system shows, so a directory is always looked up, and attached where it was found: when all events
//! have been read, every directory is where it really is. No link is followed, and each watch is added through a held descriptor.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::dir::{Dir, Type};
use nix::errno::Errno;
use nix::fcntl::AtFlags;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, InotifyEvent, WatchDescriptor};
use nix::sys::stat::{fstat, fstatat};
use nix::unistd::fchdir;
use shared_protocol::runner::{MAX_PATH_BYTES, WatchEnd};
use shared_protocol::{ErrorBody, ErrorCode};

use super::places::{Before, Places};
use super::teller::Teller;
use super::{Asked, Depth};
use crate::files::error::{At, from_errno, shown};
use crate::files::inode::{is_directory, open_directory, same_file};
use crate::files::resolve::{FinalLink, MissingDirs, Resolved, Roots, resolve};
use crate::files::temporary;

/// The most directories of one watch. Each costs about a kilobyte of the kernel's memory.
pub const MAX_DIRECTORIES: usize = 16_384;

/// Whether what is found in directories is told as created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    Told,
    Known,
}

pub struct Directories {
    inotify: Inotify,
    /// The watched directory. Paths are opened from here.
    root: OwnedFd,
    places: Places<WatchDescriptor>,
    /// The watch on the directory above, and the name of the root in it. A directory that a program holds open does not tell by itself
    /// that it was deleted.
    above: Option<(WatchDescriptor, Vec<u8>)>,
    depth: Depth,
    /// Whether a directory could not be watched.
    pub truncated: bool,
}

impl Directories {
    /// Watches a directory and, if that was asked for, everything below it.
    pub fn watch(roots: &Roots, asked: &Asked<'_>, teller: &mut Teller<'_, '_>) -> Result<Self, ErrorBody> {
        let resolved = resolve(roots, asked.path, FinalLink::Follow, MissingDirs::Fail)?;
        let Some(inode) = &resolved.inode else { return Err(from_errno(asked.path, Errno::ENOENT)) };
        let root = inode.open_directory(asked.path)?;
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)
            .map_err(|errno| no_watch(asked.path, errno, "fs.inotify.max_user_instances"))?;
        let above = watch_above(&inotify, &resolved);
        let watch = add(&inotify, root.as_fd(), of_directory() | of_root())
            .map_err(|errno| no_watch(asked.path, errno, "fs.inotify.max_user_watches"))?;
        let mut directories =
            Self { inotify, root, places: Places::new(watch), above, depth: asked.depth, truncated: false };
        directories.explore(Vec::new(), Found::Known, teller)?;
        Ok(directories)
    }

    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }

    /// The events that wait. Empty if none does.
    pub fn events(&self) -> nix::Result<Vec<InotifyEvent>> {
        match self.inotify.read_events() {
            Err(Errno::EAGAIN) => Ok(Vec::new()),
            other => other,
        }
    }

    pub fn is_root(&self, watch: WatchDescriptor) -> bool {
        watch == self.places.root()
    }

    /// Whether an event is about the root's own name.
    pub fn is_about_root(&self, event: &InotifyEvent) -> bool {
        let name = event.name.as_ref().map(|name| std::os::unix::ffi::OsStrExt::as_bytes(name.as_os_str()));
        self.above.as_ref().is_some_and(|(watch, root)| *watch == event.wd && name == Some(root))
    }

    /// What has become of the root: `None` if its path still leads to it.
    pub fn end_of_root(&self, roots: &Roots, asked: &Asked<'_>) -> Option<WatchEnd> {
        let own = fstat(&self.root).ok()?;
        let found = resolve(roots, asked.path, FinalLink::Follow, MissingDirs::Fail).ok().and_then(|found| found.inode);
        match found {
            Some(inode) if same_file(&inode.stat, &own) => None,
            _ if own.st_nlink == 0 => Some(WatchEnd::Deleted),
            _ => Some(WatchEnd::Moved),
        }
    }

    pub fn path(&self, watch: WatchDescriptor) -> Option<Vec<u8>> {
        self.places.path(watch)
    }

    /// Takes note of a directory that has left its place. Returns its watch.
    pub fn left(&mut self, parent: WatchDescriptor, name: &[u8]) -> Option<WatchDescriptor> {
        let watch = self.places.child(parent, name)?;
        self.places.detach(watch);
        Some(watch)
    }

    /// Takes note of a directory that has appeared, and tells what is in it. `moved` is its watch if it came from another place of the
    /// tree, with what is in it.
    pub fn appeared(
        &mut self,
        parent: WatchDescriptor,
        name: &[u8],
        moved: Option<WatchDescriptor>,
        teller: &mut Teller<'_, '_>,
    ) -> Result<(), ErrorBody> {
        if self.depth == Depth::Directory {
            return Ok(());
        }
        if let Some(moved) = moved {
            // It may have moved on already. Then the next events are about it here.
            self.places.attach(moved, parent, name);
        }
        let Some(path) = self.places.path(parent).map(|parent| join(&parent, name)) else { return Ok(()) };
        let Ok(dir) = self.open(&path) else { return Ok(()) };
        match self.enter(dir.as_fd(), parent, name, &path, teller)? {
            Some((watch, Before::Unknown | Before::Detached)) if moved != Some(watch) => {
                drop(dir);
                self.explore(path, Found::Told, teller)
            }
            _ => Ok(()),
        }
    }

    /// Forgets a watch that the kernel has removed.
    pub fn forget(&mut self, watch: WatchDescriptor) {
        self.places.forget(watch);
    }

    /// Gives up what has left the tree. Call it when all events have been read, so that nothing is on its way to another place.
    pub fn settle(&mut self) {
        for watch in self.places.take_detached() {
            // The kernel removes the watch of a deleted directory itself.
            let _ = self.inotify.rm_watch(watch);
        }
    }

    /// Reads a watched directory, watches those in it, and goes on there.
    fn explore(&mut self, start: Vec<u8>, found: Found, teller: &mut Teller<'_, '_>) -> Result<(), ErrorBody> {
        if self.depth == Depth::Directory {
            return Ok(());
        }
        // Each of these is watched, so there are at most `MAX_DIRECTORIES`.
        let mut ahead = vec![start];
        while let Some(here) = ahead.pop() {
            teller.progress()?;
            // A directory that has left meanwhile is the matter of the event that says so.
            let (Some(parent), Ok(dir)) = (self.places.at(&here), self.open(&here)) else { continue };
            let Ok(mut names) = open_directory(dir.as_fd(), b".").and_then(Dir::from_fd) else { continue };
            for entry in names.iter() {
                let entry = match entry {
                    Ok(entry) => entry,
                    Err(errno) => {
                        self.truncated |= errno != Errno::ENOENT;
                        break;
                    }
                };
                let name = entry.file_name().to_bytes();
                if name == b"." || name == b".." || temporary::is_name(name) {
                    continue;
                }
                let is_dir = match entry.file_type() {
                    Some(kind) => kind == Type::Directory,
                    None => fstatat(&dir, name, AtFlags::AT_SYMLINK_NOFOLLOW).is_ok_and(|stat| is_directory(&stat)),
                };
                let path = join(&here, name);
                if found == Found::Told {
                    teller.created(&path, is_dir)?;
                }
                if !is_dir {
                    continue;
                }
                match open_directory(dir.as_fd(), name) {
                    Ok(child) => {
                        let entered = self.enter(child.as_fd(), parent, name, &path, teller)?;
                        // A directory that is mounted below itself has another place already.
                        if entered.is_some_and(|(watch, _)| self.places.at(&path) == Some(watch)) {
                            ahead.push(path);
                        }
                    }
                    Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => {}
                    Err(_) => self.truncated = true,
                }
            }
        }
        Ok(())
    }

    /// Watches a directory. Returns `None` if that is not possible for this one.
    fn enter(
        &mut self,
        dir: BorrowedFd<'_>,
        parent: WatchDescriptor,
        name: &[u8],
        path: &[u8],
        teller: &Teller<'_, '_>,
    ) -> Result<Option<(WatchDescriptor, Before)>, ErrorBody> {
        let full = teller.full_path(path);
        if full.len() > MAX_PATH_BYTES {
            self.truncated = true;
            return Ok(None);
        }
        let added = add(&self.inotify, dir, of_directory());
        fchdir(&self.root).at(&full)?;
        match added {
            Ok(watch) => {
                let before = self.places.attach(watch, parent, name);
                if self.places.len() > MAX_DIRECTORIES {
                    let message = format!("more than {MAX_DIRECTORIES} directories; watch a part of them");
                    return Err(ErrorBody::new(ErrorCode::LimitReached, message));
                }
                Ok(Some((watch, before)))
            }
            Err(errno @ (Errno::ENOSPC | Errno::ENOMEM)) => Err(no_watch(&full, errno, "fs.inotify.max_user_watches")),
            Err(Errno::ENOENT) => Ok(None),
            Err(_) => {
                self.truncated = true;
                Ok(None)
            }
        }
    }

    /// Opens a directory below the root, name by name.
    fn open(&self, path: &[u8]) -> nix::Result<OwnedFd> {
        let mut dir = open_directory(self.root.as_fd(), b".")?;
        for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
            dir = open_directory(dir.as_fd(), name)?;
        }
        Ok(dir)
    }
}

/// The events of every watched directory.
fn of_directory() -> AddWatchFlags {
    AddWatchFlags::IN_CREATE
        | AddWatchFlags::IN_MODIFY
        | AddWatchFlags::IN_CLOSE_WRITE
        | AddWatchFlags::IN_DELETE
        | AddWatchFlags::IN_MOVED_FROM
        | AddWatchFlags::IN_MOVED_TO
}

/// The events that only the root has: elsewhere, the directory above tells them.
fn of_root() -> AddWatchFlags {
    AddWatchFlags::IN_DELETE_SELF | AddWatchFlags::IN_MOVE_SELF
}

/// Adds a watch on an open directory. This process works in no directory of its own, so it can go there: a path would be looked up again.
fn add(inotify: &Inotify, dir: BorrowedFd<'_>, events: AddWatchFlags) -> nix::Result<WatchDescriptor> {
    // What a program still writes to a deleted file has no path, and a directory that is watched already keeps its events.
    let options = AddWatchFlags::from_bits_retain(libc::IN_EXCL_UNLINK | libc::IN_MASK_ADD) | AddWatchFlags::IN_ONLYDIR;
    fchdir(dir)?;
    inotify.add_watch(".", events | options)
}

/// Watches the directory above the root, if the sandbox user may read it. Otherwise the root's end is noticed later.
fn watch_above(inotify: &Inotify, resolved: &Resolved) -> Option<(WatchDescriptor, Vec<u8>)> {
    let name = resolved.name.clone()?;
    let events = AddWatchFlags::IN_DELETE | AddWatchFlags::IN_MOVED_FROM;
    Some((add(inotify, resolved.parent(), events).ok()?, name))
}

fn no_watch(path: &[u8], errno: Errno, setting: &str) -> ErrorBody {
    match errno {
        Errno::EMFILE | Errno::ENOSPC => {
            let path = shown(path);
            let message = format!("{path}: the host allows no more watches; its setting {setting} is too small");
            ErrorBody::new(ErrorCode::LimitReached, message)
        }
        other => from_errno(path, other),
    }
}

fn join(parent: &[u8], name: &[u8]) -> Vec<u8> {
    if parent.is_empty() { name.to_vec() } else { [parent, b"/", name].concat() }
}
