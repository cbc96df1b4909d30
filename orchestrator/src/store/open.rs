//! Opens the database. If that fails, the error says in one line why, and what to do.

use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::StoreError;
use super::schema::{self, VERSION};

/// The longest wait for another process's transaction, such as a backup or a person with `sqlite3`. It cannot be another
/// daemon's, because this daemon holds the lock.
const BUSY_TIMEOUT: Duration = Duration::from_secs(2);
/// The size to which the write-ahead log is truncated at a checkpoint.
const MAX_WAL_BYTES: i64 = 4 << 20;

const ADVICE_DAMAGED: &str = "restore it from a backup, or move it away with its -wal file to start without the sessions it knew, whose \
                              sandboxes are then removed";
const ADVICE_LOCKED: &str = "end the program that has it open (a backup, sqlite3) and start again";
const ADVICE_NEWER: &str = "start that version of cove, or use another data directory";
const ADVICE_WRITE: &str = "make the data directory and the files in it writable, with space left, and start again";

pub fn open(path: &Path) -> Result<Connection, StoreError> {
    let is_file = path != Path::new(":memory:");
    if is_file {
        // The file is created here with a private mode, so that no other user can ever read it. SQLite gives its other files
        // the same mode.
        let made = std::fs::OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path);
        made.map_err(|error| unusable(path, format!("cannot be opened for writing ({error})"), ADVICE_WRITE))?;
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let opened = Connection::open_with_flags(path, flags);
    let mut connection = opened.map_err(|error| explain(path, error))?;
    prepare(&connection).map_err(|error| explain(path, error))?;
    let found = schema::version(&connection).map_err(|error| explain(path, error))?;
    if !(0..=VERSION).contains(&found) {
        let problem = format!("was written by a newer cove (version {found} of it, this one knows {VERSION})");
        return Err(unusable(path, problem, ADVICE_NEWER));
    }
    check(&connection).map_err(|error| explain(path, error))?.map_or(Ok(()), |problem| {
        Err(unusable(path, format!("is damaged ({})", one_line(&problem)), ADVICE_DAMAGED))
    })?;
    schema::migrate(&mut connection).map_err(|error| explain(path, error))?;
    Ok(connection)
}

fn prepare(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(BUSY_TIMEOUT)?;
    // With WAL, readers and the writer do not wait for each other, and a commit is one append. The log is not synced: the
    // part of it that a power cut loses describes sandboxes that end in the same power cut, and the database stays
    // consistent.
    let _: String = connection.query_row("PRAGMA journal_mode = WAL", (), |row| row.get(0))?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    connection.pragma_update(None, "journal_size_limit", MAX_WAL_BYTES)?;
    connection.pragma_update(None, "foreign_keys", "ON")?;
    // SQLite must not trust functions or views that somebody wrote into the file's schema.
    connection.pragma_update(None, "trusted_schema", "OFF")
}

/// Checks the database and returns what is wrong with it, if anything. The database is small, so this takes a few
/// milliseconds.
fn check(connection: &Connection) -> rusqlite::Result<Option<String>> {
    let found: String = connection.query_row("PRAGMA quick_check(1)", (), |row| row.get(0))?;
    Ok((found != "ok").then_some(found))
}

/// Converts an error that SQLite returns at the start.
pub fn explain(path: &Path, error: rusqlite::Error) -> StoreError {
    let said = one_line(&error.to_string());
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            unusable(path, "is locked by another program".into(), ADVICE_LOCKED)
        }
        Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::DiskFull | ErrorCode::PermissionDenied) => {
            unusable(path, format!("cannot be written ({said})"), ADVICE_WRITE)
        }
        Some(ErrorCode::SystemIoFailure) => unusable(path, format!("cannot be read ({said})"), ADVICE_WRITE),
        _ => unusable(path, format!("is damaged ({said})"), ADVICE_DAMAGED),
    }
}

fn unusable(path: &Path, problem: String, advice: &'static str) -> StoreError {
    StoreError::Unusable { path: path.to_owned(), problem, advice }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
