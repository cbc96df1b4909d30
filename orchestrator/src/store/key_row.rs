//! The stored form of an API key: its name, what it may do, and the hash of its secret. The secret itself is stored nowhere.

use std::time::SystemTime;

use rusqlite::{Connection, OptionalExtension as _, Row, params};
use shared_protocol::KeyName;
use shared_protocol::api::{KeyRole, NetworkSpec};

use super::row::{from_millis, to_millis};
use super::statements::broken;
use crate::owner::OwnerLimits;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRow {
    pub name: KeyName,
    /// SHA-256 of the secret.
    pub hash: [u8; 32],
    pub role: KeyRole,
    pub limits: OwnerLimits,
    pub max_network: Option<NetworkSpec>,
    pub created_at: SystemTime,
}

/// Adds a key. Returns `false`, and changes nothing, if there is one with that name.
pub(super) fn add(connection: &Connection, row: &KeyRow) -> rusqlite::Result<bool> {
    let sql = "SELECT 1 FROM keys WHERE name = ?1";
    if connection.query_row(sql, [row.name.as_str()], |_| Ok(())).optional()?.is_some() {
        return Ok(false);
    }
    let whole = |limit: Option<u64>| limit.map(|limit| i64::try_from(limit).unwrap_or(i64::MAX));
    let unwritable = |error: serde_json::Error| rusqlite::Error::ToSqlConversionFailure(error.into());
    let max_network = row.max_network.as_ref().map(serde_json::to_string).transpose().map_err(unwritable)?;
    let sql = "INSERT INTO keys (name, hash, role, max_sessions, max_memory_mb, created_at, max_network) \
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    connection.execute(
        sql,
        params![
            row.name.as_str(),
            row.hash,
            row.role.as_str(),
            whole(row.limits.max_sessions),
            whole(row.limits.max_memory_mb),
            to_millis(row.created_at),
            max_network,
        ],
    )?;
    Ok(true)
}

/// Removes a key. Returns `false` if there is none with that name.
pub(super) fn remove(connection: &Connection, name: &KeyName) -> rusqlite::Result<bool> {
    connection.execute("DELETE FROM keys WHERE name = ?1", [name.as_str()]).map(|count| count > 0)
}

/// Reads all keys by name.
pub(super) fn load(connection: &Connection) -> rusqlite::Result<Vec<KeyRow>> {
    let sql = "SELECT name, hash, role, max_sessions, max_memory_mb, created_at, max_network FROM keys ORDER BY name";
    connection.prepare(sql)?.query_map((), read)?.collect()
}

fn read(row: &Row<'_>) -> rusqlite::Result<KeyRow> {
    let limit = |column: usize| -> rusqlite::Result<Option<u64>> {
        let found: Option<i64> = row.get(column)?;
        found.map(|found| u64::try_from(found).map_err(|error| broken(column, error))).transpose()
    };
    let role: KeyRole =
        row.get::<_, String>(2)?.parse().map_err(|text: String| broken(2, std::io::Error::other(text)))?;
    let max_network: Option<String> = row.get(6)?;
    let max_network =
        max_network.map(|text| serde_json::from_str(&text)).transpose().map_err(|error| broken(6, error))?;
    Ok(KeyRow {
        name: KeyName::new(row.get::<_, String>(0)?).map_err(|error| broken(0, error))?,
        hash: row.get(1)?,
        role,
        limits: OwnerLimits { max_sessions: limit(3)?, max_memory_mb: limit(4)? },
        max_network,
        created_at: from_millis(row.get(5)?),
    })
}
