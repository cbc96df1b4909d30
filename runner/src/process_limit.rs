//! The sandbox's limit of processes where its kernel is its own, as in gVisor: the one outside counts that kernel's threads,
//! not the sandbox's processes, so whoever makes the sandbox leaves the exact limit to its first process.
//!
//! The limit is written before anything is served. It is that of the runner's own cgroup, which commands cannot write to.

use std::io;
use std::path::{Path, PathBuf};

/// Where a kernel of the sandbox's own shows the cgroup that everything in it is in, version 1 and 2.
const LIMIT_FILES: [&str; 2] = ["/sys/fs/cgroup/pids/pids.max", "/sys/fs/cgroup/pids.max"];

/// Says why it could not be set. There is then still the limit of whoever made the sandbox, which is wider.
pub fn set(max: u64) -> io::Result<()> {
    set_in(&LIMIT_FILES.map(PathBuf::from), max)
}

fn set_in(files: &[PathBuf], max: u64) -> io::Result<()> {
    let there = |path: &&PathBuf| path.exists();
    let file = files.iter().find(there).map(PathBuf::as_path);
    let file: &Path = file.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "there is no pids.max"))?;
    // Never made anew: a plain file of that name would limit nothing.
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
