//! Copies of a session: a snapshot that nobody sees, a session from it for each copy, and the end of the snapshot. All of the copies
//! are made, or none.

use std::sync::Arc;

use futures_util::future::join_all;
use shared_protocol::SnapshotId;
use shared_protocol::api::{ForkRequest, ForkView, MAX_FORKS, SessionView};

use super::Use;
use crate::owner::Creator;
use crate::runtime::{Origin, Runtime};
use crate::session::registry::{DestroyUnlessKept, FromSnapshot};
use crate::session::{Plan, Registry, SessionError, SessionHandle};
use crate::spec::{LinkGenerations, SessionSpec, Variables};

/// Removes the snapshot of a fork or a commit, also if the client disconnects.
pub struct Temporary {
    registry: Registry,
    runtime: Arc<dyn Runtime>,
    id: SnapshotId,
    /// A commit drops it on a thread that is no task.
    tasks: tokio::runtime::Handle,
}

impl Temporary {
    pub(super) fn new(registry: Registry, runtime: Arc<dyn Runtime>, id: SnapshotId) -> Self {
        Self { registry, runtime, id, tasks: tokio::runtime::Handle::current() }
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let (registry, runtime, id) = (self.registry.clone(), self.runtime.clone(), self.id.clone());
        self.tasks.spawn(async move { registry.undo_snapshot(&runtime, &id).await });
    }
}

impl Registry {
    pub async fn fork(
        &self,
        creator: &Creator,
        session: &SessionHandle,
        request: ForkRequest,
    ) -> Result<ForkView, SessionError> {
        if !(1..=MAX_FORKS).contains(&request.count) {
            let message = format!("count must be 1 to {MAX_FORKS}, not {}", request.count);
            return Err(SessionError::InvalidRequest(message));
        }
        let spec = fork_spec(session.0.current_spec(), creator, &request)?;
        self.0.network.compile(&spec.network, creator).await?;
        let runtime = self.runtime(&spec.runtime)?;
        let (row, temporary) = self.make_snapshot(session, None, Use::Fork).await?;
        let origin = Origin::Snapshot(row.id.clone());
        runtime.check(&spec, &origin).await?;
        let spec = Arc::new(spec);
        // Each value destroys its session unless it is kept: if one copy fails, or if the client disconnects.
        let (mut admitted, mut refused) = (Vec::new(), None);
        for _ in 0..request.count {
            let plan = Plan { spec: spec.clone(), env: Variables::default() };
            let from = FromSnapshot { hold: self.0.snapshots.hold(&row.id)? };
            match self.admit_new(creator, plan, &runtime, from) {
                Ok(handle) => admitted.push((DestroyUnlessKept::new(handle.clone()), handle)),
                Err(error) => {
                    refused = Some(error);
                    break;
                }
            }
        }
        let made = join_all(admitted.iter().map(|(_, handle)| handle.created())).await;
        let made: Result<Vec<SessionView>, SessionError> = made.into_iter().collect();
        let made = refused.map_or(made, Err);
        let sessions = match made {
            Ok(sessions) => sessions,
            Err(error) => {
                // The copies that were made are gone before the client reads that there are none.
                join_all(admitted.iter().map(|(_, handle)| handle.destroy())).await;
                return Err(not_all(request.count, error));
            }
        };
        admitted.into_iter().for_each(|(unknown, _)| unknown.keep());
        drop(temporary);
        Ok(ForkView { sessions })
    }
}

/// What the copies of a session are. The caller owns them.
fn fork_spec(parent: SessionSpec, creator: &Creator, request: &ForkRequest) -> Result<SessionSpec, SessionError> {
    if parent.inject.is_some() {
        let message = "a session with `inject` cannot be forked: make a snapshot, and create sessions from it with their own `inject`";
        return Err(SessionError::Conflict(message.into()));
    }
    if parent.workspace.is_some() && request.workspace_id.is_none() && parent.owner != creator.owner {
        let message = "the session has a workspace of another key: name one of your own with workspace_id";
        return Err(SessionError::Conflict(message.into()));
    }
    Ok(SessionSpec {
        owner: creator.owner.clone(),
        // The parent keeps its name.
        name: None,
        workspace: request.workspace_id.clone().or(parent.workspace),
        network_maximum: creator.network_maximum.clone(),
        links: LinkGenerations::default(),
        ..parent
    })
}

/// An error with what it means for all copies.
fn not_all(count: u32, error: SessionError) -> SessionError {
    let add = |message: String| match count {
        1 => message,
        _ => format!("none of the {count} copies is there, because one could not be made: {message}"),
    };
    match error {
        SessionError::Limit { message, details } => SessionError::Limit { message: add(message), details },
        SessionError::Internal(message) => SessionError::Internal(add(message)),
        SessionError::InvalidRequest(message) => SessionError::InvalidRequest(add(message)),
        SessionError::Conflict(message) => SessionError::Conflict(add(message)),
        SessionError::Lost { id, reason } => SessionError::Lost { id, reason: add(reason) },
        other => other,
    }
}
