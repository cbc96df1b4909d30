//! Unpacks the directories of a sandbox into one whose shells have not started yet.
//!
//! What is in none of the directories is left out: a session can have a workspace where its snapshot had files of its own. Each path is walked from its directory on held descriptors, and no link is followed, so that nothing is made elsewhere, whatever the
//! stream says.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat};
use nix::sys::stat::{FchmodatFlags, Mode, UtimensatFlags, fchmod, fchmodat, futimens, mkdirat, utimensat};
use nix::sys::time::TimeSpec;
use nix::unistd::{Gid, Uid, UnlinkatFlags, fchown, fchownat, linkat, mkfifoat, symlinkat, unlinkat};
use shared_protocol::runner::WroteView;
use shared_protocol::{ErrorBody, ErrorCode};

use super::pack::open_top;
use super::{END, Facts, Kind, MAGIC, MAX_EXTENT, MAX_PATH, read_array, read_bytes, read_u32, read_u64};
use crate::files::RawPath;
use crate::files::error::{At, invalid, shown};
use crate::files::inode::MODE_BITS;
use crate::files::protocol::{BodyReader, ReplyWriter};

/// Unpacks the request's body into these directories, which exist.
pub fn unpack(
    directories: &[RawPath],
    body: &mut BodyReader<'_>,
    reply: &mut ReplyWriter<'_>,
) -> Result<(), ErrorBody> {
    let tops = directories.iter().map(|path| Ok((path.clone(), open_top(path).at(path)?)));
    let mut unpacking =
        Unpacking { tops: tops.collect::<Result<_, ErrorBody>>()?, times: Vec::new(), entries: 0, bytes: 0 };
    reply.ready().at(b"/")?;
    unpacking.all(body, reply)?;
    reply.json(201, &WroteView { bytes: unpacking.bytes }).at(b"/")
}

struct Unpacking {
    tops: Vec<(RawPath, OwnedFd)>,
    /// The times of directories, which are set when everything is in them.
    times: Vec<(RawPath, TimeSpec)>,
    entries: u64,
    bytes: u64,
}

impl Unpacking {
    fn all(&mut self, from: &mut BodyReader<'_>, reply: &mut ReplyWriter<'_>) -> Result<(), ErrorBody> {
        if &read_array::<{ MAGIC.len() }>(from).map_err(cut)? != MAGIC {
            return Err(invalid("this is not the disk of a sandbox, or that of a newer runner"));
        }
        loop {
            let [tag] = read_array(from).map_err(cut)?;
            if tag == END {
                break;
            }
            let kind = Kind::of(tag).ok_or_else(|| invalid("the stream has an entry of an unknown kind"))?;
            let facts = Facts::read(from).map_err(cut)?;
            let path = read_bytes(from, MAX_PATH).map_err(cut)?;
            if self.tops.iter().any(|(top, _)| path == *top || is_below(&path, top)) {
                self.one(kind, facts, &path, from)?;
            } else {
                skip(kind, from).map_err(cut)?;
            }
            self.entries += 1;
            reply.report_progress().at(&path)?;
        }
        if read_u64(from).map_err(cut)? != self.entries {
            return Err(invalid("the stream has not as many entries as it says"));
        }
        while let Some((path, time)) = self.times.pop() {
            reply.report_progress().at(&path)?;
            futimens(self.directory(&path)?, &time, &time).at(&path)?;
        }
        Ok(())
    }

    fn one(&mut self, kind: Kind, facts: Facts, path: &[u8], from: &mut BodyReader<'_>) -> Result<(), ErrorBody> {
        let time = TimeSpec::new(facts.seconds, i64::from(facts.nanoseconds));
        if kind == Kind::Directory {
            self.make_directory(path)?;
            own(&self.directory(path)?, facts).at(path)?;
            self.times.push((path.to_vec(), time));
            return Ok(());
        }
        let (dir, name) = self.parent(path)?;
        let dir = dir.as_fd();
        match kind {
            Kind::File => return self.file(dir, name, facts, path, from),
            Kind::HardLink => {
                let target = read_bytes(from, MAX_PATH).map_err(cut)?;
                let (target_dir, target_name) = self.parent(&target)?;
                return replacing(dir, name, || linkat(&target_dir, target_name, dir, name, AtFlags::empty())).at(path);
            }
            Kind::Symlink => {
                let text = read_bytes(from, MAX_PATH).map_err(cut)?;
                replacing(dir, name, || symlinkat(text.as_slice(), dir, name)).at(path)?;
            }
            Kind::Fifo | Kind::Directory => {
                replacing(dir, name, || mkfifoat(dir, name, Mode::S_IRUSR | Mode::S_IWUSR)).at(path)?;
            }
        }
        let (uid, gid) = owners(facts);
        fchownat(dir, name, uid, gid, AtFlags::AT_SYMLINK_NOFOLLOW).at(path)?;
        if kind == Kind::Fifo {
            fchmodat(dir, name, mode(facts), FchmodatFlags::FollowSymlink).at(path)?;
        }
        utimensat(dir, name, &time, &time, UtimensatFlags::NoFollowSymlink).at(path)
    }

