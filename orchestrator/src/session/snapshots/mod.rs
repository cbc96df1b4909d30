//! Snapshots of sessions: made, listed, used and removed. `table` knows them, `fork` copies a session, `commit` gives its root to whoever
//! makes an image from it, `recovery` clears up after a crash.
//!
//! ```text
//!  the state of the shells ─▶ row `making` ─▶ the runtime copies ─▶ the disk has it ─▶ row `ready` ─▶ the answer
//!                              (a start removes what has no `ready` row)
//! ```
//!
//! Once begun, a snapshot is finished or undone, also if its client disconnects.
//!
//! **Invariant:** a snapshot that a client was told of survives a power cut. One that is not `ready` is not there for anybody.

mod commit;
mod fork;
mod recovery;
mod stop;
mod table;

use std::sync::Arc;
use std::time::Duration;

use shared_protocol::SnapshotId;
use shared_protocol::api::{
    CreateSessionRequest, CreateSnapshotRequest, MAX_SNAPSHOT_NAME_BYTES, ResourcesRequest, SnapshotView,
};
use shared_protocol::runner::SandboxState;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};
use tracing::{info, warn};

pub use commit::HeldRoot;
pub use table::{SnapshotHold, SnapshotTable};

use self::fork::Temporary;
use super::driver::keep::KeepAsked;
use super::{Activity, Registry, SessionError, SessionHandle, show_wall};
use crate::failpoint;
use crate::runtime::Runtime;
use crate::store::{SnapshotFacts, SnapshotRow, Write};

/// The longest time for the host to write what waits to be written, once before the copy and once after it.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);

/// What a snapshot is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    /// A client asked for it.
    Client,
    /// A fork needs it, and removes it at once.
    Fork,
    /// An image is made from its files, and it is removed at once. Nobody asks for the state of shells.
    Commit,
}

impl Registry {
    pub fn snapshots(&self) -> &SnapshotTable {
        &self.0.snapshots
    }

    /// Makes a snapshot of a session. A paused session is woken, as by any request.
    pub async fn snapshot(
        &self,
        session: &SessionHandle,
        request: CreateSnapshotRequest,
    ) -> Result<SnapshotView, SessionError> {
        check_name(request.name.as_deref())?;
        let (row, _) = self.make_snapshot(session, request.name, Use::Client).await?;
        Ok(view(&row))
    }

    async fn make_snapshot(
        &self,
        session: &SessionHandle,
        name: Option<String>,
        used: Use,
    ) -> Result<(SnapshotRow, Option<Temporary>), SessionError> {
        let runtime = self.runtime(&session.facts().spec.runtime)?;
        runtime.keeps_disks()?;
        let activity = match used {
            Use::Client | Use::Fork => Some(session.begin().await?),
            // It needs neither a shell nor a process: a paused or stopped session stays so.
            Use::Commit => None,
        };
        let row = SnapshotRow {
            id: fresh_id(|id| self.0.snapshots.knows(id))?,
            is_ready: false,
            facts: SnapshotFacts {
                name,
                session: session.id().clone(),
                spec: Box::new(session.0.current_spec()),
                bytes: 0,
                shells: Vec::new(),
                is_temporary: used != Use::Client,
            },
            created_at: self.0.clock.wall(Instant::now()),
        };
        self.0.snapshots.reserve(row.clone())?;
        // A task of its own, which a client that disconnects does not cut off.
        let (registry, session) = (self.clone(), session.clone());
        let making = tokio::spawn(async move {
            let id = row.id.clone();
            let made = registry.make_reserved(&session, activity, &runtime, row).await;
            match made {
                // If nobody waits for it any more, what is for a fork is removed with the answer.
                Ok(row) => {
                    let temporary = row.facts.is_temporary.then(|| Temporary::new(registry, runtime, id));
                    Ok((row, temporary))
                }
                Err(error) => {
                    registry.undo_snapshot(&runtime, &id).await;
                    Err(error)
                }
            }
        });
        making.await.map_err(|error| SessionError::Internal(error.to_string()))?
    }

