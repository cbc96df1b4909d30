//! One thing in the filesystem that has been found: what it is, how it looks on the wire, and how it may be opened.
//!
//! It refuses to open anything but a regular file or a directory: opening a FIFO waits for another process, and opening a
//! device may do anything at all.

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
/// Those that we set: a client has no business with setuid, setgid and sticky.
pub const PERMISSION_BITS: u32 = 0o777;

/// Held by an `O_PATH` descriptor: it can be looked at, and walked from, and nothing has been asked of it yet.
pub struct Node {
    pub fd: OwnedFd,
    pub stat: FileStat,
}

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

/// What a kind is called in an error.
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

/// What a symbolic link says, asked of the link itself: `name` below `dir`, or `dir` itself where the name is empty.
pub fn link_text(dir: BorrowedFd<'_>, name: &[u8]) -> Result<Vec<u8>, Errno> {
    readlinkat(dir, name).map(OsStringExt::into_vec)
}

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

impl Node {
    pub fn view(&self, path: &[u8]) -> Result<FileView, ErrorBody> {
        let text = match kind(&self.stat) {
            FileKind::Symlink => Some(link_text(self.fd.as_fd(), b"").map_err(|e| from_errno(path, e))?),
            _ => None,
        };
        Ok(view(path, &self.stat, text.as_deref()))
    }

    /// For reading its names, or for walking from.
    pub fn open_directory(&self, path: &[u8]) -> Result<OwnedFd, ErrorBody> {
        match kind(&self.stat) {
            FileKind::Directory => open_directory(self.fd.as_fd(), b".").map_err(|e| from_errno(path, e)),
            other => Err(invalid(format!("{}: it is {}, not a directory", shown(path), kind_name(other)))),
        }
    }
}

/// Opens a directory for reading its names. A link is an error, not a way.
pub fn open_directory(dir: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    openat(dir, name, flags, Mode::empty())
}

/// Opens the regular file that `stat` was taken of. Where the name has come to mean another one since, that is ESTALE; and
/// should that one be a FIFO or a device, the flags keep the open from waiting for it or being given a terminal.
pub fn open_regular(dir: BorrowedFd<'_>, name: &[u8], stat: &FileStat) -> Result<File, Errno> {
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let fd = openat(dir, name, flags, Mode::empty())?;
    if same_file(&fstat(&fd)?, stat) { Ok(File::from(fd)) } else { Err(Errno::ESTALE) }
}
