//! Packs the directories of a sandbox. Nothing changes meanwhile, because every command is stopped, so whatever goes wrong is an error.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::{FileStat, Mode, fstat};
use nix::unistd::{Whence, lseek};
use shared_protocol::ErrorBody;
use shared_protocol::runner::FileKind;

use super::{END, Facts, Kind, MAGIC, MAX_EXTENT};
use crate::files::RawPath;
use crate::files::error::{At, from_errno};
use crate::files::inode::{self, MODE_BITS};
use crate::files::protocol::{Content, DataWriter, ReplyWriter};
use crate::files::tree::{self, Descend, Entry, Visitor};

/// Packs the directories into the reply. One that does not exist is refused before the first byte.
pub fn pack(directories: &[RawPath], reply: &mut ReplyWriter<'_>) -> Result<(), ErrorBody> {
    let opened: Vec<(&RawPath, OwnedFd, FileStat)> = directories
        .iter()
        .map(|path| {
            let directory = open_top(path).at(path)?;
            let stat = fstat(&directory).at(path)?;
            Ok((path, directory, stat))
        })
        .collect::<Result<_, ErrorBody>>()?;
    reply.head(200, Content::Bytes, None).at(b"/")?;
    let mut packing = Packing {
        to: DataWriter::new(reply),
        buffer: vec![0; MAX_EXTENT],
        entries: 0,
        top: Vec::new(),
        device: 0,
        names: HashMap::new(),
    };
    packing.to.write_all(MAGIC).at(b"/")?;
    for (path, directory, stat) in opened {
        packing.top.clone_from(path);
        packing.device = stat.st_dev;
        packing.names.clear();
        packing.begin(Kind::Directory, &stat, path).at(path)?;
        tree::walk(directory, path, &mut packing)?;
    }
    packing.end().at(b"/")?;
    reply.end().at(b"/")
}

pub(super) fn open_top(path: &[u8]) -> Result<OwnedFd, Errno> {
    open(path, OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())
}

struct Packing<'a, 'b> {
    to: DataWriter<'a, 'b>,
    buffer: Vec<u8>,
    entries: u64,
    /// The directory that is packed now.
    top: RawPath,
    /// Its file system. What is mounted below it is no part of it.
    device: libc::dev_t,
    /// The first name of every file with more than one.
    names: HashMap<libc::ino_t, RawPath>,
}

impl Visitor for Packing<'_, '_> {
    fn entry(&mut self, entry: &Entry<'_>) -> Result<Descend, ErrorBody> {
        let path = tree::below(&self.top, entry.path, b"");
        self.to.reply.report_progress().at(&path)?;
        if entry.stat.st_dev != self.device {
            return Ok(Descend::Skip);
        }
        let kind = match inode::kind(entry.stat) {
            FileKind::Directory => Kind::Directory,
            FileKind::Symlink => Kind::Symlink,
            FileKind::Fifo => Kind::Fifo,
            FileKind::File => Kind::File,
            FileKind::Socket | FileKind::BlockDevice | FileKind::CharDevice => return Ok(Descend::Enter),
        };
        if kind != Kind::Directory && entry.stat.st_nlink > 1 {
            if let Some(first) = self.names.get(&entry.stat.st_ino).cloned() {
                self.begin(Kind::HardLink, entry.stat, &path).and_then(|()| self.bytes(&first)).at(&path)?;
                return Ok(Descend::Enter);
            }
            self.names.insert(entry.stat.st_ino, path.clone());
        }
        match kind {
            Kind::Directory | Kind::Fifo | Kind::HardLink => self.begin(kind, entry.stat, &path).at(&path)?,
            Kind::Symlink => {
                let text = inode::link_text(entry.dir, entry.name).at(&path)?;
                self.begin(kind, entry.stat, &path).and_then(|()| self.bytes(&text)).at(&path)?;
            }
            Kind::File => {
                let file = inode::open_regular(entry.dir, entry.name, entry.stat).at(&path)?;
                self.begin(kind, entry.stat, &path).and_then(|()| self.content(&file, entry.stat)).at(&path)?;
            }
        }
        Ok(Descend::Enter)
    }

    fn not_entered(&mut self, path: &[u8], why: Errno) -> Result<(), ErrorBody> {
        Err(from_errno(&tree::below(&self.top, path, b""), why))
    }
}

impl Packing<'_, '_> {
    fn begin(&mut self, kind: Kind, stat: &FileStat, path: &[u8]) -> io::Result<()> {
        self.entries += 1;
        let facts = Facts {
            mode: stat.st_mode & MODE_BITS,
            uid: stat.st_uid,
            gid: stat.st_gid,
            seconds: stat.st_mtime,
            nanoseconds: u32::try_from(stat.st_mtime_nsec).unwrap_or(0),
        };
        self.to.write_all(&[kind.tag()])?;
        self.to.write_all(&facts.to_bytes())?;
        self.bytes(path)
    }

    fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.to.write_all(&u32::try_from(bytes.len()).map_err(io::Error::other)?.to_le_bytes())?;
        self.to.write_all(bytes)
    }

    fn content(&mut self, file: &File, stat: &FileStat) -> io::Result<()> {
        let size = inode::size(stat);
        self.to.write_all(&size.to_le_bytes())?;
        let mut at = 0;
        while at < size {
            let Some((start, end)) = next_data(file, at, size) else { break };
            self.extents(file, start, end)?;
            at = end;
        }
        self.extent(size, 0)
    }

    /// Writes a part of a file. Zeros are a hole: not every file system tells where its holes are.
    fn extents(&mut self, file: &File, start: u64, end: u64) -> io::Result<()> {
        let mut at = start;
        while at < end {
            let wanted = usize::try_from(end - at).unwrap_or(MAX_EXTENT).min(MAX_EXTENT);
            let mut buffer = std::mem::take(&mut self.buffer);
            let read = file.read_at(&mut buffer[..wanted], at);
            let written = match &read {
                Ok(read) if buffer[..*read].iter().any(|byte| *byte != 0) => {
                    self.extent(at, *read).and_then(|()| self.to.write_all(&buffer[..*read]))
                }
                _ => self.to.reply.report_progress(),
            };
            self.buffer = buffer;
            written?;
            match read? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => at += read as u64,
            }
        }
        Ok(())
    }

    fn extent(&mut self, offset: u64, length: usize) -> io::Result<()> {
        self.to.write_all(&offset.to_le_bytes())?;
        self.to.write_all(&u32::try_from(length).map_err(io::Error::other)?.to_le_bytes())
    }

    fn end(&mut self) -> io::Result<()> {
        self.to.write_all(&[END])?;
        let entries = self.entries.to_le_bytes();
        self.to.write_all(&entries)?;
        self.to.flush()
    }
}

/// The next part of a file with data, from `at` on. Without an answer from the file system, all of it is data.
fn next_data(file: &File, at: u64, size: u64) -> Option<(u64, u64)> {
    let seek = |from: u64, whence| lseek(file.as_fd(), i64::try_from(from).unwrap_or(i64::MAX), whence);
    let start = match seek(at, Whence::SeekData) {
        Ok(start) => u64::try_from(start).unwrap_or(at).max(at),
        Err(Errno::ENXIO) => return None,
        Err(_) => at,
    };
    let end = seek(start, Whence::SeekHole).ok().and_then(|end| u64::try_from(end).ok());
    let end = end.filter(|end| *end > start).unwrap_or(size).min(size);
    (start < end).then_some((start, end))
}
