//! Sets the limit of processes in a sandbox with its own kernel, such as gVisor. The host counts the threads of that kernel
//! and not the sandbox's processes, so the sandbox's first process sets the exact limit.
//!
//! The limit is set before anything is served, in the runner's own cgroup, which commands cannot write to.

use std::io;
use std::path::{Path, PathBuf};

/// The limit files of the whole sandbox's cgroup, version 1 and 2.
const LIMIT_FILES: [&str; 2] = ["/sys/fs/cgroup/pids/pids.max", "/sys/fs/cgroup/pids.max"];

/// Sets the limit. If that fails, the host's limit, which is higher, still holds.
pub fn set(max: u64) -> io::Result<()> {
    set_in(&LIMIT_FILES.map(PathBuf::from), max)
}

fn set_in(files: &[PathBuf], max: u64) -> io::Result<()> {
    let there = |path: &&PathBuf| path.exists();
    let file = files.iter().find(there).map(PathBuf::as_path);
    let file: &Path = file.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "there is no pids.max"))?;
    // The file is never created: a plain file with that name would limit nothing.
    let mut file = std::fs::OpenOptions::new().write(true).open(file)?;
    io::Write::write_all(&mut file, max.to_string().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_that_is_there_is_set_and_none_is_made() {
        let directory = tempfile::tempdir().unwrap();
        let files = ["v1", "v2"].map(|name| directory.path().join(name));
        assert_eq!(set_in(&files, 7).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(!files[0].exists());
        std::fs::write(&files[1], "").unwrap();
        set_in(&files, 7).unwrap();
        assert_eq!(std::fs::read_to_string(&files[1]).unwrap(), "7");
    }
}
