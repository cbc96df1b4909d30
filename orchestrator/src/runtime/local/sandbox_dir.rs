//! The directory of one sandbox on the host, `sandboxes/ID`, and the record in it.
//!
//! `record.json` is written before any other part of a sandbox exists, so everything that a crash leaves can be found and
//! removed.

use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use shared_protocol::SessionId;
use shared_protocol::runner::SandboxState;

use super::files;
use super::images::KeptImage;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxRecord {
    /// The number of the sandbox's block of user ids.
    pub block: u32,
    /// The first process. Absent until the sandbox runs.
    pub process: Option<ProcessRecord>,
    /// What its disk has from the snapshot that it was made from, in bytes.
    #[serde(default)]
    pub inherited: u64,
    /// What it was made from. The image's name may mean another one by now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<KeptImage>,
    /// What the daemon told its programs about how many threads to use, unless its image or its client did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<usize>,
    /// Whether it was stopped: then it has no process and no block.
    #[serde(default)]
    pub is_stopped: bool,
}

/// A process, identified so that no other process with the same number can be taken for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessRecord {
    pub pid: i32,
    /// The start time in clock ticks since boot.
    pub started: u64,
    pub boot_id: String,
}

impl ProcessRecord {
    pub fn of(pid: i32) -> io::Result<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
        let started =
            start_time(&stat).ok_or_else(|| io::Error::other(format!("/proc/{pid}/stat is not understood")))?;
        Ok(Self { pid, started, boot_id: boot_id()? })
    }

    /// Whether the process with this number is still the recorded one and has not ended. A zombie has ended.
    pub fn is_alive(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid)).unwrap_or_default();
        !has_ended(&stat) && Self::of(self.pid).is_ok_and(|now| now == *self)
    }
}

/// Whether field 3, the state, says that the process is a zombie or dead.
fn has_ended(stat: &str) -> bool {
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    matches!(state, None | Some('Z' | 'X'))
}

fn boot_id() -> io::Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

/// The value of field 22, the start time. Field 2 is a name in parentheses that may contain anything, so fields are counted
/// after it.
fn start_time(stat: &str) -> Option<u64> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

/// The directory of one sandbox on the host.
#[derive(Debug, Clone)]
pub struct SandboxDir(pub PathBuf);

impl SandboxDir {
    pub fn new(sandboxes: &Path, id: &SessionId) -> Self {
        Self(sandboxes.join(id.as_str()))
    }

    pub fn socket(&self) -> PathBuf {
        self.0.join("runner.sock")
    }

    pub fn log(&self) -> PathBuf {
        self.0.join("runner.log")
    }

    pub fn mount_point(&self) -> PathBuf {
        self.0.join("root")
    }

    fn record(&self) -> PathBuf {
        self.0.join("record.json")
    }

    pub fn make(&self, record: &SandboxRecord) -> io::Result<()> {
        std::fs::DirBuilder::new().mode(0o700).create(&self.0)?;
        std::fs::DirBuilder::new().mode(0o700).create(self.mount_point())?;
        self.write(record)
    }

    /// Makes the directory of a stopped sandbox ready for its next start.
    pub fn make_again(&self, record: &SandboxRecord) -> io::Result<()> {
        match std::fs::remove_file(self.socket()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        self.write(record)
    }

    fn state(&self) -> PathBuf {
        self.0.join(STATE_FILE)
    }

    /// Whether the sandbox was stopped at some time, so that its disk may be needed without a process.
    pub fn has_state(&self) -> bool {
        self.state().exists()
    }

    pub fn write_state(&self, state: &SandboxState) -> io::Result<()> {
        write_synced(&self.state(), &serde_json::to_vec(state)?)?;
        // The record and the directory's own name were made without waiting for the disk.
        self.write_synced(&self.read()?)?;
        let parent = self.0.parent().ok_or_else(|| io::Error::other("a sandbox without a directory"))?;
        std::fs::File::open(parent)?.sync_all()
    }

    pub fn read_state(&self) -> io::Result<SandboxState> {
        files::read_state(&self.state())
    }

    /// Replaces the record atomically: a reader sees the old one or the new one.
    pub fn write(&self, record: &SandboxRecord) -> io::Result<()> {
        let fresh = self.0.join("record.json.new");
        let mut file = std::fs::File::options().create(true).write(true).truncate(true).mode(0o600).open(&fresh)?;
        file.write_all(&serde_json::to_vec(record)?)?;
        std::fs::rename(fresh, self.record())
    }

    /// The same as `write`, and waits until the disk has the record.
    pub fn write_synced(&self, record: &SandboxRecord) -> io::Result<()> {
        write_synced(&self.record(), &serde_json::to_vec(record)?)
    }

    pub fn read(&self) -> io::Result<SandboxRecord> {
        Ok(serde_json::from_slice(&std::fs::read(self.record())?)?)
    }

    /// Removes the directory with everything in it. A missing directory is no error.
    pub fn remove(&self) -> io::Result<()> {
        match std::fs::remove_dir_all(&self.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result,
        }
    }
}

/// Where the state of the shells is, in the directory of a stopped sandbox or of a snapshot.
pub const STATE_FILE: &str = "state.json";

/// Replaces a file atomically, and waits until the disk has it and its name.
pub fn write_synced(path: &Path, content: &[u8]) -> io::Result<()> {
    let fresh = path.with_extension("new");
    let mut file = std::fs::File::options().create(true).write(true).truncate(true).mode(0o600).open(&fresh)?;
    file.write_all(content)?;
    file.sync_all()?;
    std::fs::rename(&fresh, path)?;
    let parent = path.parent().ok_or_else(|| io::Error::other("a file without a directory"))?;
    std::fs::File::open(parent)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_name_cannot_shift_the_fields() {
        let stat = "12 (a) b) 1 (c) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20 21";
        assert_eq!(start_time(stat), Some(4711));
        assert!(!has_ended(stat));
        assert!(has_ended("12 (a) S) Z 1 2 3"));
    }

    #[test]
    fn a_recorded_process_is_alive_and_another_with_its_number_is_not() {
        let own = ProcessRecord::of(i32::try_from(std::process::id()).unwrap()).unwrap();
        assert!(own.is_alive());
        assert!(!ProcessRecord { started: own.started + 1, ..own }.is_alive());
    }
}
