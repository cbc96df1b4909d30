//! What a path leads to, found out without asking anybody.
//!
//! Some files of `/proc` in a sandbox are served by the runner itself. A program can make any path lead there, and a plain `stat` of
//! such a file by the runner would wait for an answer of the runner.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, StatxFlags};

fn kind(path: &Path) -> Option<FileType> {
    let status = rustix::fs::statx(CWD, path, AtFlags::STATX_DONT_SYNC, StatxFlags::TYPE).ok()?;
    Some(FileType::from_raw_mode(status.stx_mode.into()))
}

pub fn is_dir(path: &Path) -> bool {
    kind(path) == Some(FileType::Directory)
}

pub fn is_file(path: &Path) -> bool {
    kind(path) == Some(FileType::RegularFile)
}

/// The text of a file that must be one, and no link, and no larger than `max_bytes`. Opening a pipe does not wait for its other end.
pub fn read_text(path: &Path, max_bytes: u64) -> io::Result<String> {
    let status = rustix::fs::statx(
        CWD,
        path,
        AtFlags::STATX_DONT_SYNC | AtFlags::SYMLINK_NOFOLLOW,
        StatxFlags::TYPE | StatxFlags::SIZE,
    )?;
    if FileType::from_raw_mode(status.stx_mode.into()) != FileType::RegularFile || status.stx_size > max_bytes {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut text = String::new();
    let file = File::options().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
    file.take(max_bytes).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_file_that_is_no_link_and_not_too_large_is_read() {
        let home = tempfile::tempdir().unwrap();
        let path = |name: &str| home.path().join(name);
        std::fs::write(path("file"), "text").unwrap();
        std::os::unix::fs::symlink("file", path("link")).unwrap();
        nix::unistd::mkfifo(&path("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(read_text(&path("file"), 4).unwrap(), "text");
        for (name, max_bytes) in [("file", 3), ("link", 4), ("pipe", 4), ("missing", 4), ("", 4)] {
            assert!(read_text(&path(name), max_bytes).is_err(), "{name}");
        }
        assert!(is_file(&path("link")) && is_dir(home.path()));
        assert!(!is_file(&path("pipe")) && !is_dir(&path("file")) && !is_dir(&path("missing")));
    }
}
