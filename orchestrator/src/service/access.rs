//! Decides what a caller may see and touch. Ownership and roles are checked only here.
//!
//! Every use case gets its session or workspace through this module, so each rule about owners is written once:
//!
//! - An admin sees and touches everything.
//! - A user sees and touches what it owns. What another owns does not exist for it: the answer is the one for an id that nobody
//!   has, and nothing is touched.
//! - Each owner has workspace names of its own, so a user cannot even ask for another's workspace by a name that it guesses.

use shared_protocol::api::{SessionView, SnapshotView};
use shared_protocol::{KeyName, SessionId, SnapshotId, WorkspaceId};
use tokio::sync::watch;

use super::files::Place;
use super::ports::PortAddress;
use super::workspaces::Workspaces;
use super::{Caller, Role};
use crate::owner::WorkspaceName;
use crate::session::{Activity, Registry, SessionError, SessionHandle, snapshot_view};
use crate::spec::LinkGenerations;

/// A workspace as a caller names it: one of its own, or, for admins, one of a named owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkspaceAddress {
    pub owner: Option<KeyName>,
    pub id: WorkspaceId,
}

#[derive(Clone)]
pub(super) struct Access {
    registry: Registry,
    workspaces: Workspaces,
}

impl Access {
    pub fn new(registry: Registry, workspaces: Workspaces) -> Self {
        Self { registry, workspaces }
    }

    /// Refuses a caller that is no admin. `what` names what it asked for.
    pub fn admin(&self, caller: &Caller, what: &'static str) -> Result<(), SessionError> {
        match caller.role() {
            Role::Admin => Ok(()),
            Role::User => Err(SessionError::NeedsAdmin(what)),
        }
    }

    /// Finds a session that the caller may touch. This changes nothing.
    pub fn session(&self, caller: &Caller, id: &SessionId) -> Result<SessionHandle, SessionError> {
        let session = self.registry.get(id)?;
        if caller.may_touch(&session.facts().spec.owner) {
            Ok(session)
        } else {
            Err(SessionError::NotFound(id.clone()))
        }
    }

    /// Finds a snapshot that the caller may touch. This changes nothing.
    pub fn snapshot(&self, caller: &Caller, id: &SnapshotId) -> Result<SnapshotView, SessionError> {
        let row = self.registry.snapshots().get(id)?;
        // A snapshot for a fork is nobody's.
        if caller.may_touch(&row.facts.spec.owner) && !row.facts.is_temporary {
            Ok(snapshot_view(&row))
        } else {
            Err(SessionError::SnapshotNotFound(id.clone()))
        }
    }

    /// The snapshots that the caller may see.
    pub fn visible_snapshots(&self, caller: &Caller) -> Vec<SnapshotView> {
        let rows = self.registry.snapshots().list();
        rows.iter().filter(|row| caller.may_touch(&row.facts.spec.owner)).map(snapshot_view).collect()
    }

    /// The workspace that the caller means. It does not check that the workspace exists; `workspaces` does.
    pub fn workspace(&self, caller: &Caller, address: &WorkspaceAddress) -> Result<WorkspaceName, SessionError> {
        let owner = address.owner.as_ref().unwrap_or(caller.name());
        if !caller.may_touch(owner) {
            return Err(SessionError::WorkspaceNotFound(address.id.clone()));
        }
        Ok(WorkspaceName { owner: owner.clone(), id: address.id.clone() })
    }

    /// Begins an activity in a session. This is the first effect of a call, and wakes a paused session.
    pub async fn begin(&self, caller: &Caller, id: &SessionId) -> Result<Activity, SessionError> {
        self.session(caller, id)?.begin().await
    }

    /// The same as `begin`, for the holder of a link: its token was checked, and stands for the caller that made the link.
    pub async fn begin_by_link(
        &self,
        id: &SessionId,
    ) -> Result<(Activity, watch::Receiver<LinkGenerations>), SessionError> {
        let session = self.registry.get(id)?;
        Ok((session.begin().await?, session.links()))
    }

    /// The generation of links to a port. A session that does not exist has the first one, and no connection to it succeeds.
    pub fn link_generation(&self, address: &PortAddress) -> u64 {
        let session = self.registry.get(&address.session).ok();
        session.map_or(0, |session| session.links().borrow().of(address.port.number()))
    }

    /// The same as `begin`, in the session or workspace that has the files.
    pub async fn begin_in(&self, caller: &Caller, place: &Place) -> Result<Activity, SessionError> {
        match place {
            Place::Session(id) => self.begin(caller, id).await,
            Place::Workspace(address) => {
                let name = self.workspace(caller, address)?;
                self.workspaces.begin(&name).await
            }
        }
    }

    /// Filters a list of sessions to those that the caller may see.
    pub fn visible_sessions(&self, caller: &Caller, mut sessions: Vec<SessionView>) -> Vec<SessionView> {
        sessions.retain(|session| caller.may_touch(&session.owner));
        sessions
    }

    /// The owner whose workspaces the caller may see. `None` means those of all owners.
    pub fn workspaces_of<'a>(&self, caller: &'a Caller) -> Option<&'a KeyName> {
        match caller.role() {
            Role::Admin => None,
            Role::User => Some(caller.name()),
        }
    }
}
