//! The stored form of a snapshot. What it contains is elsewhere; this row says that it exists, and whose it is.

use std::time::SystemTime;

use rusqlite::{Connection, Row, params};
use serde::{Deserialize, Serialize};
use shared_protocol::{SessionId, ShellName, SnapshotId};

use super::row::{from_millis, to_millis};
use super::statements::broken;
use crate::spec::SessionSpec;

const MAKING: &str = "making";
const READY: &str = "ready";

#[derive(Debug, Clone, PartialEq)]
pub struct SnapshotRow {
    pub id: SnapshotId,
    /// Whether all of it is on the disk. A start removes what is not.
    pub is_ready: bool,
    pub facts: SnapshotFacts,
    pub created_at: SystemTime,
}

/// The column `facts`. Rows of older versions lack the fields that were added later, so each of those needs a default.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SnapshotFacts {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The session that it was made of.
    pub session: SessionId,
    /// What that session was, with its owner.
    pub spec: Box<SessionSpec>,
    /// What its files hold.
    #[serde(default)]
    pub bytes: u64,
    /// The shells whose state it has.
    #[serde(default)]
    pub shells: Vec<ShellName>,
    /// Whether it exists only while a session is forked. A start removes such a snapshot.
    #[serde(default)]
    pub is_temporary: bool,
}

/// Adds a snapshot that is about to be made.
pub(super) fn add(connection: &Connection, row: &SnapshotRow) -> rusqlite::Result<bool> {
    let sql = "INSERT INTO snapshots (id, status, facts, created_at) VALUES (?1, ?2, ?3, ?4)";
    let values = params![row.id.as_str(), MAKING, text(&row.facts)?, to_millis(row.created_at)];
    connection.prepare_cached(sql)?.execute(values)?;
    Ok(true)
}

/// Marks a snapshot as ready. Returns `false`, and changes nothing, if it is not being made.
pub(super) fn set_ready(connection: &Connection, row: &SnapshotRow) -> rusqlite::Result<bool> {
    let sql = "UPDATE snapshots SET status = ?2, facts = ?3 WHERE id = ?1 AND status = ?4";
    let values = params![row.id.as_str(), READY, text(&row.facts)?, MAKING];
    connection.prepare_cached(sql)?.execute(values).map(|count| count > 0)
}

pub(super) fn remove(connection: &Connection, id: &SnapshotId) -> rusqlite::Result<bool> {
    connection.prepare_cached("DELETE FROM snapshots WHERE id = ?1")?.execute([id.as_str()])?;
    Ok(true)
}

/// Reads all snapshots, the oldest first.
pub(super) fn load(connection: &Connection) -> rusqlite::Result<Vec<SnapshotRow>> {
    let sql = "SELECT id, status, facts, created_at FROM snapshots ORDER BY created_at, id";
    connection.prepare(sql)?.query_map((), read)?.collect()
}

fn text(facts: &SnapshotFacts) -> rusqlite::Result<String> {
    serde_json::to_string(facts).map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))
}

fn read(row: &Row<'_>) -> rusqlite::Result<SnapshotRow> {
    Ok(SnapshotRow {
        id: SnapshotId::new(row.get::<_, String>(0)?).map_err(|error| broken(0, error))?,
        is_ready: row.get::<_, String>(1)? == READY,
        facts: serde_json::from_str(&row.get::<_, String>(2)?).map_err(|error| broken(2, error))?,
        created_at: from_millis(row.get(3)?),
    })
}
