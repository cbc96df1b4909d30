//! Reads and writes one file.
//!
//! A read sends exactly as many bytes as it announced, or is cut; it opens regular files only. A write is all or nothing:
//! the bytes go to a temporary file, which gets the final name when it is complete. Nobody ever sees half of the new
//! content. A rename needs no permission on the file that it replaces, so a write asks for that permission first: it
//! refuses a file that a command of the sandbox user could not have written.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};

use nix::errno::Errno;
use nix::fcntl::AtFlags;
use nix::unistd::{AccessFlags, faccessat};
use shared_protocol::ErrorBody;
use shared_protocol::runner::{FileKind, WroteView};

use super::error::{At, from_errno, from_io, invalid, shown};
use super::inode::{self, PERMISSION_BITS, kind, kind_name, open_regular};
use super::protocol::{BodyReader, Content, Head, HelperResult, MAX_FRAME, ReplyWriter};
use super::resolve::{FinalLink, MissingDirs, Roots, resolve};
use super::temporary::Temporary;

/// The default mode of a new file.
const FILE_MODE: u32 = 0o644;
/// The most attempts to open a file that is replaced meanwhile: somebody may replace it over and over.
const MAX_OPEN_TRIES: usize = 16;

/// The requested part of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Range {
    From(u64),
    /// From the first to the last byte, both included.
    Between(u64, u64),
    Last(u64),
}

impl Range {
    /// The start and the length of the part in a file of this size, or `None` if the file has no such part.
    fn within(self, size: u64) -> Option<(u64, u64)> {
        let (start, end) = match self {
            Self::From(start) => (start, size),
            Self::Between(start, last) => (start, last.saturating_add(1).min(size)),
            Self::Last(count) => (size.saturating_sub(count), size),
        };
        (start < end).then(|| (start, end - start))
    }
}

/// Sends a file, or a part of it.
pub fn read(roots: &Roots, path: &[u8], range: Option<Range>, reply: &mut ReplyWriter<'_>) -> Result<(), ErrorBody> {
    let (mut file, size) = open(roots, path)?;
    match range {
        None => read_whole(&mut file, size, path, reply),
        Some(range) => {
            let (start, length) = range.within(size).ok_or_else(|| {
                invalid(format!("{}: the range is outside of the file, which has {size} bytes", shown(path)))
            })?;
            file.seek(SeekFrom::Start(start)).at(path)?;
            let range = Some(format!("bytes {start}-{}/{size}", start + length - 1));
            let head = Head { status: 206, content: Content::Bytes, length: Some(length), range };
            reply.outcome(&HelperResult::Done(head)).at(path)?;
            send_exactly(&mut file, length, path, reply)
        }
    }
}

/// Sends a whole file. If it ends within the first frame, its length is the number of bytes read and not what `stat` says:
/// files of `/proc` claim to be empty, and files of `/sys` claim to have a page.
fn read_whole(file: &mut File, size: u64, path: &[u8], reply: &mut ReplyWriter<'_>) -> Result<(), ErrorBody> {
    let mut first = Vec::with_capacity(MAX_FRAME);
    file.take(MAX_FRAME as u64).read_to_end(&mut first).at(path)?;
    let begun = first.len() as u64;
    let length = match (first.len() < MAX_FRAME, size) {
        (true, _) => Some(begun),
        (false, 0) => None,
        (false, size) => Some(size.max(begun)),
    };
    reply.head(200, Content::Bytes, length).at(path)?;
    reply.data(&first).at(path)?;
    match length {
        Some(length) => send_exactly(file, length - begun, path, reply),
        None => send_all(file, path, reply),
    }
}

