//! The file of the audit log: lines are added at its end, and at a given size it is renamed and a new one is begun.
//!
//! ```text
//!  audit.log ─▶ audit.log.1 ─▶ audit.log.2 ─▶ … ─▶ removed after `keep`
//! ```
//!
//! A line is in the file as a whole or not at all. Only the daemon's user can read the files.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use crate::config::AuditConfig;

pub struct RotatingFile {
    config: AuditConfig,
    open: Option<(File, u64)>,
}

impl RotatingFile {
    /// The file is opened by the first write, so a file that cannot be opened now may be later.
    pub fn new(config: AuditConfig) -> Self {
        Self { config, open: None }
    }

    /// Adds a line. After an error the file is opened again by the next line.
    pub fn add(&mut self, line: &[u8]) -> io::Result<()> {
        let added = self.try_add(line);
        if added.is_err() {
            self.open = None;
        }
        added
    }

    fn try_add(&mut self, line: &[u8]) -> io::Result<()> {
        let bytes = u64::try_from(line.len()).unwrap_or(u64::MAX);
        if self.open.as_ref().is_some_and(|(_, size)| size.saturating_add(bytes) > self.config.max_bytes) {
            self.open = None;
            self.rotate()?;
        }
        let (file, size) = match &mut self.open {
            Some(open) => open,
            None => {
                let (file, size) = self.open_file()?;
                if size > 0 && size.saturating_add(bytes) > self.config.max_bytes {
                    drop(file);
                    self.rotate()?;
                    self.open.insert(self.open_file()?)
                } else {
                    self.open.insert((file, size))
                }
            }
        };
        match file.write_all(line) {
            Ok(()) => {
                *size = size.saturating_add(bytes);
                Ok(())
            }
            Err(error) => {
                // A full disk may have taken a part of the line.
                let _ = file.set_len(*size);
                Err(error)
            }
        }
    }

    fn open_file(&self) -> io::Result<(File, u64)> {
        let mut options = OpenOptions::new();
        options.append(true).create(true).mode(0o600).custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC);
        let file = options.open(&self.config.path)?;
        let size = file.metadata()?.len();
        Ok((file, size))
    }

    fn numbered(&self, number: u64) -> PathBuf {
        let mut name = self.config.path.clone().into_os_string();
        name.push(format!(".{number}"));
        name.into()
    }

    /// Moves every file one number up; the last one is replaced.
    fn rotate(&self) -> io::Result<()> {
        let keep = self.config.keep;
        if keep == 0 {
            return std::fs::remove_file(&self.config.path);
        }
        for number in (1..keep).rev() {
            match std::fs::rename(self.numbered(number), self.numbered(number + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        std::fs::rename(&self.config.path, self.numbered(1))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn file(max_bytes: u64, keep: u64) -> (tempfile::TempDir, RotatingFile) {
        let folder = tempfile::tempdir().unwrap();
        let config = AuditConfig { path: folder.path().join("audit.log"), max_bytes, keep };
        (folder, RotatingFile::new(config))
    }

    fn files(folder: &tempfile::TempDir) -> Vec<(String, String)> {
        let read = |entry: io::Result<std::fs::DirEntry>| {
            let path = entry.unwrap().path();
            (path.file_name().unwrap().to_str().unwrap().to_owned(), std::fs::read_to_string(path).unwrap())
        };
        let mut found: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(read).collect();
        found.sort();
        found
    }

    #[test]
    fn it_begins_a_new_file_at_its_size_and_keeps_so_many_old_ones() {
        let (folder, mut log) = file(10, 2);
        for number in 0..7 {
            log.add(format!("line{number}\n").as_bytes()).unwrap();
            // As after a restart of the daemon.
            log = RotatingFile::new(log.config.clone());
        }
        let expected = [("audit.log", "line6\n"), ("audit.log.1", "line5\n"), ("audit.log.2", "line4\n")];
        let expected = expected.map(|(name, text)| (name.to_owned(), text.to_owned()));
        assert_eq!(files(&folder), expected);
        let mode = std::fs::metadata(folder.path().join("audit.log")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn without_old_files_it_still_stays_within_its_size() {
        let (folder, mut log) = file(12, 0);
        for number in 0..5 {
            log.add(format!("line{number}\n").as_bytes()).unwrap();
        }
        assert_eq!(files(&folder), [("audit.log".to_owned(), "line4\n".to_owned())]);
    }

    #[test]
    fn what_fails_is_tried_again_with_the_next_line() {
        let (folder, mut log) = file(100, 1);
        std::fs::create_dir(folder.path().join("audit.log")).unwrap();
        assert!(log.add(b"lost\n").is_err());
        std::fs::remove_dir(folder.path().join("audit.log")).unwrap();
        log.add(b"kept\n").unwrap();
        assert_eq!(files(&folder), [("audit.log".to_owned(), "kept\n".to_owned())]);
    }
}
