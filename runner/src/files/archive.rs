//! A directory's content as a tar stream.
//!
//! GNU format, with its long names: paths relative to the directory, links as links, bytes of names as they are. Owners are
//! written as 0, as they mean nothing elsewhere. FIFOs, sockets and devices are left out. A file that changes while it is
//! packed is cut or filled up with zeros to the size that its header says, so that the stream as a whole stays sound.
//!
//! It refuses, before the first byte, a tree with something in it that may not be read: an archive that silently lacks
//! files is worse than none.

use std::io::{self, Read, Write};

use nix::errno::Errno;
use nix::fcntl::AtFlags;
use nix::unistd::{AccessFlags, faccessat};
use shared_protocol::ErrorBody;
use shared_protocol::runner::FileKind;
use tar::{EntryType, Header};

use super::channel::{Answer, Content, DataWriter, MAX_FRAME};
use super::error::{At, from_errno};
use super::node::{self, MODE_BITS};
use super::resolve::{Last, Missing, Places, resolve};
use super::tree::{self, Entry, Next, Visitor};

pub const BLOCK: usize = 512;
/// An archive's end.
const END_BLOCKS: usize = 2;
/// Bytes that a header holds of a name or a link.
const SHORT_NAME: usize = 100;
/// What GNU tar calls an entry that holds the long name of the next.
const LONG_NAME: &[u8] = b"././@LongLink";

pub fn pack(places: &Places, path: &[u8], answer: &mut Answer<'_>) -> Result<(), ErrorBody> {
    let node = resolve(places, path, Last::Follow, Missing::Fail)?.node(path)?;
    tree::walk(node.open_directory(path)?, path, &mut Check { asked: path, answer })?;
    answer.head(200, Content::Tar, None).at(path)?;
    let mut packing = Packing { asked: path, to: DataWriter::new(answer), buffer: vec![0; MAX_FRAME] };
    tree::walk(node.open_directory(path)?, path, &mut packing)?;
    packing.to.write_all(&[0; BLOCK * END_BLOCKS]).at(path)?;
    packing.to.flush().at(path)?;
    answer.end().at(path)
}

/// Looks whether everything may be read.
struct Check<'a, 'b> {
    asked: &'a [u8],
    answer: &'a mut Answer<'b>,
}

impl Visitor for Check<'_, '_> {
    fn entry(&mut self, entry: &Entry<'_>) -> Result<Next, ErrorBody> {
        self.answer.tick().at(self.asked)?;
        if node::kind(entry.stat) == FileKind::File {
            match faccessat(entry.dir, entry.name, AccessFlags::R_OK, AtFlags::empty()) {
                Ok(()) | Err(Errno::ENOENT) => {}
                Err(errno) => return Err(from_errno(&tree::below(self.asked, entry.path, b""), errno)),
            }
        }
        Ok(Next::Enter)
    }

    fn not_entered(&mut self, path: &[u8], why: Errno) -> Result<(), ErrorBody> {
        Err(from_errno(&tree::below(self.asked, path, b""), why))
    }
}

struct Packing<'a, 'b, 'c> {
    asked: &'a [u8],
    to: DataWriter<'b, 'c>,
    buffer: Vec<u8>,
}

impl Visitor for Packing<'_, '_, '_> {
    fn entry(&mut self, entry: &Entry<'_>) -> Result<Next, ErrorBody> {
        self.to.answer.tick().at(self.asked)?;
        let shown = || tree::below(self.asked, entry.path, b"");
        match node::kind(entry.stat) {
            FileKind::Directory => {
                let path = [entry.path, b"/"].concat();
                self.header(entry, EntryType::Directory, &path, 0).at(self.asked)?;
            }
            FileKind::Symlink => match node::link_text(entry.dir, entry.name) {
                Ok(text) => self.link(entry, &text).at(self.asked)?,
                Err(Errno::ENOENT | Errno::EINVAL) => {}
                Err(errno) => return Err(from_errno(&shown(), errno)),
            },
            FileKind::File => match node::open_regular(entry.dir, entry.name, entry.stat) {
                Ok(file) => self.file(entry, file).at(&shown())?,
                // Removed or replaced since it was looked at.
                Err(Errno::ENOENT | Errno::ESTALE | Errno::ELOOP) => {}
                Err(errno) => return Err(from_errno(&shown(), errno)),
            },
            FileKind::Fifo | FileKind::Socket | FileKind::BlockDevice | FileKind::CharDevice => {}
        }
        Ok(Next::Enter)
    }

    fn not_entered(&mut self, path: &[u8], why: Errno) -> Result<(), ErrorBody> {
        Err(from_errno(&tree::below(self.asked, path, b""), why))
    }
}

impl Packing<'_, '_, '_> {
    fn header(&mut self, entry: &Entry<'_>, kind: EntryType, path: &[u8], size: u64) -> io::Result<()> {
        let mut header = common(entry, kind, size);
        self.long(EntryType::GNULongName, path)?;
        put(&mut header.as_old_mut().name, path);
        self.finished(&mut header)
    }

    fn link(&mut self, entry: &Entry<'_>, text: &[u8]) -> io::Result<()> {
        let mut header = common(entry, EntryType::Symlink, 0);
        self.long(EntryType::GNULongLink, text)?;
        self.long(EntryType::GNULongName, entry.path)?;
        put(&mut header.as_old_mut().linkname, text);
        put(&mut header.as_old_mut().name, entry.path);
        self.finished(&mut header)
    }

    fn file(&mut self, entry: &Entry<'_>, file: std::fs::File) -> io::Result<()> {
        let size = node::size(entry.stat);
        self.header(entry, EntryType::Regular, entry.path, size)?;
        let mut content = file.chain(io::repeat(0)).take(size);
        loop {
            match content.read(&mut self.buffer)? {
                0 => return self.pad(size),
                read => self.to.write_all(&self.buffer[..read])?,
            }
        }
    }

    /// An entry before the entry, for what does not fit into a header.
    fn long(&mut self, kind: EntryType, text: &[u8]) -> io::Result<()> {
        if text.len() <= SHORT_NAME {
            return Ok(());
        }
        let size = text.len() as u64 + 1;
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_size(size);
        put(&mut header.as_old_mut().name, LONG_NAME);
        self.finished(&mut header)?;
        self.to.write_all(text)?;
        self.to.write_all(&[0])?;
        self.pad(size)
    }

    fn finished(&mut self, header: &mut Header) -> io::Result<()> {
        header.set_cksum();
        self.to.write_all(header.as_bytes())
    }

    fn pad(&mut self, size: u64) -> io::Result<()> {
        let zeros = [0; BLOCK];
        self.to.write_all(&zeros[..padding(size)])
    }
}

/// Bytes from the end of an entry's data to the next block.
pub fn padding(size: u64) -> usize {
    let block = BLOCK as u64;
    usize::try_from(size.next_multiple_of(block) - size).unwrap_or(0)
}

fn common(entry: &Entry<'_>, kind: EntryType, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(entry.stat.st_mode & MODE_BITS);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(u64::try_from(entry.stat.st_mtime).unwrap_or(0));
    header.set_size(size);
    header
}

/// As much of `text` as fits; the whole of it is in an entry before, where it does not.
fn put(field: &mut [u8; SHORT_NAME], text: &[u8]) {
    let fits = text.len().min(SHORT_NAME);
    field[..fits].copy_from_slice(&text[..fits]);
}

#[cfg(test)]
#[path = "archive_test.rs"]
mod tests;
