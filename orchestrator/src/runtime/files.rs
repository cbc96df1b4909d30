//! Files that runtimes keep in the data directory for all sandboxes, and small queries about file systems.

use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt};
use std::path::{Path, PathBuf};

use shared_protocol::SANDBOX_USER;
use shared_protocol::runner::{MAX_SANDBOX_STATE_BYTES, SandboxState};

const HOSTS: &str = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n";

/// Creates a directory that only its owner can enter, with all missing parents.
pub fn private_directory(path: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// The files of `/etc` that say who and what is there, and who knows names of hosts. The users are the sandbox user, and the two that every
/// system has.
pub fn system_files() -> [(&'static str, String); 4] {
    let passwd = format!(
        "root:x:0:0:root:/root:/usr/sbin/nologin\n\
         sandbox:x:{SANDBOX_USER}:{SANDBOX_USER}:sandbox:/home/sandbox:/bin/bash\n\
         nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
    );
    let group = format!("root:x:0:\ntty:x:5:\nsandbox:x:{SANDBOX_USER}:\nnogroup:x:65534:\n");
    [("passwd", passwd), ("group", group), ("hosts", HOSTS.to_owned()), ("resolv.conf", super::netns::resolv_conf())]
}

/// Writes `hosts` to a file, for engines that take it by its path.
pub fn write_hosts(data_dir: &Path) -> io::Result<PathBuf> {
    let directory = data_dir.join("etc");
    private_directory(&directory)?;
    let path = directory.join("hosts");
    replace(&path, HOSTS.as_bytes(), 0o444)?;
    Ok(path)
}

/// Writes the embedded runner to a file whose path contains a hash of its content: a newer daemon writes another file, and
/// running sandboxes keep theirs.
pub fn write_runner(data_dir: &Path) -> io::Result<PathBuf> {
    use std::hash::{Hash as _, Hasher as _};
    let mut hasher = std::hash::DefaultHasher::new();
    crate::EMBEDDED_RUNNER.hash(&mut hasher);
    let directory = data_dir.join(format!("runner-{:016x}", hasher.finish()));
    private_directory(&directory)?;
    // `ps` shows this name in a sandbox.
    let path = directory.join("runner");
    if std::fs::read(&path).is_ok_and(|found| found == crate::EMBEDDED_RUNNER) {
        return Ok(path);
    }
    replace(&path, crate::EMBEDDED_RUNNER, 0o555)?;
    remove_others(data_dir, &directory);
    Ok(path)
}

/// Removes the runners of earlier versions. A running sandbox keeps its runner open without the name.
fn remove_others(data_dir: &Path, current: &Path) {
    for name in names(data_dir).unwrap_or_default().iter().filter(|name| name.starts_with("runner-")) {
        let path = data_dir.join(name);
        if path != current {
            let _ = std::fs::remove_dir_all(path);
        }
    }
}

/// Writes a file that an engine of another user can read, if it can reach the data directory.
pub fn write_public(data_dir: &Path, name: &str, content: &[u8]) -> io::Result<PathBuf> {
    let path = data_dir.join(name);
    replace(&path, content, 0o444)?;
    Ok(path)
}

/// Replaces a file atomically.
fn replace(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let fresh = path.with_extension("new");
    let _ = std::fs::remove_file(&fresh);
    let mut file = std::fs::File::options().create_new(true).write(true).mode(mode).open(&fresh)?;
    file.write_all(content)?;
    file.set_permissions(PermissionsExt::from_mode(mode))?;
    drop(file);
    std::fs::rename(fresh, path)
}

/// Makes the sandbox user the owner of a workspace on disk. It changes only the directory itself, because its content
/// already belongs to that user.
pub fn give(workspace: &Path, user: u32) -> io::Result<()> {
    std::os::unix::fs::lchown(workspace, Some(user), Some(user))
}

/// The names in a directory.
pub fn names(path: &Path) -> io::Result<Vec<String>> {
    std::fs::read_dir(path)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
}

/// Reads a state that the daemon wrote. It came from a sandbox, so it is checked again.
pub fn read_state(path: &Path) -> io::Result<SandboxState> {
    use std::io::Read as _;
    let mut content = Vec::new();
    std::fs::File::open(path)?.take(MAX_SANDBOX_STATE_BYTES as u64 + 1).read_to_end(&mut content)?;
    if content.len() > MAX_SANDBOX_STATE_BYTES {
        return Err(io::Error::other("the state of its shells is too large"));
    }
    let state: SandboxState = serde_json::from_slice(&content)?;
    state.check().map_err(|refused| io::Error::other(refused.message))?;
    Ok(state)
}

/// Removes a directory with everything in it. A missing one is no error.
pub fn remove_directory(path: &Path) -> io::Result<()> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// The used bytes of the file system that `path` is on.
pub fn used_bytes(path: &Path) -> Option<u64> {
    let status = nix::sys::statvfs::statvfs(path).ok()?;
    Some((status.blocks() - status.blocks_free()) * status.fragment_size())
}

/// The same as `used_bytes`, but only if the file system is a tmpfs.
pub fn used_tmpfs_bytes(path: &Path) -> Option<u64> {
    let kind = nix::sys::statfs::statfs(path).ok()?.filesystem_type();
    if kind == nix::sys::statfs::TMPFS_MAGIC { used_bytes(path) } else { None }
}