    async fn make_reserved(
        &self,
        session: &SessionHandle,
        activity: Option<Activity>,
        runtime: &Arc<dyn Runtime>,
        mut row: SnapshotRow,
    ) -> Result<SnapshotRow, SessionError> {
        let state = match &activity {
            Some(activity) => shell_states(activity).await?,
            None => SandboxState::default(),
        };
        row.facts.shells = state.shells.iter().map(|shell| shell.name.clone()).collect();
        self.store(Write::AddSnapshot(Box::new(row.clone()))).await?;
        failpoint::pass("snapshot.intended");
        // What waits to be written would otherwise be written while the session is frozen.
        timeout(WRITE_TIMEOUT, runtime.flush(session.id())).await.map_err(|_| late())?;
        let (id, state) = (row.id.clone(), Arc::new(state));
        row.facts.bytes = session.ask_to_keep(|done| KeepAsked::Snapshot { id, state, done }).await?;
        drop(activity);
        failpoint::pass("snapshot.made");
        if !row.facts.is_temporary {
            self.0.snapshots.note_size(&row.id, row.facts.bytes)?;
            // A snapshot for a fork need not outlive the daemon.
            timeout(WRITE_TIMEOUT, runtime.keep_snapshot(&row.id)).await.map_err(|_| late())??;
        }
        failpoint::pass("snapshot.kept");
        row.is_ready = true;
        self.store(Write::SnapshotReady(Box::new(row.clone()))).await?;
        failpoint::pass("snapshot.ready");
        self.0.snapshots.insert(row.clone());
        info!(session_id = %session.id(), snapshot_id = %row.id, bytes = row.facts.bytes, "snapshot is made");
        Ok(row)
    }

    async fn store(&self, write: Write) -> Result<(), SessionError> {
        self.0.store.write(write).await.map_err(|error| SessionError::Internal(error.to_string()))
    }

    /// Removes what exists of a snapshot, its row first.
    async fn undo_snapshot(&self, runtime: &Arc<dyn Runtime>, id: &SnapshotId) {
        if let Err(cause) = self.0.store.write(Write::RemoveSnapshot { id: id.clone() }).await {
            // The row is ready only if all of it exists, so the next start removes this one.
            warn!(snapshot_id = %id, %cause, "the row of a snapshot is left");
        }
        failpoint::pass("snapshot.forgotten");
        if let Err(error) = runtime.remove_snapshot(id).await {
            let cause = SessionError::chain(&error);
            warn!(snapshot_id = %id, %cause, "a snapshot is left to the next start of the daemon");
        }
        self.0.snapshots.forget(id);
    }

    /// Removes a snapshot. Sessions that were made from it keep what they have.
    pub async fn remove_snapshot(&self, id: &SnapshotId) -> Result<(), SessionError> {
        let row = self.0.snapshots.take(id)?;
        // A task of its own, which a client that disconnects does not cut off.
        let registry = self.clone();
        let removing = tokio::spawn(async move { registry.remove_taken(row).await });
        removing.await.map_err(|error| SessionError::Internal(error.to_string()))?
    }

    async fn remove_taken(&self, row: SnapshotRow) -> Result<(), SessionError> {
        let id = &row.id.clone();
        let runtime = match self.runtime(&row.facts.spec.runtime) {
            Ok(runtime) => runtime,
            Err(error) => {
                self.0.snapshots.insert(row);
                return Err(error);
            }
        };
        if let Err(error) = self.store(Write::RemoveSnapshot { id: id.clone() }).await {
            self.0.snapshots.insert(row);
            return Err(error);
        }
        failpoint::pass("snapshot.forgotten");
        // From here on it does not exist for anybody, and the kernel frees its space in the background.
        if let Err(error) = runtime.remove_snapshot(id).await {
            let cause = SessionError::chain(&error);
            warn!(snapshot_id = %id, %cause, "the files of a removed snapshot are left to the next start of the daemon");
        }
        Ok(())
    }
}

/// The state of the shells as a client would see it now. Commands that run are no part of it.
async fn shell_states(activity: &Activity) -> Result<SandboxState, SessionError> {
    let asked = activity.runner().state();
    let ended = activity.ended();
    tokio::select! {
        biased;
        state = asked => state.map_err(|error| {
            SessionError::Internal(format!("the state of the shells is not known: {}", SessionError::chain(&error)))
        }),
        over = ended => Err(over),
    }
}

