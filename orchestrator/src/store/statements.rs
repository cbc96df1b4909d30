//! Every write about sessions, and the one read of them, as SQL. `key_row` has those about keys.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use rusqlite::types::Type;
use rusqlite::{Connection, Row, params};
use shared_protocol::SessionId;
use shared_protocol::api::{InjectionSpec, NetworkSpec, SessionStatus};

use super::row::{from_millis, read_facts, to_millis};
use super::{SessionRow, StoredEnd, StoredKey, Touch, Write};
use super::{key_row, snapshot_row};
use crate::owner::NetworkMaximum;
use crate::spec::LinkGenerations;

const COLUMNS: &str =
    "id, status, ending, reason, facts, idempotency_key, fingerprint, created_at, last_activity, ended_at, cwd";

/// Applies one write within the open transaction. Returns `false`, and changes nothing, if the row was not in the required
/// status.
pub fn apply(connection: &Connection, write: &Write) -> rusqlite::Result<bool> {
    match write {
        Write::Insert(row) => insert(connection, row),
        Write::Claim(row) => claim(connection, row),
        Write::Running { id, at } => {
            let sql = "UPDATE sessions SET status = 'running', last_activity = ?2 \
                       WHERE id = ?1 AND status IN ('creating', 'paused', 'running', 'stopped')";
            changed(connection.prepare_cached(sql)?.execute(params![id.as_str(), to_millis(*at)]))
        }
        Write::Paused { id } => {
            let sql = "UPDATE sessions SET status = 'paused' WHERE id = ?1 AND status = 'running'";
            changed(connection.prepare_cached(sql)?.execute([id.as_str()]))
        }
        Write::Stopped { id } => {
            let sql =
                "UPDATE sessions SET status = 'stopped' WHERE id = ?1 AND status IN ('running', 'paused', 'stopped')";
            changed(connection.prepare_cached(sql)?.execute([id.as_str()]))
        }
        Write::PoolIdle { id } => {
            let sql = "UPDATE sessions SET status = 'pool_idle' WHERE id = ?1 AND status = 'creating'";
            changed(connection.prepare_cached(sql)?.execute([id.as_str()]))
        }
        Write::Update { id, lifetime, labels, network, links, inject } => {
            update(connection, id, *lifetime, labels.as_ref(), network.as_deref(), links.as_ref(), inject.as_ref())
        }
        Write::Destroying { id, end } => {
            let sql = "UPDATE sessions SET status = 'destroying', ending = ?2, reason = ?3 WHERE id = ?1";
            changed(connection.prepare_cached(sql)?.execute(params![id.as_str(), end.status.as_str(), end.reason]))
        }
        Write::Ended { id, end, at } => {
            let sql = "UPDATE sessions SET status = ?2, ending = ?2, reason = ?3, ended_at = ?4 WHERE id = ?1";
            let values = params![id.as_str(), end.status.as_str(), end.reason, to_millis(*at)];
            changed(connection.prepare_cached(sql)?.execute(values))
        }
        Write::Forget { id } => {
            connection.prepare_cached("DELETE FROM sessions WHERE id = ?1")?.execute([id.as_str()])?;
            Ok(true)
        }
        Write::Touch(touches) => touch(connection, touches),
        Write::Prune { before, keep } => prune(connection, *before, *keep),
        Write::AddKey(row) => key_row::add(connection, row),
        Write::RemoveKey { name } => key_row::remove(connection, name),
        Write::AddSnapshot(row) => snapshot_row::add(connection, row),
        Write::SnapshotReady(row) => snapshot_row::set_ready(connection, row),
        Write::RemoveSnapshot { id } => snapshot_row::remove(connection, id),
    }
}

fn changed(rows: rusqlite::Result<usize>) -> rusqlite::Result<bool> {
    rows.map(|count| count > 0)
}

fn insert(connection: &Connection, row: &SessionRow) -> rusqlite::Result<bool> {
    let sql = format!("INSERT INTO sessions ({COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)");
    connection.prepare_cached(&sql)?.execute(params![
        row.id.as_str(),
        row.status.as_str(),
        row.end.as_ref().map(|end| end.status.as_str()),
        row.end.as_ref().and_then(|end| end.reason.as_deref()),
        json(row)?,
        row.key.as_ref().map(|key| key.key.as_str()),
        row.key.as_ref().map(|key| format!("{:016x}", key.fingerprint)),
        to_millis(row.created_at),
        to_millis(row.last_activity),
        row.ended_at.map(to_millis),
        row.cwd,
    ])?;
    Ok(true)
}

fn claim(connection: &Connection, row: &SessionRow) -> rusqlite::Result<bool> {
    let sql = "UPDATE sessions SET status = ?2, facts = ?3, idempotency_key = ?4, fingerprint = ?5, created_at = ?6, \
               last_activity = ?7, cwd = ?8 WHERE id = ?1 AND status = 'pool_idle'";
    changed(connection.prepare_cached(sql)?.execute(params![
        row.id.as_str(),
        row.status.as_str(),
        json(row)?,
        row.key.as_ref().map(|key| key.key.as_str()),
        row.key.as_ref().map(|key| format!("{:016x}", key.fingerprint)),
        to_millis(row.created_at),
        to_millis(row.last_activity),
        row.cwd,
    ]))
}

