//! The facts of a session that are known from its start and never change. Lifetime and labels can be changed later; what they are now
//! is in `shared`, and the spec has what was asked for.

use std::sync::Arc;

use shared_protocol::SessionId;
use shared_protocol::api::{AcquireSource, SessionStatus};
use tokio::time::Instant;

use super::Clock;
use crate::spec::SessionSpec;
use crate::store::{SessionRow, StoredKey};

/// The directory in which every shell starts.
pub const FIRST_CWD: &str = "/workspace";

#[derive(Debug, Clone)]
pub struct Facts {
    pub id: SessionId,
    pub spec: Arc<SessionSpec>,
    pub source: AcquireSource,
    pub created: Instant,
    pub clock: Clock,
}

impl Facts {
    /// The facts that an earlier daemon stored.
    pub fn of_row(row: &SessionRow, clock: Clock) -> Self {
        let created = clock.instant(row.created_at);
        Self { id: row.id.clone(), spec: row.spec.clone(), source: row.source, created, clock }
    }

    /// The row that is stored before the sandbox is created.
    pub fn to_row(&self, key: Option<StoredKey>) -> SessionRow {
        let created_at = self.clock.wall(self.created);
        SessionRow {
            id: self.id.clone(),
            status: SessionStatus::Creating,
            end: None,
            spec: self.spec.clone(),
            source: self.source,
            key,
            created_at,
            last_activity: created_at,
            ended_at: None,
            cwd: FIRST_CWD.into(),
        }
    }
}
