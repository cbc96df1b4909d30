//! The store by itself, on real files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use shared_protocol::api::{AcquireSource, NetworkMode, ResourcesView, SessionStatus};
use shared_protocol::{RuntimeName, SessionId, WorkspaceId};

use super::*;

fn id(number: usize) -> SessionId {
    SessionId::new(format!("{number:08x}-abc")).unwrap()
}

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000 + seconds)
}

fn row(number: usize, status: SessionStatus) -> SessionRow {
    SessionRow {
        id: id(number),
        status,
        end: None,
        facts: StoredFacts {
            image: "base".into(),
            runtime: RuntimeName::local(),
            workspace: Some(WorkspaceId::new("w").unwrap()),
            labels: BTreeMap::from([("team".to_owned(), "ä'\"".to_owned())]),
            resources: ResourcesView { cpus: 0.5, memory_mb: 64, pids: 32, disk_mb: 16 },
            network: NetworkMode::None,
            writable_root: false,
            lifetime_seconds: 1800,
            idle_pause_seconds: Some(60),
            source: AcquireSource::Cold,
        },
        key: Some(StoredKey { key: format!("key-{number}"), fingerprint: u64::MAX - 1 }),
        created_at: at(0),
        last_activity: at(1),
        ended_at: None,
        cwd: "/workspace".into(),
    }
}

fn file() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(FILE_NAME);
    (folder, path)
}

fn insert(number: usize, status: SessionStatus) -> Write {
    Write::Insert(Box::new(row(number, status)))
}

#[tokio::test]
async fn what_was_written_is_there_when_it_is_opened_again() {
    let (_folder, path) = file();
    let (store, rows) = Store::open(&path).unwrap();
    assert!(rows.is_empty());
    store.write(insert(1, SessionStatus::Creating)).await.unwrap();
    store.write(Write::Running { id: id(1), at: at(2) }).await.unwrap();
    store.write(insert(2, SessionStatus::Creating)).await.unwrap();
    let crash = StoredEnd { status: SessionStatus::Crashed, reason: Some("killed".into()) };
    store.write(Write::Destroying { id: id(2), end: crash.clone() }).await.unwrap();
    store.write(insert(3, SessionStatus::Creating)).await.unwrap();
    store.write(Write::Forget { id: id(3) }).await.unwrap();
    store.write(Write::Touch(vec![Touch { id: id(1), last_activity: at(9), cwd: "/tmp".into() }])).await.unwrap();
    store.close().await;
    assert_eq!(store.write(Write::Forget { id: id(1) }).await, Err(StoreError::Closed));
    let (_store, rows) = Store::open(&path).unwrap();
    let running = SessionRow { last_activity: at(9), cwd: "/tmp".into(), ..row(1, SessionStatus::Running) };
    let destroying = SessionRow { end: Some(crash), ..row(2, SessionStatus::Destroying) };
    assert_eq!(rows, [running, destroying]);
}

#[test]
fn only_its_owner_can_read_it() {
    use std::os::unix::fs::PermissionsExt as _;
    let (folder, path) = file();
    let _store = Store::inline(&path).unwrap();
    for entry in std::fs::read_dir(folder.path()).unwrap().map(Result::unwrap) {
        assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{:?}", entry.path());
    }
}

#[tokio::test]
async fn a_storm_of_writes_is_all_there_and_each_is_answered() {
    let (_folder, path) = file();
    let (store, _) = Store::open(&path).unwrap();
    let writes = (0..2000).map(|number| store.write(insert(number, SessionStatus::Creating)));
    for result in futures_util::future::join_all(writes).await {
        result.unwrap();
    }
    // One that cannot be is refused alone, whoever is written with it.
    let writes = (1999..2100).map(|number| store.write(insert(number, SessionStatus::Creating)));
    let results = futures_util::future::join_all(writes).await;
    assert!(matches!(results[0], Err(StoreError::Failed(_))), "{:?}", results[0]);
    assert!(results[1..].iter().all(Result::is_ok));
    store.close().await;
    assert_eq!(Store::open(&path).unwrap().1.len(), 2100);
}

#[tokio::test]
async fn of_many_claims_on_one_sandbox_one_wins() {
    let (_folder, path) = file();
    let (store, _) = Store::open(&path).unwrap();
    store.write(insert(1, SessionStatus::Creating)).await.unwrap();
    assert_eq!(
        store.write(Write::Claim(Box::new(row(1, SessionStatus::Creating)))).await,
        Err(StoreError::NotIdle(id(1)))
    );
    store.write(Write::PoolIdle { id: id(1) }).await.unwrap();
    let claims = (0..500).map(|number| {
        let key = StoredKey { key: format!("claim-{number}"), fingerprint: 7 };
        store.write(Write::Claim(Box::new(SessionRow { key: Some(key), ..row(1, SessionStatus::Creating) })))
    });
    let results = futures_util::future::join_all(claims).await;
    let winners: Vec<usize> = (0..500).filter(|n| results[*n].is_ok()).collect();
    assert_eq!(winners.len(), 1);
    assert!(results.iter().all(|result| matches!(result, Ok(()) | Err(StoreError::NotIdle(_)))));
    store.close().await;
    let rows = Store::open(&path).unwrap().1;
    assert_eq!(rows[0].key.as_ref().unwrap().key, format!("claim-{}", winners[0]));
    assert_eq!(rows[0].status, SessionStatus::Creating);
}

