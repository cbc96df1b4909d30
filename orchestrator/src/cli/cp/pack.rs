//! Writes the content of a local directory as a tar stream: links stay links, modes and times are kept, owners are left out.
//!
//! Sockets, FIFOs and devices are skipped and reported. A file that shrinks while it is read is an error.

use std::fs::{self, File, Metadata};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use tar::{Builder, EntryType, Header};

/// The deepest nesting of directories. The kernel's limit for a path is not far beyond.
const MAX_DEPTH: usize = 2000;
const MODE_BITS: u32 = 0o777;

pub struct Packed {
    /// The files that were skipped.
    pub skipped: Vec<PathBuf>,
}

/// The size of all files that can be read, for a progress bar.
pub fn measure(directory: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(directory) else { return 0 };
    let size = |entry: fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => measure(&entry.path()),
        Ok(metadata) if metadata.is_file() => metadata.len(),
        _ => 0,
    };
    entries.flatten().map(size).fold(0, u64::saturating_add)
}

pub fn pack(directory: &Path, to: &mut dyn Write) -> io::Result<Packed> {
    let mut packing = Packing { builder: Builder::new(to), skipped: Vec::new() };
    packing.directory(directory, Path::new(""), 0)?;
    packing.builder.finish()?;
    Ok(Packed { skipped: packing.skipped })
}

struct Packing<'a> {
    builder: Builder<&'a mut dyn Write>,
    skipped: Vec<PathBuf>,
}

impl Packing<'_> {
    fn directory(&mut self, path: &Path, name: &Path, depth: usize) -> io::Result<()> {
        if depth > MAX_DEPTH {
            return Err(at(path, io::Error::other("directories are nested too deeply")));
        }
        let mut names = Vec::new();
        for entry in fs::read_dir(path).map_err(|e| at(path, e))? {
            names.push(entry.map_err(|e| at(path, e))?.file_name());
        }
        // Sorted, so that the same directory always gives the same stream.
        names.sort();
        for child in names {
            self.entry(&path.join(&child), &name.join(&child), depth)?;
        }
        Ok(())
    }

    fn entry(&mut self, path: &Path, name: &Path, depth: usize) -> io::Result<()> {
        let metadata = fs::symlink_metadata(path).map_err(|e| at(path, e))?;
        let kind = metadata.file_type();
        if kind.is_dir() {
            let mut header = header(&metadata, EntryType::Directory, 0);
            self.builder.append_data(&mut header, name, io::empty()).map_err(|e| at(path, e))?;
            self.directory(path, name, depth + 1)
        } else if kind.is_symlink() {
            let target = fs::read_link(path).map_err(|e| at(path, e))?;
            let mut header = header(&metadata, EntryType::Symlink, 0);
            self.builder.append_link(&mut header, name, target).map_err(|e| at(path, e))
        } else if kind.is_file() {
            self.file(path, name)
        } else {
            self.skipped.push(path.to_owned());
            Ok(())
        }
    }

    fn file(&mut self, path: &Path, name: &Path) -> io::Result<()> {
        // If it has become a FIFO meanwhile, opening it must not wait; if it has become a link, it must not be followed.
        let flags = libc::O_NONBLOCK | libc::O_NOFOLLOW;
        let file = File::options().read(true).custom_flags(flags).open(path).map_err(|e| at(path, e))?;
        let metadata = file.metadata().map_err(|e| at(path, e))?;
        let mut header = header(&metadata, EntryType::Regular, metadata.len());
        let mut content = Exactly { file, left: metadata.len() };
        self.builder.append_data(&mut header, name, &mut content).map_err(|e| at(path, e))
    }
}

fn header(metadata: &Metadata, kind: EntryType, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(metadata.mode() & MODE_BITS);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(u64::try_from(metadata.mtime()).unwrap_or(0));
    header.set_size(size);
    header
}

fn at(path: &Path, error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::BrokenPipe {
        error
    } else {
        io::Error::new(error.kind(), format!("{}: {error}", path.display()))
    }
}

/// Reads exactly as many bytes as the header says. A file that grows is cut, a file that shrinks is an error.
struct Exactly {
    file: File,
    left: u64,
}

impl Read for Exactly {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let wanted = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        if wanted == 0 {
            return Ok(0);
        }
        match self.file.read(&mut buffer[..wanted])? {
            0 => Err(io::Error::other("the file became shorter while it was read")),
            read => {
                self.left -= read as u64;
                Ok(read)
            }
        }
    }
}
