//! Tests of the store alone, on real files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use shared_protocol::api::{AcquireSource, KeyRole, NetworkSpec, ResourcesView, SessionStatus};
use shared_protocol::{KeyName, RuntimeName, SessionId, WorkspaceId};

use super::*;
use crate::owner::{NetworkMaximum, OwnerLimits};
use crate::spec::SessionSpec;

const RESOURCES: ResourcesView = ResourcesView { cpus: 0.5, memory_mb: 64, pids: 32, disk_mb: 16 };

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
        spec: Arc::new(SessionSpec {
            workspace: Some(WorkspaceId::new("w").unwrap()),
            labels: BTreeMap::from([("team".to_owned(), "ä'\"".to_owned())]),
            idle_pause: Some(Duration::from_secs(60)),
            ..SessionSpec::plain("base", RuntimeName::local(), RESOURCES, Duration::from_secs(1800))
        }),
        source: AcquireSource::Cold,
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

#[tokio::test]
async fn a_change_of_lifetime_or_labels_is_there_at_the_next_start_and_the_rest_is_as_it_was() {
    let (_folder, path) = file();
    let (store, _) = Store::open(&path).unwrap();
    let labels = BTreeMap::from([("job".to_owned(), "a \"b\" ' é".to_owned())]);
    let update = |number, lifetime, labels| Write::Update {
        id: id(number),
        lifetime,
        labels,
        network: None,
        links: None,
        inject: None,
    };
    for number in 1..=3 {
        store.write(insert(number, SessionStatus::Running)).await.unwrap();
    }
    store.write(update(1, Some(Duration::from_secs(77)), None)).await.unwrap();
    store.write(update(2, None, Some(labels.clone()))).await.unwrap();
    store.write(update(3, Some(Duration::from_secs(5)), Some(labels.clone()))).await.unwrap();
    store.write(update(3, None, Some(BTreeMap::new()))).await.unwrap();
    let mut links = LinkGenerations::default();
    links.take_back(80);
    let network: NetworkSpec = serde_json::from_str(r#"{"allow":["example.com"]}"#).unwrap();
    let set = Write::Update {
        id: id(3),
        lifetime: None,
        labels: None,
        network: Some(Box::new((network.clone(), NetworkMaximum::Key(network.clone())))),
        links: Some(links.clone()),
        inject: None,
    };
    store.write(set).await.unwrap();
    store.write(insert(4, SessionStatus::Destroyed)).await.unwrap();
    assert!(store.write(update(4, Some(Duration::ZERO), None)).await.is_err(), "it has ended");
    store.close().await;
    let rows = Store::open(&path).unwrap().1;
    let spec = row(1, SessionStatus::Running).spec;
    let changed = |lifetime: Option<u64>, labels: &BTreeMap<String, String>| SessionSpec {
        lifetime: lifetime.map_or(spec.lifetime, Duration::from_secs),
        labels: labels.clone(),
        ..SessionSpec::clone(&spec)
    };
    assert_eq!(*rows[0].spec, changed(Some(77), &spec.labels));
    assert_eq!(*rows[1].spec, changed(None, &labels));
    assert_eq!(
        *rows[2].spec,
        SessionSpec {
            network: network.clone(),
            network_maximum: NetworkMaximum::Key(network),
            links,
            ..changed(Some(5), &BTreeMap::new())
        }
    );
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
    // An invalid write fails alone, and the writes beside it succeed.
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

/// The column `facts` as version 0.1 wrote it, field for field.
const OLD_FACTS: &str = r#"{"image":"base","runtime":"local","workspace":"w","labels":{"team":"a"},"resources":{"cpus":0.5,"memory_mb":64,"pids":32,"disk_mb":16},"network":"none","writable_root":false,"lifetime_seconds":1800,"idle_pause_seconds":60,"source":"pool"}"#;
/// The same column for a session that asked for nothing: fields without a value were not written.
const OLD_PLAIN_FACTS: &str = r#"{"image":"base","runtime":"local","resources":{"cpus":0.5,"memory_mb":64,"pids":32,"disk_mb":16},"network":"full","writable_root":true,"lifetime_seconds":7,"source":"cold"}"#;

#[test]
fn rows_of_an_earlier_version_are_read_and_written_as_they_were() {
    let (spec, source) = row::read_facts(OLD_FACTS).unwrap();
    let expected = SessionSpec {
        workspace: Some(WorkspaceId::new("w").unwrap()),
        labels: BTreeMap::from([("team".to_owned(), "a".to_owned())]),
        idle_pause: Some(Duration::from_secs(60)),
        ..SessionSpec::plain("base", RuntimeName::local(), RESOURCES, Duration::from_secs(1800))
    };
    assert_eq!((&*spec, source), (&expected, AcquireSource::Pool));
    // After a downgrade, an older daemon can read the row again.
    assert_eq!(SessionRow { spec, source, ..row(1, SessionStatus::Running) }.facts_text().unwrap(), OLD_FACTS);
    let (spec, source) = row::read_facts(OLD_PLAIN_FACTS).unwrap();
    let expected = SessionSpec {
        network: NetworkSpec::preset(NetworkSpec::FULL),
        writable_root: true,
        ..SessionSpec::plain("base", RuntimeName::local(), RESOURCES, Duration::from_secs(7))
    };
    assert_eq!((&*spec, source), (&expected, AcquireSource::Cold));
    assert_eq!(SessionRow { spec, source, ..row(1, SessionStatus::Running) }.facts_text().unwrap(), OLD_PLAIN_FACTS);
}

#[test]
fn fields_of_a_later_version_do_not_keep_a_session_from_being_read() {
    let later = OLD_PLAIN_FACTS.replace("{\"image\"", "{\"invented_later\":[1],\"image\"");
    assert!(row::read_facts(&later).is_ok());
}

fn key_row(name: &str, role: KeyRole) -> KeyRow {
    let limits = OwnerLimits { max_sessions: Some(2), max_memory_mb: None };
    KeyRow { name: KeyName::new(name).unwrap(), hash: [7; 32], role, limits, max_network: None, created_at: at(3) }
}

#[tokio::test]
async fn a_key_is_kept_once_and_is_gone_when_it_was_removed() {
    let (_folder, path) = file();
    let (store, _) = Store::open(&path).unwrap();
    assert_eq!(store.keys_at_open(), []);
    let max_network = Some(serde_json::from_str(r#"{"allow":["example.com:22"]}"#).unwrap());
    let (alice, bob) = (KeyRow { max_network, ..key_row("alice", KeyRole::User) }, key_row("bob", KeyRole::Admin));
    let add = |row: &KeyRow| store.write(Write::AddKey(Box::new(row.clone())));
    add(&bob).await.unwrap();
    add(&alice).await.unwrap();
    let other = KeyRow { hash: [8; 32], ..alice.clone() };
    assert_eq!(add(&other).await, Err(StoreError::KeyExists(alice.name.clone())));
    store.close().await;
    let (store, _) = Store::open(&path).unwrap();
    assert_eq!(store.keys_at_open(), [alice.clone(), bob.clone()]);
    store.write(Write::RemoveKey { name: alice.name.clone() }).await.unwrap();
    let again = store.write(Write::RemoveKey { name: alice.name.clone() }).await;
    assert_eq!(again, Err(StoreError::NoKey(alice.name)));
    store.close().await;
    assert_eq!(Store::open(&path).unwrap().0.keys_at_open(), [bob]);
}

/// The first version of the database, as a daemon without keys and owners left it.
#[test]
fn a_database_without_keys_is_migrated_and_its_sessions_belong_to_the_first_key() {
    let (_folder, path) = file();
    let old = rusqlite::Connection::open(&path).unwrap();
    old.execute_batch(schema::FIRST_STEP).unwrap();
    old.pragma_update(None, "user_version", 1).unwrap();
    let sql =
        "INSERT INTO sessions VALUES ('00000001-abc', 'running', NULL, NULL, ?1, 'k', 'ff', 1, 2, NULL, '/workspace')";
    old.execute(sql, [OLD_FACTS]).unwrap();
    drop(old);
    let (store, rows) = Store::inline(&path).unwrap();
    assert_eq!((rows.len(), &rows[0].spec.owner), (1, &KeyName::first()));
    assert_eq!(rows[0].spec.workspace_name().unwrap().owner, KeyName::first());
    let write = store.write(Write::AddKey(Box::new(key_row("alice", KeyRole::User))));
    futures_util::FutureExt::now_or_never(write).unwrap().unwrap();
    drop(store);
    let (store, rows) = Store::inline(&path).unwrap();
    assert_eq!((rows.len(), store.keys_at_open().len()), (1, 1));
}

#[test]
fn the_owner_of_a_session_is_stored() {
    let store = Store::in_memory();
    let spec = SessionSpec {
        owner: KeyName::new("alice").unwrap(),
        ..SessionSpec::clone(&row(1, SessionStatus::Running).spec)
    };
    let row = SessionRow { spec: Arc::new(spec), ..row(1, SessionStatus::Running) };
    futures_util::FutureExt::now_or_never(store.write(Write::Insert(Box::new(row.clone())))).unwrap().unwrap();
    assert_eq!(store.rows(), [row]);
}
