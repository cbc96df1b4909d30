//! A tar stream from a sandbox into a local directory.
//!
//! The stream is a stranger's. Every entry's path is walked from the destination name by name, following nothing: a link that
//! an earlier entry made, or that was there before, ends the walk. So nothing is made outside the destination. Files and
//! links are replaced, never written into; directories are kept and added to. Set-uid, set-gid and sticky are dropped.
//!
//! It knows what the runner packs (files, directories, symbolic links, GNU long names) and refuses the rest by name, with
//! absolute paths and `..`. Names are bounded: the `tar` crate alone would hold whatever length they claim.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::{Mode, UtimensatFlags, fchmod, futimens, mkdirat, utimensat};
use nix::sys::time::TimeSpec;
use nix::unistd::{UnlinkatFlags, symlinkat, unlinkat};
use tar::{Archive, EntryType, Header};

const MAX_PATH: usize = 4096;
const PERMISSION_BITS: u32 = 0o777;
/// What a directory needs while it is being filled; its own mode it gets at the end.
const FILLABLE: u32 = 0o700;
/// Directories whose mode and time wait for the end. Those beyond get them at once.
const MAX_POSTPONED: usize = 100_000;

pub fn unpack(from: impl Read, directory: &Path) -> io::Result<()> {
    match std::fs::create_dir(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    // The destination itself was named by the caller: a link there is followed.
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let mut unpacking = Unpacking { top: open(directory, flags, Mode::empty())?, postponed: Vec::new() };
    unpacking.all(from)?;
    while let Some(directory) = unpacking.postponed.pop() {
        unpacking.finish(&directory);
    }
    Ok(())
}

struct Unpacking {
    top: OwnedFd,
    postponed: Vec<Postponed>,
}

struct Postponed {
    path: Vec<u8>,
    mode: Mode,
    mtime: TimeSpec,
}

/// One entry, its long names resolved.
struct Item {
    path: Vec<u8>,
    link: Vec<u8>,
    size: u64,
    mode: Mode,
    mtime: TimeSpec,
}

impl Unpacking {
    fn all(&mut self, from: impl Read) -> io::Result<()> {
        let mut archive = Archive::new(from);
        let (mut long_path, mut long_link) = (None, None);
        // Raw: long names come as entries, and are read here with a bound.
        for entry in archive.entries()?.raw(true) {
            let mut entry = entry?;
            let kind = entry.header().entry_type();
            match kind {
                EntryType::GNULongName => long_path = Some(long_name(&mut entry)?),
                EntryType::GNULongLink => long_link = Some(long_name(&mut entry)?),
                _ => {
                    let item = item(entry.header(), long_path.take(), long_link.take())?;
                    self.one(&item, kind, &mut entry)?;
                }
            }
        }
        Ok(())
    }

    fn one(&mut self, item: &Item, kind: EntryType, data: &mut dyn Read) -> io::Result<()> {
        let names = names(&item.path).map_err(|why| refused(&item.path, why))?;
        let is_directory = kind == EntryType::Directory;
        let Some((name, dirs)) = names.split_last() else {
            // `./`, the destination itself: its mode is not the archive's to set.
            return if is_directory { Ok(()) } else { Err(refused(&item.path, "it has no name")) };
        };
        let dir = self.descend(dirs).map_err(|errno| at(&item.path, errno))?;
        let made = match kind {
            EntryType::Regular | EntryType::Continuous => return file(dir.as_fd(), name, item, data),
            EntryType::Directory => self.directory(dir.as_fd(), name, item),
            EntryType::Symlink if item.link.is_empty() || item.link.contains(&0) => {
                return Err(refused(&item.path, "it is a link to nothing"));
            }
            EntryType::Symlink => symlink(dir.as_fd(), name, item),
            _ => return Err(refused(&item.path, "it is neither a file, nor a directory, nor a symbolic link")),
        };
        made.map_err(|errno| at(&item.path, errno))
    }

    /// Walks down from the destination, making what is missing. A link or a file on the way is ENOTDIR.
    fn descend(&self, names: &[&[u8]]) -> Result<OwnedFd, Errno> {
        let mut dir = openat(&self.top, ".", dir_flags(), Mode::empty())?;
        for name in names {
            let mut next = openat(&dir, *name, dir_flags(), Mode::empty());
            if matches!(next, Err(Errno::ENOENT)) {
                match mkdirat(&dir, *name, Mode::from_bits_truncate(PERMISSION_BITS)) {
                    Ok(()) | Err(Errno::EEXIST) => next = openat(&dir, *name, dir_flags(), Mode::empty()),
                    Err(errno) => return Err(errno),
                }
            }
            dir = next.map_err(|errno| if errno == Errno::ELOOP { Errno::ENOTDIR } else { errno })?;
        }
        Ok(dir)
    }

    fn directory(&mut self, dir: BorrowedFd<'_>, name: &[u8], item: &Item) -> Result<(), Errno> {
        let make = || mkdirat(dir, name, item.mode | Mode::from_bits_truncate(FILLABLE));
        match make() {
            Err(Errno::EEXIST) => match openat(dir, name, dir_flags(), Mode::empty()) {
                Ok(_) => {}
                // A file, or a link to wherever.
                Err(Errno::ENOTDIR | Errno::ELOOP) => replacing(dir, name, make)?,
                Err(errno) => return Err(errno),
            },
            other => other?,
        }
        let directory = Postponed { path: item.path.clone(), mode: item.mode, mtime: item.mtime };
        if self.postponed.len() < MAX_POSTPONED {
            self.postponed.push(directory);
        } else {
            self.finish(&directory);
        }
        Ok(())
    }

    /// Not an error where it cannot be done: a later entry may have taken its place, or it is another user's.
    fn finish(&self, directory: &Postponed) {
        let names = names(&directory.path).unwrap_or_default();
        if let Ok(fd) = self.descend(&names) {
            let _ = fchmod(&fd, directory.mode);
            let _ = futimens(&fd, &directory.mtime, &directory.mtime);
        }
    }
}

fn dir_flags() -> OFlag {
    OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC
}

fn file(dir: BorrowedFd<'_>, name: &[u8], item: &Item, data: &mut dyn Read) -> io::Result<()> {
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let owner_only = Mode::S_IRUSR | Mode::S_IWUSR;
    let fd = replacing(dir, name, || openat(dir, name, flags, owner_only)).map_err(|errno| at(&item.path, errno))?;
    let mut file = File::from(fd);
    let filled = io::copy(data, &mut file).and_then(|copied| {
        if copied < item.size {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        fchmod(&file, item.mode)?;
        Ok(futimens(&file, &item.mtime, &item.mtime)?)
    });
    if filled.is_err() {
        // Half a file is not one that stays.
        let _ = unlinkat(dir, name, UnlinkatFlags::NoRemoveDir);
    }
    filled.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", shown(&item.path))))
}

fn symlink(dir: BorrowedFd<'_>, name: &[u8], item: &Item) -> Result<(), Errno> {
    replacing(dir, name, || symlinkat(item.link.as_slice(), dir, name))?;
    // Not every filesystem keeps a link's own time.
    let _ = utimensat(dir, name, &item.mtime, &item.mtime, UtimensatFlags::NoFollowSymlink);
    Ok(())
}

/// Makes something that fails where its name is taken, after removing what has the name. A directory is not removed.
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

fn item(header: &Header, long_path: Option<Vec<u8>>, long_link: Option<Vec<u8>>) -> io::Result<Item> {
    let seconds =
        i64::try_from(header.mtime()?).map_err(|_| io::Error::other("the tar stream has an impossible time"))?;
    Ok(Item {
        path: long_path.unwrap_or_else(|| header.path_bytes().into_owned()),
        link: long_link.or_else(|| header.link_name_bytes().map(|link| link.into_owned())).unwrap_or_default(),
        size: header.entry_size()?,
        mode: Mode::from_bits_truncate(header.mode()? & PERMISSION_BITS),
        mtime: TimeSpec::new(seconds, 0),
    })
}

fn long_name(entry: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut name = Vec::new();
    entry.take(MAX_PATH as u64 + 2).read_to_end(&mut name)?;
    if let Some(end) = name.iter().position(|byte| *byte == 0) {
        name.truncate(end);
    }
    if name.len() > MAX_PATH {
        return Err(io::Error::other(format!("the tar stream has a name that is longer than {MAX_PATH} bytes")));
    }
    Ok(name)
}

/// The names of an entry's path, or why it may not be unpacked.
fn names(path: &[u8]) -> Result<Vec<&[u8]>, &'static str> {
    if path.first() == Some(&b'/') {
        return Err("it has an absolute path");
    }
    if path.contains(&0) {
        return Err("its path holds a NUL byte");
    }
    let names: Vec<&[u8]> = path.split(|b| *b == b'/').filter(|n| !n.is_empty() && *n != b".").collect();
    if names.contains(&&b".."[..]) {
        return Err("its path has `..` in it");
    }
    Ok(names)
}

fn at(path: &[u8], errno: Errno) -> io::Error {
    match errno {
        Errno::ENOTDIR => refused(path, "a name on its way is a link or a file, and links are not followed"),
        errno => io::Error::new(io::Error::from(errno).kind(), format!("{}: {}", shown(path), errno.desc())),
    }
}

fn refused(path: &[u8], why: &str) -> io::Error {
    io::Error::other(format!("the entry {} is refused: {why}", shown(path)))
}

fn shown(path: &[u8]) -> String {
    format!("{:?}", String::from_utf8_lossy(path))
}

#[cfg(test)]
#[path = "unpack_test.rs"]
mod tests;
