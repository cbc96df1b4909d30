//! What runtimes keep in the data directory for all sandboxes, and small looks at file systems.

use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt};
use std::path::{Path, PathBuf};

/// Users of the host image: who works there, and the two that every system has.
const PASSWD: &str = "root:x:0:0:root:/root:/usr/sbin/nologin\n\
                      sandbox:x:1000:1000:sandbox:/home/sandbox:/bin/bash\n\
                      nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n";
const GROUP: &str = "root:x:0:\ntty:x:5:\nsandbox:x:1000:\nnogroup:x:65534:\n";
const HOSTS: &str = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n";

pub fn shared_directory(data_dir: &Path) -> PathBuf {
    data_dir.join("etc")
}

/// Open to its owner alone, made with all that is missing above it.
pub fn private_directory(path: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

pub fn write_shared(data_dir: &Path) -> io::Result<()> {
    let directory = shared_directory(data_dir);
    private_directory(&directory)?;
    for (name, text) in [("passwd", PASSWD), ("group", GROUP), ("hosts", HOSTS)] {
        replace(&directory.join(name), text.as_bytes(), 0o444)?;
    }
    Ok(())
}

/// The embedded runner as a file, named by its content: a newer daemon writes another, and running sandboxes keep theirs.
pub fn write_runner(data_dir: &Path) -> io::Result<PathBuf> {
    use std::hash::{Hash as _, Hasher as _};
    let mut hasher = std::hash::DefaultHasher::new();
    crate::EMBEDDED_RUNNER.hash(&mut hasher);
    let directory = data_dir.join(format!("runner-{:016x}", hasher.finish()));
    private_directory(&directory)?;
    // The name is what `ps` shows in a sandbox.
    let path = directory.join("runner");
    if std::fs::read(&path).is_ok_and(|found| found == crate::EMBEDDED_RUNNER) {
        return Ok(path);
    }
    replace(&path, crate::EMBEDDED_RUNNER, 0o555)?;
    remove_others(data_dir, &directory);
    Ok(path)
}

/// Those of earlier versions. Sandboxes that run keep theirs without its name.
fn remove_others(data_dir: &Path, current: &Path) {
    for name in names(data_dir).unwrap_or_default().iter().filter(|name| name.starts_with("runner-")) {
        let path = data_dir.join(name);
        if path != current {
            let _ = std::fs::remove_dir_all(path);
        }
    }
}

/// A file that an engine of another user may read, where it comes to the data directory at all.
pub fn write_public(data_dir: &Path, name: &str, content: &[u8]) -> io::Result<PathBuf> {
    let path = data_dir.join(name);
    replace(&path, content, 0o444)?;
    Ok(path)
}

/// Whole or not at all.
fn replace(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let fresh = path.with_extension("new");
    let _ = std::fs::remove_file(&fresh);
    let mut file = std::fs::File::options().create_new(true).write(true).mode(mode).open(&fresh)?;
    file.write_all(content)?;
    file.set_permissions(PermissionsExt::from_mode(mode))?;
    drop(file);
    std::fs::rename(fresh, path)
}

/// Makes the sandboxes' user the owner of a workspace, as he is on disk. Only of the directory itself: what is in it is his
/// already.
pub fn give(workspace: &Path, user: u32) -> io::Result<()> {
    std::os::unix::fs::lchown(workspace, Some(user), Some(user))
}

/// Names in a directory.
pub fn names(path: &Path) -> io::Result<Vec<String>> {
    std::fs::read_dir(path)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
}

/// What is used of the file system that `path` is on.
pub fn used_bytes(path: &Path) -> Option<u64> {
    let status = nix::sys::statvfs::statvfs(path).ok()?;
    Some((status.blocks() - status.blocks_free()) * status.fragment_size())
}

/// The same, where that is a tmpfs.
pub fn used_tmpfs_bytes(path: &Path) -> Option<u64> {
    let kind = nix::sys::statfs::statfs(path).ok()?.filesystem_type();
    if kind == nix::sys::statfs::TMPFS_MAGIC { used_bytes(path) } else { None }
}
