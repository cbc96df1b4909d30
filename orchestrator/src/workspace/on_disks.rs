//! Workspaces on the disks of sessions: each is a subvolume, with a record beside it ([`Records`]).
//!
//! Every call blocks. Calls for one workspace come one after the other; those that make or remove subvolumes take a lock as well,
//! because a subvolume that is being made looks like one that was deleted.

use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use shared_protocol::{KeyName, WorkspaceId};

use super::WorkspaceError;
use super::records::{Durability, RecordState, Records};
use crate::failpoint;
use crate::owner::WorkspaceName;
use crate::runtime::WorkspaceMount;
use crate::runtime::local::WorkspaceDisks;

#[derive(Debug)]
pub struct OnDisks {
    /// `None` if this daemon has no disks that outlive sessions.
    disks: Option<WorkspaceDisks>,
    records: Records,
    /// The limit of each. `None` means no limit.
    bytes: Option<u64>,
    changing: Mutex<()>,
}

impl OnDisks {
    pub fn new(disks: Option<WorkspaceDisks>, records: Records, bytes: Option<u64>) -> Self {
        Self { disks, records, bytes, changing: Mutex::default() }
    }

    pub fn limit(&self) -> Option<u64> {
        self.bytes
    }

    pub fn are_possible(&self) -> bool {
        self.disks.is_some()
    }

    /// Whether every runtime can mount them, by a path.
    pub fn have_paths(&self) -> bool {
        self.disks.as_ref().is_some_and(WorkspaceDisks::have_paths)
    }

    /// Makes records and disks agree after whatever ended the last daemon.
    pub fn recover(&self) -> io::Result<()> {
        let Some(disks) = &self.disks else {
            let lost = self.records.names(None)?.len();
            if lost > 0 {
                tracing::warn!(workspaces = lost, "workspaces are on disks that this daemon does not have");
            }
            return Ok(());
        };
        for (owner, id) in disks.names()? {
            let (Ok(owner), Ok(id)) = (KeyName::new(owner), WorkspaceId::new(id)) else { continue };
            let name = WorkspaceName { owner, id };
            if self.records.state(&name)? != Some(RecordState::Made) {
                self.records.write(&name, RecordState::Made, Durability::Synced)?;
            }
        }
        for name in self.records.names(None)? {
            if disks.exists(&name)? {
                continue;
            }
            match self.records.state(&name)? {
                Some(RecordState::Making | RecordState::Deleting) => self.records.remove(&name)?,
                Some(RecordState::Made) => {
                    tracing::warn!(workspace_id = %name.id, owner = %name.owner, "a workspace is not on the disk it was made on");
                }
                None => {}
            }
        }
        Ok(())
    }

    pub fn exists(&self, name: &WorkspaceName) -> io::Result<bool> {
        match (self.records.state(name)?, &self.disks) {
            (None, _) => Ok(false),
            // An earlier call has failed half-way.
            (Some(RecordState::Making | RecordState::Deleting), Some(disks)) => disks.exists(name),
            (Some(_), _) => Ok(true),
        }
    }

    pub fn make(&self, name: &WorkspaceName) -> io::Result<Result<(), WorkspaceError>> {
        let Some(disks) = &self.disks else { return Ok(Err(self.unreachable(name))) };
        if let Err(full) = disks.check_room() {
            return Ok(Err(WorkspaceError::Full(full.to_string())));
        }
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        self.records.write(name, RecordState::Making, Durability::Synced)?;
        failpoint::at("workspace.disk.recorded")?;
        disks.make(name)?;
        failpoint::at("workspace.disk.made")?;
        self.records.write(name, RecordState::Made, Durability::Written)?;
        Ok(Ok(()))
    }

    /// Applies the limit, and tells how to mount the workspace.
    pub fn prepare(&self, name: &WorkspaceName) -> io::Result<Result<WorkspaceMount, WorkspaceError>> {
        match &self.disks {
            Some(disks) if disks.exists(name)? => disks.prepare(name, self.bytes).map(Ok),
            _ => Ok(Err(self.unreachable(name))),
        }
    }

    fn unreachable(&self, name: &WorkspaceName) -> WorkspaceError {
        let id = &name.id;
        let why = match self.disks {
            Some(_) => "and is not there: put disks.img back, or delete the workspace",
            None => "and this daemon has no disks: see local.disk and cove doctor",
        };
        WorkspaceError::Unreachable(format!("workspace {id} was made on a disk, {why}"))
    }

    /// Takes the name of a workspace away. What it holds is removed by `sweep`.
    pub fn discard(&self, name: &WorkspaceName) -> io::Result<Result<(), WorkspaceError>> {
        // Without the disks, the workspace would come back with them.
        let Some(disks) = &self.disks else { return Ok(Err(self.unreachable(name))) };
        self.records.write(name, RecordState::Deleting, Durability::Synced)?;
        failpoint::at("workspace.disk.deleting")?;
        match disks.discard(name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            discarded => discarded?,
        }
        failpoint::at("workspace.disk.discarded")?;
        self.records.remove(name).map(Ok)
    }

    pub fn sweep(&self) -> io::Result<()> {
        let Some(disks) = &self.disks else { return Ok(()) };
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        disks.remove_unnamed()
    }

    pub fn names(&self, owner: Option<&KeyName>) -> io::Result<Vec<WorkspaceName>> {
        let mut found = Vec::new();
        for name in self.records.names(owner)? {
            if self.exists(&name)? {
                found.push(name);
            }
        }
        Ok(found)
    }

    /// When a workspace was made, if it is there.
    pub fn made(&self, name: &WorkspaceName) -> Option<SystemTime> {
        self.disks.as_ref()?.made(name).ok()
    }

    pub fn used_bytes(&self, name: &WorkspaceName) -> Option<u64> {
        self.disks.as_ref()?.used_bytes(name)
    }
}
