//! Whether the kernel killed a process of this sandbox for memory, by the count that its cgroup keeps.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

/// More than either file has.
const COUNT_BYTES: usize = 1024;

/// Reads a cgroup's count of out-of-memory kills. Without a readable one it stays at 0.
pub struct OomCounter {
    /// Kept open: the count is taken before every command.
    file: Option<File>,
}

impl OomCounter {
    pub fn new() -> Self {
        let cgroups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let mut files = candidates(&cgroups).into_iter().filter_map(|path| File::open(path).ok());
        Self { file: files.find(|file| read(file).is_some()) }
    }

    pub fn count(&self) -> u64 {
        self.file.as_ref().and_then(read).unwrap_or(0)
    }
}

impl Default for OomCounter {
    fn default() -> Self {
        Self::new()
    }
}

/// Where the count may be: this process's own cgroup, seen from outside or from inside a cgroup namespace, v2 or v1.
fn candidates(cgroups: &str) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    for line in cgroups.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(id), Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next()) else { continue };
        let path = path.trim_start_matches('/');
        if id == "0" && controllers.is_empty() {
            paths.push(Path::new("/sys/fs/cgroup").join(path).join("memory.events"));
            paths.push("/sys/fs/cgroup/memory.events".into());
        } else if controllers.split(',').any(|c| c == "memory") {
            paths.push(Path::new("/sys/fs/cgroup/memory").join(path).join("memory.oom_control"));
            paths.push("/sys/fs/cgroup/memory/memory.oom_control".into());
        }
    }
    paths
}

/// The number behind `oom_kill`, the name that both versions use.
fn read(file: &File) -> Option<u64> {
    let mut bytes = [0; COUNT_BYTES];
    let count = file.read_at(&mut bytes, 0).ok()?;
    let text = std::str::from_utf8(&bytes[..count]).ok()?;
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_are_looked_for_outside_and_inside_a_namespace() {
        assert_eq!(
            candidates("4:memory:/box\n0::/\n"),
            [
                PathBuf::from("/sys/fs/cgroup/memory/box/memory.oom_control"),
                "/sys/fs/cgroup/memory/memory.oom_control".into(),
                "/sys/fs/cgroup/memory.events".into(),
                "/sys/fs/cgroup/memory.events".into(),
            ]
        );
    }

    #[test]
    fn the_count_is_read_from_either_format() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("f");
        std::fs::write(&file, "low 0\nmax 3\noom 2\noom_kill 1\noom_group_kill 9\n").unwrap();
        assert_eq!(read(&File::open(&file).unwrap()), Some(1));
        std::fs::write(&file, "oom_kill_disable 0\nunder_oom 0\noom_kill 7\n").unwrap();
        assert_eq!(read(&File::open(&file).unwrap()), Some(7));
    }
}
