//! A tar stream into a directory.
//!
//! Every entry's path is walked from the destination name by name, following nothing: a link that an earlier entry made, or
//! that was there before, ends the walk. So nothing is made outside the destination, whatever the stream says and whatever
//! happens meanwhile. Files are replaced, never written into; directories are kept and added to.
//!
//! It refuses absolute paths, `..`, devices and FIFOs, naming the entry, and drops setuid, setgid and sticky. Entries before
//! the one at fault stay: a stream cannot be looked at twice.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat};
use nix::sys::stat::{Mode, UtimensatFlags, fchmod, futimens, mkdirat, utimensat};
use nix::sys::time::TimeSpec;
use nix::unistd::{UnlinkatFlags, linkat, symlinkat, unlinkat};
use shared_protocol::ErrorBody;
use shared_protocol::runner::WroteView;

use super::channel::{Answer, Intake, MAX_FRAME};
use super::error::{At, from_errno, invalid, shown};
use super::node::{PERMISSION_BITS, open_directory};
use super::ops::{self, DIRECTORY_MODE};
use super::resolve::{Last, Missing, Places, dir_flags, resolve};
use super::tar_stream::{Item, ItemKind, TarError, TarReader, broken};

/// As for the paths of requests.
const MAX_ENTRY_PATH: usize = 4096;
/// What a directory needs while it is being filled; its own mode it gets at the end.
const FILLABLE: u32 = 0o700;
/// Bytes of paths of directories whose mode and time wait for the end. Those beyond get them at once: then their time is
/// that of the last file in them, and files in those that may not be written to fail.
const MAX_POSTPONED: usize = 8 << 20;

pub fn unpack(places: &Places, path: &[u8], intake: &mut Intake<'_>, answer: &mut Answer<'_>) -> Result<(), ErrorBody> {
    ops::mkdir(places, path, true, None)?;
    let top = resolve(places, path, Last::Follow, Missing::Fail)?.node(path)?.open_directory(path)?;
    answer.ready().at(path)?;
    let mut unpacking = Unpacking { top, entries: 0, bytes: 0, postponed: Vec::new(), postponed_bytes: 0 };
    match unpacking.all(intake, answer) {
        Ok(()) => answer.json(201, &WroteView { bytes: unpacking.bytes }).at(path),
        Err(mut error) => {
            if unpacking.entries > 0 {
                error.message =
                    format!("{}; entries unpacked before it, which stay: {}", error.message, unpacking.entries);
            }
            Err(error)
        }
    }
}

struct Unpacking {
    top: OwnedFd,
    entries: u64,
    bytes: u64,
    postponed: Vec<Postponed>,
    postponed_bytes: usize,
}

struct Postponed {
    path: Vec<u8>,
    mode: u32,
    mtime: TimeSpec,
}

fn unreadable(error: &TarError) -> ErrorBody {
    invalid(error.to_string())
}

impl Unpacking {
    fn all(&mut self, intake: &mut Intake<'_>, answer: &mut Answer<'_>) -> Result<(), ErrorBody> {
        let mut reader = TarReader::new(intake);
        while let Some(item) = reader.next_item().map_err(|error| unreadable(&error))? {
            self.one(&item, &mut reader)?;
            self.entries += 1;
        }
        // What follows the end marker is the filling up of a tape's record; it still has to arrive.
        io::copy(intake, &mut io::sink()).map_err(|error| unreadable(&broken(error)))?;
        while let Some(directory) = self.postponed.pop() {
            answer.tick().at(&directory.path)?;
            self.finish_directory(&directory)?;
        }
        Ok(())
    }

