//! A temporary file beside the file that it will replace. It is removed unless it gets its final name.

use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::fd::BorrowedFd;
use std::time::SystemTime;

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat, renameat};
use nix::sys::stat::{Mode, fchmod};
use nix::unistd::{UnlinkatFlags, unlinkat};

/// How each name begins, and the number of digits after that.
const PREFIX: &str = ".cove-";
const DIGITS: usize = 16;
/// The number of names that are tried. They are random, so one is enough unless somebody takes them on purpose.
const MAX_TRIES: usize = 8;
/// The mode until the file is complete: only its owner can read it.
const UNFINISHED_MODE: Mode = Mode::S_IRUSR.union(Mode::S_IWUSR);

/// A random name. It need not be secret, because the file is created only if the name is free.
pub fn name() -> Vec<u8> {
    let mut hasher = RandomState::new().build_hasher();
    // A forked child has the same random state as its siblings.
    hasher.write_u32(std::process::id());
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    hasher.write_u128(now.as_nanos());
    format!("{PREFIX}{:0DIGITS$x}", hasher.finish()).into_bytes()
}

/// Whether this is such a name.
pub fn is_name(name: &[u8]) -> bool {
    let digits = name.strip_prefix(PREFIX.as_bytes()).unwrap_or_default();
    digits.len() == DIGITS && digits.iter().all(u8::is_ascii_hexdigit)
}

pub struct Temporary<'a> {
    dir: BorrowedFd<'a>,
    name: Vec<u8>,
    pub file: File,
    kept: bool,
}

impl<'a> Temporary<'a> {
    pub fn create(dir: BorrowedFd<'a>) -> Result<Self, Errno> {
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        for _ in 0..MAX_TRIES {
            let name = name();
            match openat(dir, name.as_slice(), flags, UNFINISHED_MODE) {
                Err(Errno::EEXIST) => {}
                other => return other.map(|fd| Self { dir, name, file: File::from(fd), kept: false }),
            }
        }
        Err(Errno::EEXIST)
    }

    /// Gives the file its mode and its final name, and replaces an existing file, in one step.
    pub fn persist(mut self, name: &[u8], mode: u32) -> Result<(), Errno> {
        fchmod(&self.file, Mode::from_bits_truncate(mode))?;
        renameat(self.dir, self.name.as_slice(), self.dir, name)?;
        self.kept = true;
        Ok(())
    }
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        if !self.kept {
            let _ = unlinkat(self.dir, self.name.as_slice(), UnlinkatFlags::NoRemoveDir);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_temporary_name_is_known_as_one() {
        assert!(is_name(&name()));
        for other in
            [&b"a"[..], b".cove-", b".cove-0123456789abcde", b".cove-0123456789abcdefg", b".cove-0123456789abcdeg"]
        {
            assert!(!is_name(other), "{}", String::from_utf8_lossy(other));
        }
    }
}