/// Changes single fields of the facts, by the names that `SessionSpec` stores them under.
fn update(
    connection: &Connection,
    id: &SessionId,
    lifetime: Option<Duration>,
    labels: Option<&BTreeMap<String, String>>,
    network: Option<&(NetworkSpec, NetworkMaximum)>,
    links: Option<&LinkGenerations>,
    inject: Option<&Vec<InjectionSpec>>,
) -> rusqlite::Result<bool> {
    let unwritable = |error: serde_json::Error| rusqlite::Error::ToSqlConversionFailure(error.into());
    let labels = labels.map(serde_json::to_string).transpose().map_err(unwritable)?;
    let maximum = network.map(|(_, maximum)| serde_json::to_string(maximum)).transpose().map_err(unwritable)?;
    let network = network.map(|(network, _)| serde_json::to_string(network)).transpose().map_err(unwritable)?;
    let links = links.map(serde_json::to_string).transpose().map_err(unwritable)?;
    let inject = inject.map(serde_json::to_string).transpose().map_err(unwritable)?;
    let seconds = lifetime.map(|lifetime| i64::try_from(lifetime.as_secs()).unwrap_or(i64::MAX));
    let sql = "UPDATE sessions SET facts = json_set(facts, \
               '$.lifetime_seconds', coalesce(?2, facts ->> '$.lifetime_seconds'), \
               '$.labels', json(coalesce(?3, facts -> '$.labels', '{}')), \
               '$.network', json(coalesce(?4, facts -> '$.network')), \
               '$.network_maximum', json(coalesce(?5, facts -> '$.network_maximum', '\"daemon\"')), \
               '$.links', json(coalesce(?6, facts -> '$.links', '{\"all\":0,\"ports\":[]}')), \
               '$.inject', json(coalesce(?7, facts -> '$.inject'))) \
               WHERE id = ?1 AND status IN ('running', 'paused')";
    changed(connection.prepare_cached(sql)?.execute(params![
        id.as_str(),
        seconds,
        labels,
        network,
        maximum,
        links,
        inject
    ]))
}

fn json(row: &SessionRow) -> rusqlite::Result<String> {
    row.facts_text().map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))
}

/// Writes the last uses of live sessions. A session that has ended keeps its last use.
fn touch(connection: &Connection, touches: &[Touch]) -> rusqlite::Result<bool> {
    let sql = "UPDATE sessions SET last_activity = ?2, cwd = ?3 WHERE id = ?1 AND status IN ('running', 'paused')";
    let mut statement = connection.prepare_cached(sql)?;
    for touch in touches {
        statement.execute(params![touch.id.as_str(), to_millis(touch.last_activity), touch.cwd])?;
    }
    Ok(true)
}

fn prune(connection: &Connection, before: SystemTime, keep: usize) -> rusqlite::Result<bool> {
    connection.prepare_cached("DELETE FROM sessions WHERE ended_at <= ?1")?.execute([to_millis(before)])?;
    let sql = "DELETE FROM sessions WHERE id IN \
               (SELECT id FROM sessions WHERE ended_at IS NOT NULL ORDER BY ended_at DESC LIMIT -1 OFFSET ?1)";
    connection.prepare_cached(sql)?.execute([i64::try_from(keep).unwrap_or(i64::MAX)])?;
    Ok(true)
}

/// Reads all rows, the oldest first.
pub fn load(connection: &Connection) -> rusqlite::Result<Vec<SessionRow>> {
    let sql = format!("SELECT {COLUMNS} FROM sessions ORDER BY created_at, id");
    connection.prepare(&sql)?.query_map((), read)?.collect()
}

fn read(row: &Row<'_>) -> rusqlite::Result<SessionRow> {
    let text = |index: usize| row.get::<_, String>(index);
    let end = match row.get::<_, Option<String>>(2)? {
        Some(status) => Some(StoredEnd { status: status_of(2, &status)?, reason: row.get(3)? }),
        None => None,
    };
    let key = match (row.get::<_, Option<String>>(5)?, row.get::<_, Option<String>>(6)?) {
        (Some(key), Some(fingerprint)) => {
            let fingerprint = u64::from_str_radix(&fingerprint, 16).map_err(|error| broken(6, error))?;
            Some(StoredKey { key, fingerprint })
        }
        _ => None,
    };
    let (spec, source) = read_facts(&text(4)?).map_err(|error| broken(4, error))?;
    Ok(SessionRow {
        id: SessionId::new(text(0)?).map_err(|error| broken(0, error))?,
        status: status_of(1, &text(1)?)?,
        end,
        spec,
        source,
        key,
        created_at: from_millis(row.get(7)?),
        last_activity: from_millis(row.get(8)?),
        ended_at: row.get::<_, Option<i64>>(9)?.map(from_millis),
        cwd: text(10)?,
    })
}

fn status_of(column: usize, text: &str) -> rusqlite::Result<SessionStatus> {
    let found = SessionStatus::ALL.into_iter().find(|status| status.as_str() == text);
    found.ok_or_else(|| broken(column, std::io::Error::other(format!("{text:?} is no status"))))
}

pub(super) fn broken(column: usize, error: impl std::error::Error + Send + Sync + 'static) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, Type::Text, Box::new(error))
}
