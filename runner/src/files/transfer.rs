//! One file's bytes, out and in.
//!
//! Reading promises exactly as many bytes as it announced, or a cut; it opens regular files only. Writing is all or nothing:
//! the bytes go to a name of their own, and take the file's name when the last of them is there. The old content, and
//! whoever has it open, never sees half of the new.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};

use nix::errno::Errno;
use shared_protocol::ErrorBody;
use shared_protocol::runner::{FileKind, WroteView};

use super::channel::{Answer, Content, Head, Intake, MAX_FRAME, Outcome};
use super::error::{At, from_errno, from_io, invalid, shown};
use super::node::{self, PERMISSION_BITS, kind, kind_name, open_regular};
use super::resolve::{Last, Missing, Places, resolve};
use super::temporary::Temporary;

/// What a new file gets unless asked otherwise.
const FILE_MODE: u32 = 0o644;
/// How often a file that is replaced while it is being opened is looked for again: somebody may be writing it in one step
/// over and over, as we do ourselves.
const MAX_OPEN_TRIES: usize = 16;

/// The part of a file that a client wants, as it said it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Range {
    From(u64),
    /// Both ends count.
    Between(u64, u64),
    Last(u64),
}

impl Range {
    /// Where the part begins in a file of this size, and how long it is; `None` where the file has no such part.
    fn within(self, size: u64) -> Option<(u64, u64)> {
        let (start, end) = match self {
            Self::From(start) => (start, size),
            Self::Between(start, last) => (start, last.saturating_add(1).min(size)),
            Self::Last(count) => (size.saturating_sub(count), size),
        };
        (start < end).then(|| (start, end - start))
    }
}

pub fn read(places: &Places, path: &[u8], range: Option<Range>, answer: &mut Answer<'_>) -> Result<(), ErrorBody> {
    let (mut file, size) = open(places, path)?;
    match range {
        None => read_whole(&mut file, size, path, answer),
        Some(range) => {
            let (start, length) = range.within(size).ok_or_else(|| {
                invalid(format!("{}: the range is outside of the file, which has {size} bytes", shown(path)))
            })?;
            file.seek(SeekFrom::Start(start)).at(path)?;
            let range = Some(format!("bytes {start}-{}/{size}", start + length - 1));
            let head = Head { status: 206, content: Content::Bytes, length: Some(length), range };
            answer.outcome(&Outcome::Done(head)).at(path)?;
            send_exactly(&mut file, length, path, answer)
        }
    }
}

/// A file that is at its end within the first frame is announced by what was read. So those of `/proc`, which say that
/// they are empty, and of `/sys`, which say that they have a page, come out right.
fn read_whole(file: &mut File, size: u64, path: &[u8], answer: &mut Answer<'_>) -> Result<(), ErrorBody> {
    let mut first = Vec::with_capacity(MAX_FRAME);
    file.take(MAX_FRAME as u64).read_to_end(&mut first).at(path)?;
    let begun = first.len() as u64;
    let length = match (first.len() < MAX_FRAME, size) {
        (true, _) => Some(begun),
        (false, 0) => None,
        (false, size) => Some(size.max(begun)),
    };
    answer.head(200, Content::Bytes, length).at(path)?;
    answer.data(&first).at(path)?;
    match length {
        Some(length) => send_exactly(file, length - begun, path, answer),
        None => send_all(file, path, answer),
    }
}

fn send_exactly(file: &mut File, length: u64, path: &[u8], answer: &mut Answer<'_>) -> Result<(), ErrorBody> {
    let mut buffer = vec![0; MAX_FRAME];
    let mut left = length;
    while left > 0 {
        let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(MAX_FRAME);
        let read = file.read(&mut buffer[..wanted]).at(path)?;
        if read == 0 {
            return Err(invalid(format!("{}: it became shorter while it was read", shown(path))));
        }
        answer.data(&buffer[..read]).at(path)?;
        left -= read as u64;
    }
    answer.end().at(path)
}

fn send_all(file: &mut File, path: &[u8], answer: &mut Answer<'_>) -> Result<(), ErrorBody> {
    let mut buffer = vec![0; MAX_FRAME];
    loop {
        match file.read(&mut buffer).at(path)? {
            0 => return answer.end().at(path),
            read => answer.data(&buffer[..read]).at(path)?,
        }
    }
}

fn open(places: &Places, path: &[u8]) -> Result<(File, u64), ErrorBody> {
    for _ in 0..MAX_OPEN_TRIES {
        let place = resolve(places, path, Last::Follow, Missing::Fail)?;
        let Some(node) = &place.node else { return Err(from_errno(path, Errno::ENOENT)) };
        match kind(&node.stat) {
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
        match open_regular(place.parent(), place.name(path)?, &node.stat) {
            Ok(file) => return Ok((file, node::size(&node.stat))),
            Err(Errno::ESTALE | Errno::ENOENT | Errno::ELOOP) => {}
            Err(errno) => return Err(from_errno(path, errno)),
        }
    }
    Err(from_errno(path, Errno::ESTALE))
}

pub fn write(
    places: &Places,
    path: &[u8],
    mode: Option<u32>,
    intake: &mut Intake<'_>,
    answer: &mut Answer<'_>,
) -> Result<(), ErrorBody> {
    let place = resolve(places, path, Last::Follow, Missing::Make)?;
    let name = place.name(path)?;
    let mode = match &place.node {
        None if place.only_directory => {
            return Err(invalid(format!("{}: a file's path must not end in a slash", shown(path))));
        }
        None => mode.unwrap_or(FILE_MODE),
        Some(node) => match kind(&node.stat) {
            FileKind::File => mode.unwrap_or(node.stat.st_mode & PERMISSION_BITS),
            other => {
                let kind = kind_name(other);
                return Err(invalid(format!("{}: it is {kind}; only regular files are replaced", shown(path))));
            }
        },
    };
    let mut temporary = Temporary::create(place.parent()).at(path)?;
    answer.ready().at(path)?;
    let bytes = take_in(intake, &mut temporary.file, path)?;
    temporary.become_name(name, mode).at(path)?;
    answer.json(201, &WroteView { bytes }).at(path)
}

fn take_in(intake: &mut Intake<'_>, file: &mut File, path: &[u8]) -> Result<u64, ErrorBody> {
    let mut buffer = vec![0; MAX_FRAME];
    let mut bytes = 0;
    loop {
        let read = match intake.read(&mut buffer) {
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
