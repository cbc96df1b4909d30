//! What the fuzzer of paths asserts; see `fuzz/`. The test replays its inputs.

use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::Path;

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};

use super::resolve::{FinalLink, MissingDirs, Resolved, Roots, resolve};

/// The most links that one input makes.
const MAX_LINKS: usize = 8;

/// No path leads out of the root, whatever links a sandbox has made, and every path leads where the kernel's own
/// `RESOLVE_IN_ROOT` leads.
///
/// The first line of an input is the path. Each further line is a link in the workspace: its name, a space, what it says.
pub fn path(bytes: &[u8]) {
    let place = tempfile::tempdir().expect("a temporary directory");
    let place = place.path().canonicalize().expect("our own directory");
    let (root, outside) = (place.join("root"), place.join("outside"));
    let workspace = root.join("ws");
    for folder in [workspace.join("a/b"), root.join("etc"), outside.clone()] {
        std::fs::create_dir_all(folder).expect("our own directory");
    }
    for file in [workspace.join("file"), root.join("etc/file"), outside.join("secret")] {
        std::fs::write(file, "content").expect("our own directory");
    }
    let mut lines = bytes.split(|byte| *byte == b'\n');
    let path = lines.next().unwrap_or_default();
    for line in lines.take(MAX_LINKS) {
        let space = line.iter().position(|byte| *byte == b' ').unwrap_or(line.len());
        let (name, text) = (&line[..space], line.get(space + 1..).unwrap_or_default());
        if !name.contains(&b'/') {
            let text = std::ffi::OsStr::from_bytes(text);
            let _ = symlink(text, workspace.join(std::ffi::OsStr::from_bytes(name)));
        }
    }

    let roots = Roots::new(&root, &workspace);
    for last in [FinalLink::Follow, FinalLink::Keep] {
        let Ok(resolved) = resolve(&roots, path, last, MissingDirs::Fail) else { continue };
        stays_below(&root, &resolved);
        let kernels = inode_by_kernel(&root, path, last);
        if let (Some(ours), Some(kernels)) = (&resolved.inode, kernels) {
            assert_eq!(ours.stat.st_ino, kernels, "{last:?}");
        }
    }
    if let Ok(resolved) = resolve(&roots, path, FinalLink::Follow, MissingDirs::Create) {
        stays_below(&root, &resolved);
    }
    let left: Vec<_> = std::fs::read_dir(&outside).expect("our own directory").flatten().collect();
    assert!(left.len() == 1 && std::fs::read(outside.join("secret")).is_ok_and(|text| text == b"content"), "{left:?}");
}

fn stays_below(root: &Path, resolved: &Resolved) {
    let is_below = |fd: BorrowedFd<'_>| {
        let place = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).expect("our own descriptor");
        assert!(place.starts_with(root), "{} is not below {}", place.display(), root.display());
    };
    is_below(resolved.parent());
    if let Some(inode) = &resolved.inode {
        is_below(inode.fd.as_fd());
    }
}

/// The inode that the kernel finds; `None` if it finds none, or does not have the call.
fn inode_by_kernel(root: &Path, path: &[u8], last: FinalLink) -> Option<u64> {
    let root = std::fs::File::open(root).ok()?;
    let path = if path.starts_with(b"/") { path.to_vec() } else { [b"/ws/", path].concat() };
    let flags = match last {
        FinalLink::Follow => OFlags::PATH,
        FinalLink::Keep => OFlags::PATH | OFlags::NOFOLLOW,
    };
    let rules = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let found = openat2(&root, path.as_slice(), flags | OFlags::CLOEXEC, Mode::empty(), rules).ok()?;
    rustix::fs::fstat(&found).ok().map(|stat| stat.st_ino)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fuzzers_inputs_are_replayed() {
        corpus::replay("path", path);
    }
}
