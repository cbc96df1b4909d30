//! Snapshots of sandboxes, and sandboxes that are stopped: disks that outlive processes.
//!
//! ```text
//! DATA/snapshots/ID/state.json    the state of the shells
//! DATA/snapshots/ID/record.json   how much it holds, and the image it needs; written last
//! (disks)/snapshots/ID            the files, read-only
//!
//! DATA/sandboxes/ID/state.json    the same state of a stopped sandbox, whose disk stays where it was
//! ```
//!
//! **Invariant:** a snapshot's directory is made first and removed last, so everything that a crash leaves of it has its name.

use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use shared_protocol::runner::SandboxState;
use shared_protocol::{SessionId, SnapshotId};

use super::disks::OldContent;
use super::images::KeptImage;
use super::sandbox_dir::{STATE_FILE, SandboxDir, SandboxRecord};
use super::{LocalRuntime, failed, files, settled};
use crate::failpoint;
use crate::runtime::RuntimeError;

const RECORD_FILE: &str = "record.json";
const MAKING: &str = "making the snapshot";
const KEEPING: &str = "writing the snapshot to the disk";
const REMOVING: &str = "removing the snapshot";
const STOPPING: &str = "stopping the sandbox";

/// What is stored of a snapshot beside its files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotRecord {
    /// What its files hold.
    pub bytes: u64,
    /// The image that it needs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<KeptImage>,
    /// What the daemon told the programs of its session about how many threads to use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<usize>,
}

/// The directory of one snapshot on the host.
#[derive(Debug, Clone)]
pub struct SnapshotDir(PathBuf);

impl SnapshotDir {
    pub fn new(snapshots: &Path, id: &SnapshotId) -> Self {
        Self(snapshots.join(id.as_str()))
    }

    pub fn read(&self) -> Result<SnapshotRecord, RuntimeError> {
        let read = || Ok(serde_json::from_slice(&std::fs::read(self.0.join(RECORD_FILE))?)?);
        read().map_err(|error: io::Error| failed("reading the snapshot's record", error))
    }

    pub fn read_state(&self) -> Result<SandboxState, RuntimeError> {
        files::read_state(&self.0.join(STATE_FILE))
            .map_err(|error| failed("reading the state of the snapshot's shells", error))
    }

    /// Writes a file. The sandbox is frozen meanwhile, so it does not wait for the disk; `sync` does.
    fn write(&self, name: &str, content: &impl Serialize) -> io::Result<()> {
        let mut file = std::fs::File::options().create_new(true).write(true).mode(0o600).open(self.0.join(name))?;
        file.write_all(&serde_json::to_vec(content)?)
    }

    /// Waits until the disk has the directory with its files.
    fn sync(&self) -> io::Result<()> {
        let parent = self.0.parent().map(Path::to_owned);
        let places = [Some(self.0.join(STATE_FILE)), Some(self.0.join(RECORD_FILE)), Some(self.0.clone()), parent];
        places.into_iter().flatten().try_for_each(|place| std::fs::File::open(place)?.sync_all())
    }

    fn remove(&self) -> io::Result<()> {
        match std::fs::remove_dir_all(&self.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result,
        }
    }
}

/// Whether a data directory has something that needs the disks of an earlier daemon although no process of it runs.
pub fn old_content(snapshots: &Path, sandboxes: &Path, workspaces: &Path) -> io::Result<OldContent> {
    let has_state = |name: &String| SandboxDir(sandboxes.join(name)).has_state();
    let owners = match files::names(workspaces) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        owners => owners?,
    };
    let has_some = |owner: &String| files::names(&workspaces.join(owner)).map_or(true, |names| !names.is_empty());
    let has_workspaces = owners.iter().any(has_some);
    let is_needed =
        has_workspaces || !files::names(snapshots)?.is_empty() || files::names(sandboxes)?.iter().any(has_state);
    Ok(if is_needed { OldContent::Needed } else { OldContent::Useless })
}