    fn file(
        &mut self,
        dir: BorrowedFd<'_>,
        name: &[u8],
        facts: Facts,
        path: &[u8],
        from: &mut BodyReader<'_>,
    ) -> Result<(), ErrorBody> {
        let size = read_u64(from).map_err(cut)?;
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let fd = replacing(dir, name, || openat(dir, name, flags, Mode::S_IRUSR | Mode::S_IWUSR)).at(path)?;
        let file = File::from(fd);
        file.set_len(size).at(path)?;
        let mut buffer = vec![0; MAX_EXTENT];
        loop {
            let (offset, length) = (read_u64(from).map_err(cut)?, read_u32(from).map_err(cut)?);
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            if length == 0 {
                break;
            }
            let end = offset.checked_add(length as u64).filter(|end| *end <= size && length <= MAX_EXTENT);
            if end.is_none() {
                return Err(invalid(format!("{}: the stream has data outside of the file", shown(path))));
            }
            from.read_exact(&mut buffer[..length]).map_err(cut)?;
            file.write_all_at(&buffer[..length], offset).at(path)?;
            self.bytes += length as u64;
        }
        own(&file, facts).at(path)?;
        let time = TimeSpec::new(facts.seconds, i64::from(facts.nanoseconds));
        futimens(&file, &time, &time).at(path)
    }

    fn make_directory(&self, path: &[u8]) -> Result<(), ErrorBody> {
        if self.tops.iter().any(|(top, _)| top == path) {
            return Ok(());
        }
        let (dir, name) = self.parent(path)?;
        match mkdirat(&dir, name, Mode::S_IRWXU) {
            Ok(()) | Err(Errno::EEXIST) => Ok(()),
            Err(errno) => Err(errno).at(path),
        }
    }

    /// Opens a directory that exists.
    fn directory(&self, path: &[u8]) -> Result<OwnedFd, ErrorBody> {
        let readable = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        match self.tops.iter().find(|(top, _)| top == path) {
            Some((_, top)) => openat(top, ".", readable, Mode::empty()).at(path),
            None => {
                let (dir, name) = self.parent(path)?;
                openat(&dir, name, readable, Mode::empty()).at(path)
            }
        }
    }

    /// The directory that a path is in, and its last name.
    fn parent<'p>(&self, path: &'p [u8]) -> Result<(OwnedFd, &'p [u8]), ErrorBody> {
        let outside = || invalid(format!("{}: it is in none of the directories", shown(path)));
        // A directory can be below another one.
        let top = self.tops.iter().filter(|(top, _)| is_below(path, top)).max_by_key(|(top, _)| top.len());
        let (top, directory) = top.ok_or_else(outside)?;
        let names: Vec<&[u8]> = path[top.len() + 1..].split(|byte| *byte == b'/').collect();
        if names.iter().any(|name| name.is_empty() || *name == b"." || *name == b"..") || path.contains(&0) {
            return Err(outside());
        }
        let Some((last, dirs)) = names.split_last() else { return Err(outside()) };
        let step = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let mut dir = openat(directory, ".", step, Mode::empty()).at(path)?;
        for name in dirs {
            dir = openat(&dir, *name, step, Mode::empty()).at(path)?;
        }
        Ok((dir, last))
    }
}

/// Reads over what belongs to an entry that is left out.
fn skip(kind: Kind, from: &mut dyn Read) -> io::Result<()> {
    match kind {
        Kind::Directory | Kind::Fifo => {}
        Kind::Symlink | Kind::HardLink => drop(read_bytes(from, MAX_PATH)?),
        Kind::File => {
            read_u64(from)?;
            loop {
                read_u64(from)?;
                if read_bytes(from, MAX_EXTENT)?.is_empty() {
                    break;
                }
            }
        }
    }
    Ok(())
}

fn is_below(path: &[u8], top: &[u8]) -> bool {
    path.strip_prefix(top).is_some_and(|rest| rest.len() > 1 && rest[0] == b'/')
}

fn owners(facts: Facts) -> (Option<Uid>, Option<Gid>) {
    (Some(Uid::from_raw(facts.uid)), Some(Gid::from_raw(facts.gid)))
}

fn mode(facts: Facts) -> Mode {
    Mode::from_bits_truncate(facts.mode & MODE_BITS)
}

/// Sets owner and mode. A change of the owner clears bits of the mode, so it comes first.
fn own(fd: &impl AsFd, facts: Facts) -> nix::Result<()> {
    let (uid, gid) = owners(facts);
    fchown(fd.as_fd(), uid, gid)?;
    fchmod(fd.as_fd(), mode(facts))
}

/// Makes something, after removing what has its name.
fn replacing<T>(dir: BorrowedFd<'_>, name: &[u8], make: impl Fn() -> nix::Result<T>) -> nix::Result<T> {
    match make() {
        Err(Errno::EEXIST) => {
            unlinkat(dir, name, UnlinkatFlags::NoRemoveDir)?;
            make()
        }
        made => made,
    }
}

/// The error for a stream that ends early or is not one.
fn cut(error: io::Error) -> ErrorBody {
    ErrorBody::new(ErrorCode::InvalidRequest, format!("the stream of the disk stops before its end: {error}"))
}
