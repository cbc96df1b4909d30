//! The files: makes one entry at a time below the destination.
//!
//! Each entry's path is walked from the destination name by name, on held descriptors, and no link is followed: a link that an
//! earlier entry made, or that was there before, ends the walk. So nothing is made outside the destination, whatever the
//! stream says and whatever happens meanwhile. Files and links are replaced, never written into; directories are kept and
//! added to.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat};
use nix::sys::stat::{Mode, UtimensatFlags, fchmod, futimens, mkdirat, utimensat};
use nix::sys::time::TimeSpec;
use nix::unistd::{UnlinkatFlags, linkat, symlinkat, unlinkat};

use crate::error::{At, Failure, UnpackError, shown};
use crate::reader::{Entry, EntryKind, Reader, stream_error};

/// The longest path of an entry, as the kernel has it.
const MAX_PATH: usize = 4096;
/// The bits that are set of an entry's mode: no setuid, setgid and sticky.
const PERMISSION_BITS: u32 = 0o777;
/// What a directory needs while it is filled. It gets its own mode at the end.
const FILLABLE: u32 = 0o700;
/// Bytes of paths of directories whose mode and time wait for the end. Those beyond get them at once: then their time is that
/// of the last file in them, and a directory that may not be written to cannot be filled.
const MAX_POSTPONED_BYTES: usize = 8 << 20;
/// Bytes of a file that are copied at once.
const COPY_BYTES: usize = 64 << 10;

/// How to unpack.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// The mode of directories that lead to an entry and have no entry of their own. The process's umask applies.
    pub directory_mode: u32,
}

/// What was unpacked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    pub entries: u64,
    /// The bytes of all files.
    pub bytes: u64,
}

/// Unpacks a whole stream below `destination`, a directory that is open for reading. `on_step` is called now and then while
/// nothing is read from the stream; its error ends the work.
pub fn unpack(
    stream: &mut dyn Read,
    destination: OwnedFd,
    options: Options,
    on_step: &mut dyn FnMut() -> io::Result<()>,
) -> Result<Summary, Failure> {
    let mut unpacking = Unpacking::new(destination, options);
    let result = unpacking.all(stream, on_step);
    let Summary { entries, .. } = unpacking.summary;
    result.map(|()| unpacking.summary).map_err(|error| Failure { error, entries })
}

/// The work on one stream.
struct Unpacking {
    destination: OwnedFd,
    options: Options,
    summary: Summary,
    postponed: Vec<Postponed>,
    postponed_bytes: usize,
}

/// A directory whose mode and time are set when everything is in it.
struct Postponed {
    path: Vec<u8>,
    mode: u32,
    mtime: TimeSpec,
}

/// What to do with directories on the way that do not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MissingDirs {
    Fail,
    Create,
}

impl Unpacking {
    fn new(destination: OwnedFd, options: Options) -> Self {
        let summary = Summary { entries: 0, bytes: 0 };
        Self { destination, options, summary, postponed: Vec::new(), postponed_bytes: 0 }
    }

    fn all(&mut self, stream: &mut dyn Read, on_step: &mut dyn FnMut() -> io::Result<()>) -> Result<(), UnpackError> {
        let mut reader = Reader::new(stream);
        while let Some(entry) = reader.next_entry()? {
            self.one(&entry, &mut reader)?;
            self.summary.entries += 1;
        }
        // The end marker is followed by zeros that fill a tape's record. They still have to arrive.
        io::copy(stream, &mut io::sink()).map_err(stream_error)?;
        while let Some(directory) = self.postponed.pop() {
            on_step().at(&directory.path)?;
            self.finish_directory(&directory)?;
        }
        Ok(())
    }

    fn one(&mut self, entry: &Entry, data: &mut Reader<'_>) -> Result<(), UnpackError> {
        let names = names(&entry.path).map_err(|why| refused(&entry.path, &format!("it has {why}")))?;
        let Some((name, dirs)) = names.split_last() else {
            // `./` is the destination itself: it exists, and its mode is not the archive's to set.
            return match entry.kind {
                EntryKind::Directory => Ok(()),
                _ => Err(refused(&entry.path, "it has no name")),
            };
        };
        let dir = self.descend(dirs, MissingDirs::Create).map_err(|errno| walk_error(&entry.path, errno))?;
        match entry.kind {
            EntryKind::File => self.file(dir.as_fd(), name, entry, data),
            EntryKind::Directory => self.directory(dir.as_fd(), name, entry),
            EntryKind::Symlink => symlink(dir.as_fd(), name, entry),
            EntryKind::HardLink => self.hard_link(dir.as_fd(), &names, entry),
            EntryKind::Other(what) => Err(refused(&entry.path, &format!("it is {what}, which is not unpacked"))),
        }
    }

