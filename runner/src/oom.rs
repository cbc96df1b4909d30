//! Tells whether the kernel killed a process of this sandbox because memory ran out, from the count of its cgroup.
//!
//! The kernel does not tell which command a killed process belonged to: it may be a child of a child, and its parent may have
//! gone on. So a kill counts for every command that runs at that time. If none runs, because the victim is in the background,
//! it counts for the next one.

use std::cell::Cell;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

/// The bytes to read: more than either version of the file has.
const COUNT_BYTES: usize = 1024;

/// Reads a cgroup's count of out-of-memory kills. If no file can be read, the count stays 0.
pub struct OomCounter {
    /// The file, kept open because the count is read after every command.
    file: Option<File>,
    /// The count that some command has reported.
    reported: Cell<u64>,
}

/// The count from which on kills belong to a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OomMark(u64);

impl OomCounter {
    pub fn new() -> Self {
        let cgroups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let mut files = candidates(&cgroups).into_iter().filter_map(|path| File::open(path).ok());
        Self::of(files.find(|file| read(file).is_some()))
    }

    fn of(file: Option<File>) -> Self {
        let counter = Self { file, reported: Cell::new(0) };
        counter.reported.set(counter.count());
        counter
    }

    /// The mark of a command that begins now: kills that no command has reported yet belong to it.
    pub fn mark(&self) -> OomMark {
        OomMark(self.reported.get())
    }

    /// Whether the kernel killed a process since the mark. The command that asks reports it.
    pub fn has_killed_since(&self, OomMark(before): OomMark) -> bool {
        let now = self.count();
        self.reported.set(now);
        now > before
    }

    fn count(&self) -> u64 {
        self.file.as_ref().and_then(read).unwrap_or(0)
    }
}

impl Default for OomCounter {
    fn default() -> Self {
        Self::new()
    }
}

/// The files that may hold the count: those of this process's cgroup, seen from outside or inside a cgroup namespace, v2 or v1.
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

/// The number after `oom_kill`, the name that both versions use.
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
    fn a_kill_counts_for_all_that_run_and_one_in_between_for_the_next() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let kills = |count: u32| std::fs::write(&path, format!("oom_kill {count}\n")).unwrap();
        kills(3);
        let counter = OomCounter::of(Some(File::open(&path).unwrap()));
        let (one, two) = (counter.mark(), counter.mark());
        assert!(!counter.has_killed_since(one), "what was before the runner is nobody's");
        kills(4);
        assert!(counter.has_killed_since(one) && counter.has_killed_since(two));
        let three = counter.mark();
        assert!(!counter.has_killed_since(three), "it is reported");
        kills(5);
        assert!(counter.has_killed_since(counter.mark()), "nothing ran when it came");
        assert!(!counter.has_killed_since(counter.mark()));
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