#[test]
fn an_end_that_could_not_be_written_is_written_with_the_next_that_can() {
    let (_folder, path) = file();
    let (store, _) = Store::inline(&path).unwrap();
    let now = |write: Write| futures_util::FutureExt::now_or_never(store.write(write)).unwrap();
    now(insert(1, SessionStatus::Running)).unwrap();
    store.refuse_writes(true);
    let end = StoredEnd { status: SessionStatus::Destroyed, reason: None };
    assert!(matches!(now(insert(2, SessionStatus::Creating)), Err(StoreError::Failed(_))));
    assert!(now(Write::Ended { id: id(1), end: end.clone(), at: at(5) }).is_err());
    assert!(store.failure().is_some() && store.owes());
    store.refuse_writes(false);
    now(Write::Touch(Vec::new())).unwrap();
    assert!(store.failure().is_none() && !store.owes());
    let rows = store.rows();
    assert_eq!((rows.len(), rows[0].status, rows[0].end.clone()), (1, SessionStatus::Destroyed, Some(end)));
}

#[test]
fn old_tombstones_go_and_no_more_than_so_many_stay() {
    let store = Store::in_memory();
    let now = |write: Write| futures_util::FutureExt::now_or_never(store.write(write)).unwrap().unwrap();
    let end = StoredEnd { status: SessionStatus::Expired, reason: None };
    for number in 0..10 {
        now(insert(number, SessionStatus::Running));
        if number > 0 {
            now(Write::Ended { id: id(number), end: end.clone(), at: at(u64::try_from(number).unwrap()) });
        }
    }
    now(Write::Prune { before: at(3), keep: 4 });
    let left: Vec<SessionId> = store.rows().into_iter().map(|row| row.id).collect();
    assert_eq!(left, [id(0), id(6), id(7), id(8), id(9)], "what lives is never pruned");
}

#[track_caller]
fn assert_refused(path: &Path, words: &[&str]) {
    let error = Store::open(path).err().expect("it was opened");
    let said = error.to_string();
    assert!(matches!(error, StoreError::Unusable { .. }), "{said}");
    assert!(words.iter().all(|word| said.contains(word)) && !said.contains('\n'), "{said}");
}

#[test]
fn a_damaged_database_is_refused_and_left_as_it_is() {
    let (_folder, path) = file();
    std::fs::write(&path, b"this is no database, whatever its name says").unwrap();
    assert_refused(&path, &["damaged", "restore it", path.to_str().unwrap()]);
    assert_eq!(std::fs::read(&path).unwrap(), b"this is no database, whatever its name says");
}

#[test]
fn a_damaged_page_is_noticed() {
    let (folder, path) = file();
    let (store, _) = Store::inline(&path).unwrap();
    for number in 0..500 {
        futures_util::FutureExt::now_or_never(store.write(insert(number, SessionStatus::Running))).unwrap().unwrap();
    }
    drop(store);
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle..middle + 4096].fill(0xa5);
    std::fs::write(&path, bytes).unwrap();
    assert_refused(&path, &["damaged"]);
    drop(folder);
}

#[test]
fn a_row_that_makes_no_sense_is_damage_and_not_a_session_less() {
    let (_folder, path) = file();
    let (store, _) = Store::inline(&path).unwrap();
    futures_util::FutureExt::now_or_never(store.write(insert(1, SessionStatus::Running))).unwrap().unwrap();
    drop(store);
    let other = rusqlite::Connection::open(&path).unwrap();
    other.execute("UPDATE sessions SET status = 'dreaming'", ()).unwrap();
    drop(other);
    assert_refused(&path, &["damaged", "dreaming"]);
}

#[test]
fn a_newer_database_is_refused() {
    let (_folder, path) = file();
    drop(Store::inline(&path).unwrap());
    let other = rusqlite::Connection::open(&path).unwrap();
    other.pragma_update(None, "user_version", schema::VERSION + 1).unwrap();
    drop(other);
    assert_refused(&path, &["newer", "start that version"]);
}

#[test]
fn a_database_that_somebody_has_locked_is_refused_in_bounded_time() {
    let (_folder, path) = file();
    drop(Store::inline(&path).unwrap());
    let other = rusqlite::Connection::open(&path).unwrap();
    other.execute_batch("BEGIN EXCLUSIVE").unwrap();
    assert_refused(&path, &["locked", "end the program"]);
    other.execute_batch("ROLLBACK").unwrap();
    Store::inline(&path).unwrap();
}