impl SessionHandle {
    /// Has the driver make a snapshot, stop or start. The session's end is an answer too.
    async fn ask_to_keep<T>(
        &self,
        request: impl FnOnce(oneshot::Sender<Result<T, SessionError>>) -> KeepAsked,
    ) -> Result<T, SessionError> {
        let (done, outcome) = oneshot::channel();
        let gone = || SessionError::NotFound(self.id().clone());
        self.0.keep_asked.send(request(done)).await.map_err(|_| gone())?;
        // The driver drops the sender when the session is over.
        outcome.await.unwrap_or_else(|_| Err(self.phase().refusal(self.id()).unwrap_or_else(gone)))
    }
}

fn late() -> SessionError {
    let seconds = WRITE_TIMEOUT.as_secs();
    SessionError::Internal(format!(
        "the host did not write the session's files within {seconds} s; there is no snapshot"
    ))
}

fn check_name(name: Option<&str>) -> Result<(), SessionError> {
    let is_valid =
        |name: &str| (1..=MAX_SNAPSHOT_NAME_BYTES).contains(&name.len()) && !name.chars().any(char::is_control);
    if name.is_none_or(is_valid) {
        return Ok(());
    }
    let message = format!("a snapshot's name has 1 to {MAX_SNAPSHOT_NAME_BYTES} bytes and no control characters");
    Err(SessionError::InvalidRequest(message))
}

fn fresh_id(taken: impl Fn(&SnapshotId) -> bool) -> Result<SnapshotId, SessionError> {
    const ATTEMPTS: usize = 16;
    for _ in 0..ATTEMPTS {
        let random = getrandom::u64().map_err(|e| SessionError::Internal(format!("no randomness: {e}")))?;
        let id = SnapshotId::new(format!("snap-{:012x}", random >> 16))
            .map_err(|e| SessionError::Internal(e.to_string()))?;
        if !taken(&id) {
            return Ok(id);
        }
    }
    Err(SessionError::Internal("no free snapshot id was found".into()))
}

pub fn view(row: &SnapshotRow) -> SnapshotView {
    let SnapshotFacts { name, session, spec, bytes, shells, .. } = &row.facts;
    SnapshotView {
        id: row.id.clone(),
        name: name.clone(),
        owner: spec.owner.clone(),
        session_id: session.clone(),
        image: spec.image.clone(),
        runtime: spec.runtime.clone(),
        writable_root: spec.writable_root,
        user: spec.user,
        disk_bytes: *bytes,
        shells: shells.clone(),
        created_at: show_wall(row.created_at),
    }
}

/// A create with the values that its snapshot fixes, or gives where the client asks for none. Pure.
pub(super) fn with_snapshot(
    mut request: CreateSessionRequest,
    row: &SnapshotRow,
) -> Result<CreateSessionRequest, SessionError> {
    let spec = &row.facts.spec;
    let differs = |what: &str, has: String| {
        let message = format!("the snapshot {} has {what} {has}: leave {what} out, or give the same", row.id);
        Err(SessionError::InvalidRequest(message))
    };
    if request.image.as_ref().is_some_and(|image| *image != spec.image) {
        return differs("image", format!("{:?}", spec.image));
    }
    if request.runtime.as_ref().is_some_and(|runtime| *runtime != spec.runtime) {
        return differs("runtime", spec.runtime.to_string());
    }
    if request.writable_root.is_some_and(|writable| writable != spec.writable_root) {
        return differs("writable_root", spec.writable_root.to_string());
    }
    // The files on its disk belong to that user.
    if request.user.is_some_and(|user| user != spec.user) {
        return differs("user", format!("{:?}", spec.user.name()));
    }
    request.image = Some(spec.image.clone());
    request.runtime = Some(spec.runtime.clone());
    request.writable_root = Some(spec.writable_root);
    request.user = Some(spec.user);
    let (asked, had) = (request.resources.unwrap_or_default(), &spec.resources);
    request.resources = Some(ResourcesRequest {
        cpus: asked.cpus.or(Some(had.cpus)),
        memory_mb: asked.memory_mb.or(Some(had.memory_mb)),
        pids: asked.pids.or(Some(had.pids)),
        disk_mb: asked.disk_mb.or(Some(had.disk_mb)),
    });
    Ok(request)
}