fn send_exactly(file: &mut File, length: u64, path: &[u8], reply: &mut ReplyWriter<'_>) -> Result<(), ErrorBody> {
    let mut buffer = vec![0; MAX_FRAME];
    let mut left = length;
    while left > 0 {
        let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(MAX_FRAME);
        let read = file.read(&mut buffer[..wanted]).at(path)?;
        if read == 0 {
            return Err(invalid(format!("{}: it became shorter while it was read", shown(path))));
        }
        reply.data(&buffer[..read]).at(path)?;
        left -= read as u64;
    }
    reply.end().at(path)
}

fn send_all(file: &mut File, path: &[u8], reply: &mut ReplyWriter<'_>) -> Result<(), ErrorBody> {
    let mut buffer = vec![0; MAX_FRAME];
    loop {
        match file.read(&mut buffer).at(path)? {
            0 => return reply.end().at(path),
            read => reply.data(&buffer[..read]).at(path)?,
        }
    }
}

/// Opens a regular file, and says how large it claims to be.
pub fn open(roots: &Roots, path: &[u8]) -> Result<(File, u64), ErrorBody> {
    for _ in 0..MAX_OPEN_TRIES {
        let resolved = resolve(roots, path, FinalLink::Follow, MissingDirs::Fail)?;
        let Some(inode) = &resolved.inode else { return Err(from_errno(path, Errno::ENOENT)) };
        match kind(&inode.stat) {
            FileKind::File => {}
            FileKind::Directory => {
                return Err(invalid(format!("{}: it is a directory; list it, or take it as an archive", shown(path))));
            }
            other => {
                return Err(invalid(format!(
                    "{}: it is {}; only regular files are read",
                    shown(path),
                    kind_name(other)
                )));
            }
        }
        match open_regular(resolved.parent(), resolved.name(path)?, &inode.stat) {
            Ok(file) => return Ok((file, inode::size(&inode.stat))),
            Err(Errno::ESTALE | Errno::ENOENT | Errno::ELOOP) => {}
            Err(errno) => return Err(from_errno(path, errno)),
        }
    }
    Err(from_errno(path, Errno::ESTALE))
}

/// Replaces a file by the request's body.
pub fn write(
    roots: &Roots,
    path: &[u8],
    mode: Option<u32>,
    body: &mut BodyReader<'_>,
    reply: &mut ReplyWriter<'_>,
) -> Result<(), ErrorBody> {
    let resolved = resolve(roots, path, FinalLink::Follow, MissingDirs::Create)?;
    let name = resolved.name(path)?;
    let mode = match &resolved.inode {
        None if resolved.only_directory => {
            return Err(invalid(format!("{}: a file's path must not end in a slash", shown(path))));
        }
        None => mode.unwrap_or(FILE_MODE),
        Some(inode) => match kind(&inode.stat) {
            FileKind::File => {
                faccessat(resolved.parent(), name, AccessFlags::W_OK, AtFlags::empty()).at(path)?;
                mode.unwrap_or(inode.stat.st_mode & PERMISSION_BITS)
            }
            other => {
                let kind = kind_name(other);
                return Err(invalid(format!("{}: it is {kind}; only regular files are replaced", shown(path))));
            }
        },
    };
    let mut temporary = Temporary::create(resolved.parent()).at(path)?;
    reply.ready().at(path)?;
    let bytes = receive(body, &mut temporary.file, path)?;
    temporary.persist(name, mode).at(path)?;
    reply.json(201, &WroteView { bytes }).at(path)
}

fn receive(body: &mut BodyReader<'_>, file: &mut File, path: &[u8]) -> Result<u64, ErrorBody> {
    let mut buffer = vec![0; MAX_FRAME];
    let mut bytes = 0;
    loop {
        let read = match body.read(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(invalid(format!("{}: the request was cut, and nothing was changed", shown(path))));
            }
            other => other.at(path)?,
        };
        if read == 0 {
            return Ok(bytes);
        }
        file.write_all(&buffer[..read]).map_err(|error| from_io(path, &error))?;
        bytes += read as u64;
    }
}

#[cfg(test)]
#[path = "transfer_test.rs"]
mod tests;
