//! Disks that outlive their sandbox: snapshots, and the disks of stopped sessions.
//!
//! Quotas count in one of two ways. Classic ones count what a disk holds. Simple ones count what was written to a disk, so a disk
//! that was made from a snapshot does not count what it shares with it. There, what a disk *inherits* is a number that stays with
//! it: it is taken off the limit, and added to what the disk holds. So a disk never holds more than it may; but what is freed of
//! the inherited part does not come back.

use std::io;
use std::sync::Arc;

use super::{Disks, DisksError, Kind, Subvolumes};
use crate::runtime::RuntimeError;
use crate::runtime::local::plan::DiskSource;

/// What a disk must be able to hold beyond what it inherits: a shell that starts writes a little.
const MIN_OWN_BYTES: u64 = 1 << 20;

impl Disks {
    /// The subvolumes, or why disks do not outlive their sandbox here.
    fn lasting(&self) -> Result<Arc<Subvolumes>, RuntimeError> {
        self.subvolumes().ok_or_else(|| {
            let why = match &*self.kind {
                Kind::Memory { why } => why.as_str(),
                Kind::Subvolumes(_) => "the daemon is stopping",
            };
            RuntimeError::Unsupported(format!(
                "sessions can be snapshotted, forked and stopped only where their disks are on btrfs, and here their files are in \
                 memory: {why}. Run the daemon as root with local.disk = \"loop\", or see cove doctor"
            ))
        })
    }

    /// Refuses if disks do not outlive their sandbox here, and says why.
    pub fn check_lasting(&self) -> Result<(), RuntimeError> {
        self.lasting().map(drop)
    }

    /// Refuses a limit under which a disk with what it inherits could not be used.
    pub fn check_size(&self, bytes: u64, inherited: u64) -> Result<(), RuntimeError> {
        let least = inherited.saturating_add(MIN_OWN_BYTES).div_ceil(1 << 20);
        if bytes >> 20 >= least {
            return Ok(());
        }
        Err(RuntimeError::Unsupported(format!(
            "the snapshot holds {} MiB: resources.disk_mb must be at least {least}, not {}",
            inherited.div_ceil(1 << 20),
            bytes >> 20
        )))
    }

    /// Makes a disk from a snapshot. It holds at most `bytes`, with the `inherited` ones of the snapshot.
    pub fn make_from(
        &self,
        snapshot: &str,
        name: &str,
        bytes: u64,
        inherited: u64,
    ) -> Result<DiskSource, RuntimeError> {
        let subvolumes = self.lasting()?;
        self.check_size(bytes, inherited)?;
        let own = own_limit(&subvolumes, bytes, inherited);
        subvolumes.make_from(snapshot, name, own).map_err(|source| match source.kind() {
            io::ErrorKind::StorageFull => DisksError::Full("the disks of sessions are full".into()).into(),
            _ => DisksError::Failed { step: "making the sandbox's disk from a snapshot", source }.into(),
        })
    }

    /// The disk of a stopped session.
    pub fn reuse(&self, name: &str, bytes: u64, inherited: u64) -> Result<DiskSource, RuntimeError> {
        let subvolumes = self.lasting()?;
        let reused = subvolumes.limited(name, own_limit(&subvolumes, bytes, inherited));
        reused.map_err(|source| DisksError::Failed { step: "opening the disk of the stopped session", source }.into())
    }

    /// Whether there is a disk of this name.
    pub fn has(&self, name: &str) -> bool {
        self.subvolumes().is_some_and(|subvolumes| subvolumes.used_bytes(name).is_some())
    }

    /// Writes what waits to be written, so that a snapshot right after it is quick.
    pub fn sync(&self) -> io::Result<()> {
        self.subvolumes().map_or(Ok(()), |subvolumes| subvolumes.sync())
    }

    /// Makes a snapshot of a disk. Returns what it holds.
    pub fn snapshot(&self, name: &str, snapshot: &str, inherited: u64) -> Result<u64, RuntimeError> {
        let failed = |source| RuntimeError::from(DisksError::Failed { step: "making a snapshot of the disk", source });
        let subvolumes = self.lasting()?;
        subvolumes.snapshot(name, snapshot).map_err(failed)?;
        Ok(self.held_bytes(name, inherited).unwrap_or(inherited))
    }

    /// What a disk holds, with what it shares with the snapshot that it was made from.
    pub fn held_bytes(&self, name: &str, inherited: u64) -> Option<u64> {
        let subvolumes = self.subvolumes()?;
        let own = subvolumes.used_bytes(name)?;
        Some(if subvolumes.counts_extents_once() { own.saturating_add(inherited) } else { own })
    }

    /// The directory of a snapshot, for a process that reads what is in it.
    pub fn open_snapshot(&self, snapshot: &str) -> Result<std::fs::File, RuntimeError> {
        let opened = self.lasting()?.open_snapshot(snapshot);
        opened.map_err(|source| DisksError::Failed { step: "opening a snapshot of the disk", source }.into())
    }

    pub fn remove_snapshot(&self, snapshot: &str) -> io::Result<()> {
        self.subvolumes().map_or(Ok(()), |subvolumes| subvolumes.remove_snapshot(snapshot))
    }

    pub fn snapshot_names(&self) -> io::Result<Vec<String>> {
        self.subvolumes().map_or(Ok(Vec::new()), |subvolumes| subvolumes.snapshot_names())
    }
}

fn own_limit(subvolumes: &Subvolumes, bytes: u64, inherited: u64) -> u64 {
    if subvolumes.counts_extents_once() { bytes.saturating_sub(inherited) } else { bytes }
}