impl LocalRuntime {
    pub(super) async fn take_snapshot(
        &self,
        id: &SessionId,
        snapshot: &SnapshotId,
        state: Arc<SandboxState>,
    ) -> Result<u64, RuntimeError> {
        self.disks.check_lasting()?;
        let (sandbox, made) = (self.directory(id), SnapshotDir::new(&self.snapshots, snapshot));
        let (disks, images, name, copy) =
            (self.disks.clone(), self.images.clone(), id.to_string(), snapshot.to_string());
        let work = move || {
            let record = sandbox.read().map_err(|e| failed("reading the sandbox's record", e))?;
            let at = |error| failed(MAKING, error);
            std::fs::DirBuilder::new().mode(0o700).create(&made.0).map_err(at)?;
            failpoint::at("local.snapshot.directory").map_err(at)?;
            images.keep_for(record.image.as_ref(), &made.0)?;
            made.write(STATE_FILE, &*state).map_err(at)?;
            failpoint::at("local.snapshot.state").map_err(at)?;
            let bytes = disks.snapshot(&name, &copy, record.inherited)?;
            failpoint::at("local.snapshot.disk").map_err(at)?;
            let record = SnapshotRecord { bytes, image: record.image, threads: record.threads };
            made.write(RECORD_FILE, &record).map_err(at)?;
            Ok(bytes)
        };
        self.disk.run_for(id.as_str(), work).await.map_err(|e| failed(MAKING, e.into()))?
    }

    pub(super) async fn sync_snapshot(&self, snapshot: &SnapshotId) -> Result<(), RuntimeError> {
        let (disks, made) = (self.disks.clone(), SnapshotDir::new(&self.snapshots, snapshot));
        let work = move || {
            // A file system in an image: its commit ends with a flush of the device, which is a sync of the image's file.
            disks.sync()?;
            made.sync()?;
            failpoint::at("local.snapshot.synced")
        };
        settled(self.disk.run(work).await).map_err(|e| failed(KEEPING, e))
    }

    pub(super) async fn drop_snapshot(&self, snapshot: &SnapshotId) -> Result<(), RuntimeError> {
        let (disks, images, name) = (self.disks.clone(), self.images.clone(), snapshot.to_string());
        let found = SnapshotDir::new(&self.snapshots, snapshot);
        let work = move || {
            disks.remove_snapshot(&name)?;
            failpoint::at("local.snapshot.removed")?;
            images.end_use(&found.0);
            found.remove()
        };
        settled(self.disk.run_for(snapshot.as_str(), work).await).map_err(|e| failed(REMOVING, e))
    }

    pub(super) async fn snapshot_ids(&self) -> Result<Vec<SnapshotId>, RuntimeError> {
        let (disks, snapshots) = (self.disks.clone(), self.snapshots.clone());
        let list = move || Ok(files::names(&snapshots)?.into_iter().chain(disks.snapshot_names()?).collect::<Vec<_>>());
        let mut names = settled(self.disk.run(list).await).map_err(|e| failed("listing snapshots", e))?;
        names.sort();
        names.dedup();
        Ok(names.into_iter().filter_map(|name| SnapshotId::new(name).ok()).collect())
    }

    pub(super) async fn keep_state(&self, id: &SessionId, state: Arc<SandboxState>) -> Result<(), RuntimeError> {
        self.disks.check_lasting()?;
        let directory = self.directory(id);
        let work = move || {
            directory.write_state(&state)?;
            failpoint::at("local.stop.state")
        };
        settled(self.disk.run_for(id.as_str(), work).await).map_err(|e| failed(STOPPING, e))
    }

    /// Ends all processes of a sandbox and keeps its disk and its directory.
    pub(super) async fn halt(&self, id: &SessionId) -> Result<(), RuntimeError> {
        self.disks.check_lasting()?;
        let recorded = self.end_processes(id).await?;
        let (directory, disks, cgroups, name) =
            (self.directory(id), self.disks.clone(), self.cgroups.clone(), id.to_string());
        let block = recorded.as_ref().filter(|record| !record.is_stopped).map(|record| record.block);
        let gone = id.clone();
        let work = move || {
            cgroups.remove(&name).map_err(|e| failed("removing the cgroup", e))?;
            let Some(record) = recorded.filter(|_| disks.has(&name)) else { return Err(RuntimeError::Gone(gone)) };
            failpoint::at("local.stop.ended").map_err(|e| failed(STOPPING, e))?;
            disks.sync().map_err(|e| failed(STOPPING, e))?;
            let stopped = SandboxRecord { process: None, is_stopped: true, ..record };
            directory.write_synced(&stopped).map_err(|e| failed(STOPPING, e))?;
            failpoint::at("local.stop.recorded").map_err(|e| failed(STOPPING, e))
        };
        self.disk.run_for(id.as_str(), work).await.map_err(|e| failed(STOPPING, e.into()))??;
        if let Some(block) = block {
            self.running.free(block);
        }
        Ok(())
    }
}
