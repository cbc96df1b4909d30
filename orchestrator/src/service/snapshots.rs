//! Use cases for snapshots: make, describe, list, remove. A session is created from one as any other session.

use shared_protocol::api::{CreateSnapshotRequest, SnapshotView};
use shared_protocol::{SessionId, SnapshotId};

use super::Caller;
use super::access::Access;
use crate::session::{Registry, SessionError};

pub struct Snapshots {
    access: Access,
    registry: Registry,
}

impl Snapshots {
    pub(super) fn new(access: Access, registry: Registry) -> Self {
        Self { access, registry }
    }

    /// Makes a snapshot of a session. Its owner is the session's.
    pub async fn create(
        &self,
        caller: &Caller,
        session: &SessionId,
        request: CreateSnapshotRequest,
    ) -> Result<SnapshotView, SessionError> {
        self.registry.snapshot(&self.access.session(caller, session)?, request).await
    }

    pub fn list(&self, caller: &Caller) -> Vec<SnapshotView> {
        self.access.visible_snapshots(caller)
    }

    pub fn get(&self, caller: &Caller, id: &SnapshotId) -> Result<SnapshotView, SessionError> {
        self.access.snapshot(caller, id)
    }

    /// Removes a snapshot. Sessions that were made from it keep what they have.
    pub async fn remove(&self, caller: &Caller, id: &SnapshotId) -> Result<(), SessionError> {
        self.access.snapshot(caller, id)?;
        self.registry.remove_snapshot(id).await
    }
}
