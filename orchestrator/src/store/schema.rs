//! The tables, as a list of migration steps: a database of version N has had the first N steps. A released step never
//! changes.

use rusqlite::{Connection, TransactionBehavior};

const STEPS: [&str; 4] = [FIRST_STEP, KEYS_STEP, KEY_NETWORK_STEP, SNAPSHOTS_STEP];

pub(super) const FIRST_STEP: &str = "
    CREATE TABLE sessions (
        id              TEXT    NOT NULL PRIMARY KEY,
        status          TEXT    NOT NULL,
        -- Why it ends or has ended, and what is known of a crash.
        ending          TEXT,
        reason          TEXT,
        -- JSON: what never changes of it.
        facts           TEXT    NOT NULL,
        idempotency_key TEXT,
        -- Of the request that the key came with, in hexadecimal.
        fingerprint     TEXT,
        -- Milliseconds since 1970.
        created_at      INTEGER NOT NULL,
        last_activity   INTEGER NOT NULL,
        ended_at        INTEGER,
        cwd             TEXT    NOT NULL
    ) STRICT;
    CREATE INDEX sessions_by_end ON sessions (ended_at) WHERE ended_at IS NOT NULL;
";

const KEYS_STEP: &str = "
    CREATE TABLE keys (
        name            TEXT    NOT NULL PRIMARY KEY,
        -- SHA-256 of the secret.
        hash            BLOB    NOT NULL CHECK (length(hash) = 32),
        role            TEXT    NOT NULL,
        max_sessions    INTEGER,
        max_memory_mb   INTEGER,
        -- Milliseconds since 1970.
        created_at      INTEGER NOT NULL
    ) STRICT;
";

/// JSON, in the form of the field `network` of a create.
const KEY_NETWORK_STEP: &str = "ALTER TABLE keys ADD COLUMN max_network TEXT;";

const SNAPSHOTS_STEP: &str = "
    CREATE TABLE snapshots (
        id              TEXT    NOT NULL PRIMARY KEY,
        -- `making`, then `ready`.
        status          TEXT    NOT NULL,
        -- JSON: what it was made of, and what it holds.
        facts           TEXT    NOT NULL,
        -- Milliseconds since 1970.
        created_at      INTEGER NOT NULL
    ) STRICT;
";

/// The schema version that this program writes.
pub const VERSION: i64 = {
    #[expect(clippy::cast_possible_wrap, reason = "a handful of steps")]
    let count = STEPS.len() as i64;
    count
};

pub fn version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.query_row("PRAGMA user_version", (), |row| row.get(0))
}

/// Migrates an older or a new database to the current version, in one transaction.
pub fn migrate(connection: &mut Connection) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let done = usize::try_from(version(&transaction)?).unwrap_or(usize::MAX);
    for step in STEPS.iter().skip(done) {
        transaction.execute_batch(step)?;
    }
    if done < STEPS.len() {
        transaction.pragma_update(None, "user_version", VERSION)?;
    }
    transaction.commit()
}
