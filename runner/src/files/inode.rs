//! A found file, directory or other inode: its kind, its description for clients, and how to open it.
//!
//! Only regular files and directories are opened: opening a FIFO waits for another process, and opening a device may have
//! any effect.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;

use base64::Engine;
use nix::errno::Errno;
use nix::fcntl::{OFlag, openat, readlinkat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat};
use shared_protocol::ErrorBody;
use shared_protocol::runner::{FileKind, FileView};

use super::error::{from_errno, invalid, shown};

/// All bits that `chmod` can set.
pub const MODE_BITS: u32 = 0o7777;
/// The mode bits that a client can set: all except setuid, setgid and sticky.
pub const PERMISSION_BITS: u32 = 0o777;

/// An inode held by an `O_PATH` descriptor: it was found, but not opened.
pub struct Inode {
    pub fd: OwnedFd,
    pub stat: FileStat,
}

/// The kind of an inode.
pub fn kind(stat: &FileStat) -> FileKind {
    match SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits()) {
        SFlag::S_IFDIR => FileKind::Directory,
        SFlag::S_IFLNK => FileKind::Symlink,
        SFlag::S_IFIFO => FileKind::Fifo,
        SFlag::S_IFSOCK => FileKind::Socket,
        SFlag::S_IFBLK => FileKind::BlockDevice,
        SFlag::S_IFCHR => FileKind::CharDevice,
        _ => FileKind::File,
    }
}

pub fn is_directory(stat: &FileStat) -> bool {
    kind(stat) == FileKind::Directory
}

pub fn is_symlink(stat: &FileStat) -> bool {
    kind(stat) == FileKind::Symlink
}

pub fn same_file(a: &FileStat, b: &FileStat) -> bool {
    (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino)
}

pub fn size(stat: &FileStat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

/// The name of a kind, for an error.
pub fn kind_name(kind: FileKind) -> &'static str {
    match kind {
        FileKind::File => "a regular file",
        FileKind::Directory => "a directory",
        FileKind::Symlink => "a symbolic link",
        FileKind::Fifo => "a FIFO",
        FileKind::Socket => "a socket",
        FileKind::BlockDevice => "a block device",
        FileKind::CharDevice => "a character device",
    }
}

/// The target of the symbolic link `name` below `dir`, or of `dir` itself if the name is empty.
pub fn link_text(dir: BorrowedFd<'_>, name: &[u8]) -> Result<Vec<u8>, Errno> {
    readlinkat(dir, name).map(OsStringExt::into_vec)
}

/// The description of an inode for a client.
pub fn view(path: &[u8], stat: &FileStat, link_text: Option<&[u8]>) -> FileView {
    let exact = std::str::from_utf8(path);
    FileView {
        path: String::from_utf8_lossy(path).into_owned(),
        path_base64: exact.is_err().then(|| base64::engine::general_purpose::STANDARD.encode(path)),
        kind: kind(stat),
        size: size(stat),
        mode: stat.st_mode & MODE_BITS,
        uid: stat.st_uid,
        gid: stat.st_gid,
        mtime_ms: stat.st_mtime.saturating_mul(1000).saturating_add(stat.st_mtime_nsec / 1_000_000),
        symlink_target: link_text.map(|text| String::from_utf8_lossy(text).into_owned()),
    }
}

impl Inode {
    pub fn view(&self, path: &[u8]) -> Result<FileView, ErrorBody> {
        let text = match kind(&self.stat) {
            FileKind::Symlink => Some(link_text(self.fd.as_fd(), b"").map_err(|e| from_errno(path, e))?),
            _ => None,
        };
        Ok(view(path, &self.stat, text.as_deref()))
    }

    /// Opens a directory to read its names or to walk from it.
    pub fn open_directory(&self, path: &[u8]) -> Result<OwnedFd, ErrorBody> {
        match kind(&self.stat) {
            FileKind::Directory => open_directory(self.fd.as_fd(), b".").map_err(|e| from_errno(path, e)),
            other => Err(invalid(format!("{}: it is {}, not a directory", shown(path), kind_name(other)))),
        }
    }
}

/// Opens a directory to read its names. A link is an error and is not followed.
pub fn open_directory(dir: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    openat(dir, name, flags, Mode::empty())
}

/// Opens the regular file that `stat` describes. If another file has the name by now, the error is ESTALE. If that is a FIFO
/// or a device, the flags keep the call from waiting and from getting a controlling terminal.
pub fn open_regular(dir: BorrowedFd<'_>, name: &[u8], stat: &FileStat) -> Result<File, Errno> {
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let fd = openat(dir, name, flags, Mode::empty())?;
    if same_file(&fstat(&fd)?, stat) { Ok(File::from(fd)) } else { Err(Errno::ESTALE) }
}