    /// Opens a directory below the destination. A link or a file on the way is ENOTDIR.
    fn descend(&self, names: &[&[u8]], missing: MissingDirs) -> Result<OwnedFd, Errno> {
        let open = |dir: &OwnedFd, name: &[u8]| openat(dir, name, walk_flags(), Mode::empty());
        let mut dir = open(&self.destination, b".")?;
        for name in names {
            let mut next = open(&dir, name);
            if matches!(next, Err(Errno::ENOENT)) && missing == MissingDirs::Create {
                match mkdirat(&dir, *name, Mode::from_bits_truncate(self.options.directory_mode)) {
                    Ok(()) | Err(Errno::EEXIST) => next = open(&dir, name),
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
        entry: &Entry,
        data: &mut Reader<'_>,
    ) -> Result<(), UnpackError> {
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let owner_only = Mode::S_IRUSR | Mode::S_IWUSR;
        let fd = replacing(dir, name, || openat(dir, name, flags, owner_only)).at(&entry.path)?;
        let filled = self.fill(File::from(fd), entry, data);
        if filled.is_err() {
            // A file that is not whole does not stay.
            let _ = unlinkat(dir, name, UnlinkatFlags::NoRemoveDir);
        }
        filled
    }

    fn fill(&mut self, mut file: File, entry: &Entry, data: &mut Reader<'_>) -> Result<(), UnpackError> {
        let mut buffer = vec![0; COPY_BYTES];
        loop {
            let read = data.read(&mut buffer).map_err(stream_error)?;
            if read == 0 {
                break;
            }
            file.write_all(&buffer[..read]).at(&entry.path)?;
            self.summary.bytes += read as u64;
        }
        fchmod(&file, Mode::from_bits_truncate(entry.mode & PERMISSION_BITS)).at(&entry.path)?;
        futimens(&file, &mtime(entry), &mtime(entry)).at(&entry.path)
    }

    fn directory(&mut self, dir: BorrowedFd<'_>, name: &[u8], entry: &Entry) -> Result<(), UnpackError> {
        let mode = entry.mode & PERMISSION_BITS;
        let make = || mkdirat(dir, name, Mode::from_bits_truncate(mode | FILLABLE));
        match make() {
            Err(Errno::EEXIST) => match openat(dir, name, walk_flags(), Mode::empty()) {
                Ok(_) => {}
                // It is a file, or a link to wherever.
                Err(Errno::ENOTDIR | Errno::ELOOP) => replacing(dir, name, make).at(&entry.path)?,
                Err(errno) => return Err(errno).at(&entry.path),
            },
            other => other.at(&entry.path)?,
        }
        let directory = Postponed { path: entry.path.clone(), mode, mtime: mtime(entry) };
        if self.postponed_bytes + directory.path.len() > MAX_POSTPONED_BYTES {
            return self.finish_directory(&directory);
        }
        self.postponed_bytes += directory.path.len();
        self.postponed.push(directory);
        Ok(())
    }

    /// Sets a directory's mode and time.
    fn finish_directory(&self, directory: &Postponed) -> Result<(), UnpackError> {
        let names = names(&directory.path).unwrap_or_default();
        let Some((name, dirs)) = names.split_last() else { return Ok(()) };
        let finish = || {
            let parent = self.descend(dirs, MissingDirs::Fail)?;
            let readable = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
            let fd = openat(parent, *name, readable, Mode::empty())?;
            fchmod(&fd, Mode::from_bits_truncate(directory.mode))?;
            futimens(&fd, &directory.mtime, &directory.mtime)
        };
        match finish() {
            // It was there before and belongs to another user, or a later entry took its place.
            Ok(()) | Err(Errno::EPERM | Errno::EACCES | Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => Ok(()),
            Err(errno) => Err(errno).at(&directory.path),
        }
    }

    fn hard_link(&self, dir: BorrowedFd<'_>, entry_names: &[&[u8]], entry: &Entry) -> Result<(), UnpackError> {
        let target_names = names(&entry.link).map_err(|why| refused(&entry.path, &format!("it links to {why}")))?;
        if target_names == entry_names {
            return Ok(());
        }
        let (Some((name, _)), Some((target, target_dirs))) = (entry_names.split_last(), target_names.split_last())
        else {
            return Err(refused(&entry.path, "it is a link to nothing"));
        };
        let link = |target_dir: OwnedFd| {
            // Without AT_SYMLINK_FOLLOW: a link to a symbolic link is that link once more, not what it leads to.
            replacing(dir, name, || linkat(&target_dir, *target, dir, *name, AtFlags::empty()))
        };
        self.descend(target_dirs, MissingDirs::Fail).and_then(link).map_err(|errno| match errno {
            Errno::ENOENT => refused(&entry.path, &format!("it links to {:?}, which is not there", shown(&entry.link))),
            other => walk_error(&entry.path, other),
        })
    }
}

fn symlink(dir: BorrowedFd<'_>, name: &[u8], entry: &Entry) -> Result<(), UnpackError> {
    if entry.link.is_empty() || entry.link.contains(&0) {
        return Err(refused(&entry.path, "it is a link to nothing"));
    }
    replacing(dir, name, || symlinkat(entry.link.as_slice(), dir, name)).at(&entry.path)?;
    // Not every filesystem keeps a link's own time.
    let _ = utimensat(dir, name, &mtime(entry), &mtime(entry), UtimensatFlags::NoFollowSymlink);
    Ok(())
}

/// Makes something, after removing what has its name. A directory is not removed: EISDIR.
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
    if path.len() > MAX_PATH || path.contains(&0) {
        return Err("a path that is too long or holds a NUL byte");
    }
    let names: Vec<&[u8]> = path.split(|b| *b == b'/').filter(|n| !n.is_empty() && *n != b".").collect();
    if names.contains(&&b".."[..]) {
        return Err("a path with `..` in it");
    }
    Ok(names)
}

fn walk_flags() -> OFlag {
    OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC
}

fn mtime(entry: &Entry) -> TimeSpec {
    TimeSpec::new(entry.seconds, entry.nanoseconds)
}

fn walk_error(path: &[u8], errno: Errno) -> UnpackError {
    match errno {
        Errno::ENOTDIR => refused(path, "a name on its way is a link or a file, and links are not followed"),
        other => UnpackError::Io { path: path.to_vec(), error: other.into() },
    }
}

fn refused(path: &[u8], why: &str) -> UnpackError {
    UnpackError::Refused { path: path.to_vec(), why: why.to_owned() }
}

#[cfg(test)]
#[path = "unpack_test.rs"]
mod tests;
