//! Packs a directory's content into a tar stream.
//!
//! The format is GNU's, with its long names. Paths are relative to the directory, links stay links, and the bytes of names are
//! kept. Owners are written as 0, since they mean nothing elsewhere. FIFOs, sockets and devices are left out. If a file changes
//! while it is packed, it is cut or filled with zeros to the size in its header, so that the stream as a whole stays valid.
//!
//! A tree with an unreadable file is refused before the first byte: an archive that silently lacks files is worse than none.

use std::io::{self, Read, Write};

use nix::errno::Errno;
use nix::fcntl::AtFlags;
use nix::unistd::{AccessFlags, faccessat};
use shared_protocol::ErrorBody;
use shared_protocol::runner::FileKind;
use tar::{EntryType, Header};
use tar_unpack::{BLOCK, padding};

use super::error::{At, from_errno};
use super::inode::{self, MODE_BITS};
use super::protocol::{Content, DataWriter, MAX_FRAME, ReplyWriter};
use super::resolve::{FinalLink, MissingDirs, Roots, resolve};
use super::tree::{self, Descend, Entry, Visitor};

/// The number of zero blocks that end an archive.
const END_BLOCKS: usize = 2;
/// The most bytes of a name or a link that fit into a header.
const SHORT_NAME: usize = 100;
/// The name of an entry that holds the long name of the next one, as in GNU tar.
const LONG_NAME: &[u8] = b"././@LongLink";

/// Packs the directory at `path` into the reply.
pub fn pack(roots: &Roots, path: &[u8], reply: &mut ReplyWriter<'_>) -> Result<(), ErrorBody> {
    let inode = resolve(roots, path, FinalLink::Follow, MissingDirs::Fail)?.inode(path)?;
    tree::walk(inode.open_directory(path)?, path, &mut Check { asked: path, reply })?;
    reply.head(200, Content::Tar, None).at(path)?;
    let mut packing = Packing { asked: path, to: DataWriter::new(reply), buffer: vec![0; MAX_FRAME] };
    tree::walk(inode.open_directory(path)?, path, &mut packing)?;
    packing.to.write_all(&[0; BLOCK * END_BLOCKS]).at(path)?;
    packing.to.flush().at(path)?;
    reply.end().at(path)
}

/// Checks that everything can be read.
struct Check<'a, 'b> {
    asked: &'a [u8],
    reply: &'a mut ReplyWriter<'b>,
}

impl Visitor for Check<'_, '_> {
    fn entry(&mut self, entry: &Entry<'_>) -> Result<Descend, ErrorBody> {
        self.reply.report_progress().at(self.asked)?;
        if inode::kind(entry.stat) == FileKind::File {
            match faccessat(entry.dir, entry.name, AccessFlags::R_OK, AtFlags::empty()) {
                Ok(()) | Err(Errno::ENOENT) => {}
                Err(errno) => return Err(from_errno(&tree::below(self.asked, entry.path, b""), errno)),
            }
        }
        Ok(Descend::Enter)
    }

    fn not_entered(&mut self, path: &[u8], why: Errno) -> Result<(), ErrorBody> {
        Err(from_errno(&tree::below(self.asked, path, b""), why))
    }
}

/// Writes all entries.
struct Packing<'a, 'b, 'c> {
    asked: &'a [u8],
    to: DataWriter<'b, 'c>,
    buffer: Vec<u8>,
}

impl Visitor for Packing<'_, '_, '_> {
    fn entry(&mut self, entry: &Entry<'_>) -> Result<Descend, ErrorBody> {
        self.to.reply.report_progress().at(self.asked)?;
        let shown = || tree::below(self.asked, entry.path, b"");
        match inode::kind(entry.stat) {
            FileKind::Directory => {
                let path = [entry.path, b"/"].concat();
                self.header(entry, EntryType::Directory, &path, 0).at(self.asked)?;
            }
            FileKind::Symlink => match inode::link_text(entry.dir, entry.name) {
                Ok(text) => self.link(entry, &text).at(self.asked)?,
                Err(Errno::ENOENT | Errno::EINVAL) => {}
                Err(errno) => return Err(from_errno(&shown(), errno)),
            },
            FileKind::File => match inode::open_regular(entry.dir, entry.name, entry.stat) {
                Ok(file) => self.file(entry, file).at(&shown())?,
                // The file was removed or replaced since.
                Err(Errno::ENOENT | Errno::ESTALE | Errno::ELOOP) => {}
                Err(errno) => return Err(from_errno(&shown(), errno)),
            },
            FileKind::Fifo | FileKind::Socket | FileKind::BlockDevice | FileKind::CharDevice => {}
        }
        Ok(Descend::Enter)
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
        let size = inode::size(entry.stat);
        self.header(entry, EntryType::Regular, entry.path, size)?;
        let mut content = file.chain(io::repeat(0)).take(size);
        loop {
            match content.read(&mut self.buffer)? {
                0 => return self.pad(size),
                read => self.to.write_all(&self.buffer[..read])?,
            }
        }
    }

    /// If the name does not fit into a header, writes an entry with the long name of the next entry.
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

/// Copies as much of `text` as fits. If not all of it fits, the entry before has the whole text.
fn put(field: &mut [u8; SHORT_NAME], text: &[u8]) {
    let fits = text.len().min(SHORT_NAME);
    field[..fits].copy_from_slice(&text[..fits]);
}

#[cfg(test)]
#[path = "pack_test.rs"]
mod tests;
