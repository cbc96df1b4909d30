//! Counts the size of a workspace by a limited walk that opens only directories.
//!
//! A sandbox may change the workspace during the walk. Links are never followed, and each step starts from a directory that
//! is held open, so the walk cannot be led out of the workspace. It counts the space on disk; a file with two names counts
//! twice.

use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag};
use nix::sys::stat::{Mode, SFlag, fstatat};

/// The most directories that are open at once.
const MAX_DEPTH: usize = 64;
/// The unit of `st_blocks`, in bytes.
const BLOCK_BYTES: u64 = 512;

/// The number of entries that a walk may still look at, shared by all workspaces of a listing.
#[derive(Debug)]
pub struct Budget(pub usize);

/// The bytes of everything below a directory. `None` if the budget, the depth or a permission did not suffice.
pub fn used_bytes(path: &Path, budget: &mut Budget) -> Option<u64> {
    let root = OwnedFd::from(std::fs::File::open(path).ok()?);
    content(&root, c".", budget, 0)
}

fn content(parent: &OwnedFd, name: &std::ffi::CStr, budget: &mut Budget, depth: usize) -> Option<u64> {
    if depth == MAX_DEPTH {
        return None;
    }
    let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let mut dir = match Dir::openat(parent.as_fd(), name, flags, Mode::empty()) {
        Ok(dir) => dir,
        // The entry is gone, or is no longer a directory.
        Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => return Some(0),
        Err(_) => return None,
    };
    let held = dir.as_fd().try_clone_to_owned().ok()?;
    let mut sum = 0u64;
    for entry in dir.iter() {
        let entry = entry.ok()?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        budget.0 = budget.0.checked_sub(1)?;
        let Ok(stat) = fstatat(&held, name, AtFlags::AT_SYMLINK_NOFOLLOW) else { continue };
        sum = sum.saturating_add(u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(BLOCK_BYTES));
        if SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits()) == SFlag::S_IFDIR {
            sum = sum.saturating_add(content(&held, name, budget, depth + 1)?);
        }
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_counts_what_is_inside_and_follows_no_link() {
        let folder = tempfile::tempdir().unwrap();
        let (inside, outside) = (folder.path().join("in"), folder.path().join("out"));
        std::fs::create_dir_all(inside.join("d")).unwrap();
        std::fs::create_dir(&outside).unwrap();
        std::fs::write(outside.join("large"), vec![1; 1 << 20]).unwrap();
        std::fs::write(inside.join("d/f"), vec![1; 64 << 10]).unwrap();
        std::os::unix::fs::symlink(&outside, inside.join("link")).unwrap();
        std::os::unix::fs::symlink("/", inside.join("d/root")).unwrap();
        nix::unistd::mkfifo(&inside.join("fifo"), Mode::S_IRWXU).unwrap();
        let used = used_bytes(&inside, &mut Budget(100)).unwrap();
        assert!((64 << 10..512 << 10).contains(&used), "{used}");
    }

    #[test]
    fn it_gives_up_rather_than_go_on_for_ever() {
        let folder = tempfile::tempdir().unwrap();
        for n in 0..20 {
            std::fs::write(folder.path().join(n.to_string()), "").unwrap();
        }
        assert!(used_bytes(folder.path(), &mut Budget(20)).is_some());
        assert_eq!(used_bytes(folder.path(), &mut Budget(19)), None);
        std::fs::create_dir_all(folder.path().join("d/".repeat(100))).unwrap();
        assert_eq!(used_bytes(folder.path(), &mut Budget(1000)), None);
    }
}