    fn one(&mut self, item: &Item, data: &mut TarReader<'_>) -> Result<(), ErrorBody> {
        let names = names(&item.path).map_err(|why| entry_error(&item.path, &format!("it has {why}")))?;
        let Some((name, dirs)) = names.split_last() else {
            // `./`, the destination itself: it is there, and its mode is not the archive's to set.
            return match item.kind {
                ItemKind::Directory => Ok(()),
                _ => Err(entry_error(&item.path, "it has no name")),
            };
        };
        let dir = self.descend(dirs, Missing::Make).map_err(|errno| way_error(&item.path, errno))?;
        let mtime = TimeSpec::new(item.seconds, item.nanoseconds);
        match item.kind {
            ItemKind::File => self.file(dir.as_fd(), name, item, mtime, data),
            ItemKind::Directory => self.make_directory(dir.as_fd(), name, item, mtime),
            ItemKind::Symlink => {
                if item.link.is_empty() || item.link.contains(&0) {
                    return Err(entry_error(&item.path, "it is a link to nothing"));
                }
                replacing(dir.as_fd(), name, || symlinkat(item.link.as_slice(), dir.as_fd(), *name)).at(&item.path)?;
                let flag = UtimensatFlags::NoFollowSymlink;
                // Not every filesystem keeps a link's own time.
                let _ = utimensat(dir.as_fd(), *name, &mtime, &mtime, flag);
                Ok(())
            }
            ItemKind::HardLink => self.hard_link(dir.as_fd(), &names, item),
            ItemKind::Other(what) => Err(entry_error(&item.path, &format!("it is {what}, which is not unpacked"))),
        }
    }

    /// Walks down from the destination. A link or a file on the way is ENOTDIR.
    fn descend(&self, names: &[&[u8]], missing: Missing) -> Result<OwnedFd, Errno> {
        let mut dir = openat(&self.top, ".", dir_flags(), Mode::empty())?;
        for name in names {
            let mut next = openat(&dir, *name, dir_flags(), Mode::empty());
            if matches!(next, Err(Errno::ENOENT)) && missing == Missing::Make {
                match mkdirat(&dir, *name, Mode::from_bits_truncate(DIRECTORY_MODE)) {
                    Ok(()) | Err(Errno::EEXIST) => next = openat(&dir, *name, dir_flags(), Mode::empty()),
                    Err(errno) => return Err(errno),
                }
            }
            dir = next.map_err(|errno| if errno == Errno::ELOOP { Errno::ENOTDIR } else { errno })?;
        }
        Ok(dir)
    }

    fn file(
        &mut self,
        dir: BorrowedFd<'_>,
        name: &[u8],
        item: &Item,
        mtime: TimeSpec,
        data: &mut TarReader<'_>,
    ) -> Result<(), ErrorBody> {
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let fd = replacing(dir, name, || openat(dir, name, flags, Mode::S_IRUSR | Mode::S_IWUSR)).at(&item.path)?;
        let filled = self.fill(File::from(fd), item, mtime, data);
        if filled.is_err() {
            // Half a file is not an entry that stays.
            let _ = unlinkat(dir, name, UnlinkatFlags::NoRemoveDir);
        }
        filled
    }

    fn fill(
        &mut self,
        mut file: File,
        item: &Item,
        mtime: TimeSpec,
        data: &mut TarReader<'_>,
    ) -> Result<(), ErrorBody> {
        let mut buffer = vec![0; MAX_FRAME];
        loop {
            let read = data.read(&mut buffer).map_err(|error| unreadable(&broken(error)))?;
            if read == 0 {
                break;
            }
            file.write_all(&buffer[..read]).at(&item.path)?;
            self.bytes += read as u64;
        }
        fchmod(&file, Mode::from_bits_truncate(item.mode & PERMISSION_BITS)).at(&item.path)?;
        futimens(&file, &mtime, &mtime).at(&item.path)
    }

    fn make_directory(
        &mut self,
        dir: BorrowedFd<'_>,
        name: &[u8],
        item: &Item,
        mtime: TimeSpec,
    ) -> Result<(), ErrorBody> {
        let mode = item.mode & PERMISSION_BITS;
        let make = || mkdirat(dir, name, Mode::from_bits_truncate(mode | FILLABLE));
        match make() {
            Err(Errno::EEXIST) => match openat(dir, name, dir_flags(), Mode::empty()) {
                Ok(_) => {}
                // A file, or a link to wherever.
                Err(Errno::ENOTDIR | Errno::ELOOP) => replacing(dir, name, make).at(&item.path)?,
                Err(errno) => return Err(from_errno(&item.path, errno)),
            },
            other => other.at(&item.path)?,
        }
        let directory = Postponed { path: item.path.clone(), mode, mtime };
        if self.postponed_bytes + directory.path.len() > MAX_POSTPONED {
            return self.finish_directory(&directory);
        }
        self.postponed_bytes += directory.path.len();
        self.postponed.push(directory);
        Ok(())
    }

