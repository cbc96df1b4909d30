//! The root of a session as it is at one moment, for an image: a snapshot that nobody sees, and that is removed with the value.

use super::Use;
use super::fork::Temporary;
use crate::runtime::RootChanges;
use crate::session::{Phase, Registry, SessionError, SessionHandle};

/// What a session has changed of its root. It can be read as long as the snapshot is there.
pub struct HeldRoot {
    pub changes: RootChanges,
    /// Removed when it is dropped.
    pub snapshot: Option<Temporary>,
}

impl Registry {
    /// Refuses a session from whose root no image can be made, and says why.
    pub fn check_commit(&self, session: &SessionHandle) -> Result<(), SessionError> {
        let spec = &session.facts().spec;
        Ok(self.runtime(&spec.runtime)?.commits(spec)?)
    }

    /// Copies the root of a session, which is frozen meanwhile if it runs. A paused or stopped session stays so.
    pub async fn hold_root(&self, session: &SessionHandle) -> Result<HeldRoot, SessionError> {
        self.check_commit(session)?;
        if session.phase() == Phase::Creating {
            session.created().await?;
        }
        let runtime = self.runtime(&session.facts().spec.runtime)?;
        let (row, snapshot) = self.make_snapshot(session, None, Use::Commit).await?;
        let changes = runtime.root_changes(&row.id, &row.facts.spec).await?;
        Ok(HeldRoot { changes, snapshot })
    }
}