    fn finish_directory(&self, directory: &Postponed) -> Result<(), ErrorBody> {
        let names = names(&directory.path).unwrap_or_default();
        let Some((name, dirs)) = names.split_last() else { return Ok(()) };
        let finish = || {
            let parent = self.descend(dirs, Missing::Fail)?;
            let fd = open_directory(parent.as_fd(), name)?;
            fchmod(&fd, Mode::from_bits_truncate(directory.mode))?;
            futimens(&fd, &directory.mtime, &directory.mtime)
        };
        match finish() {
            // It was there before and is another user's, or a later entry took its place.
            Ok(()) | Err(Errno::EPERM | Errno::EACCES | Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => Ok(()),
            Err(errno) => Err(from_errno(&directory.path, errno)),
        }
    }

    fn hard_link(&self, dir: BorrowedFd<'_>, entry_names: &[&[u8]], item: &Item) -> Result<(), ErrorBody> {
        let target_names = names(&item.link).map_err(|why| entry_error(&item.path, &format!("it links to {why}")))?;
        if target_names == entry_names {
            return Ok(());
        }
        let (Some((name, _)), Some((target, target_dirs))) = (entry_names.split_last(), target_names.split_last())
        else {
            return Err(entry_error(&item.path, "it is a link to nothing"));
        };
        let link = |target_dir: OwnedFd| {
            // Without AT_SYMLINK_FOLLOW: a link to a link is that link once more, not what it leads to.
            replacing(dir, name, || linkat(&target_dir, *target, dir, *name, AtFlags::empty()))
        };
        self.descend(target_dirs, Missing::Fail).and_then(link).map_err(|errno| match errno {
            Errno::ENOENT => {
                entry_error(&item.path, &format!("it links to {:?}, which is not there", shown(&item.link)))
            }
            other => way_error(&item.path, other),
        })
    }
}

/// Makes something that fails where its name is taken, after removing what has the name. A directory is not removed: EISDIR.
fn replacing<T>(dir: BorrowedFd<'_>, name: &[u8], make: impl Fn() -> Result<T, Errno>) -> Result<T, Errno> {
    match make() {
        Err(Errno::EEXIST) => {
            match unlinkat(dir, name, UnlinkatFlags::NoRemoveDir) {
                Ok(()) | Err(Errno::ENOENT) => {}
                Err(errno) => return Err(errno),
            }
            make()
        }
        other => other,
    }
}

/// The names of an entry's path, or why it may not be unpacked.
fn names(path: &[u8]) -> Result<Vec<&[u8]>, &'static str> {
    if path.first() == Some(&b'/') {
        return Err("an absolute path");
    }
    if path.len() > MAX_ENTRY_PATH || path.contains(&0) {
        return Err("a path that is too long or holds a NUL byte");
    }
    let names: Vec<&[u8]> = path.split(|b| *b == b'/').filter(|n| !n.is_empty() && *n != b".").collect();
    if names.contains(&&b".."[..]) {
        return Err("a path with `..` in it");
    }
    Ok(names)
}

fn way_error(path: &[u8], errno: Errno) -> ErrorBody {
    match errno {
        Errno::ENOTDIR => entry_error(path, "a name on its way is a link or a file, and links are not followed"),
        other => from_errno(path, other),
    }
}

fn entry_error(path: &[u8], what: &str) -> ErrorBody {
    invalid(format!("the entry {:?} is refused: {what}", shown(path)))
}

#[cfg(test)]
#[path = "unpack_test.rs"]
mod tests;
