//! A store that cannot be used: the daemon prints one clear line, ends with status 1, and touches nothing.

use e2e::daemon::{Daemon, Leftovers, Session};

/// A daemon that was killed with one session, and that session.
async fn killed() -> (Daemon, Session) {
    let mut daemon = Daemon::start().await;
    let session = daemon.session().await;
    daemon.kill().await;
    (daemon, session)
}

async fn is_refused(daemon: &mut Daemon, words: &[&str]) {
    let (status, said) = daemon.start_in_vain().await;
    assert_eq!(status.code(), Some(1), "{said}");
    let last = said.lines().last().unwrap_or_default();
    assert!(words.iter().all(|word| last.contains(word)), "{said}");
    assert_eq!(Leftovers::sandboxes(&daemon.data_dir()).len(), 1, "the sandbox is left alone");
}

async fn is_back(daemon: Daemon, session: Session) {
    let daemon = daemon.start_again();
    let session = Session { api: daemon.api().clone(), ..session };
    assert_eq!(session.sh("echo well").await, "well\n");
    daemon.stop().await;
}

#[tokio::test]
async fn a_damaged_database_is_refused_until_it_is_mended() {
    let _alone = crate::alone().await;
    let (mut daemon, session) = killed().await;
    let (path, wal) = (daemon.data_dir().join("cove.db"), daemon.data_dir().join("cove.db-wal"));
    let (good, good_wal) = (std::fs::read(&path).expect("a database"), std::fs::read(&wal).expect("its log"));
    std::fs::remove_file(&wal).expect("our own");
    std::fs::write(&path, b"not a database at all, but long enough to look at as if it were one").expect("our own");
    is_refused(&mut daemon, &["damaged", "restore it from a backup", "cove.db"]).await;
    std::fs::write(&path, good).expect("our own");
    std::fs::write(&wal, good_wal).expect("our own");
    is_back(daemon, session).await;
}

#[tokio::test]
async fn a_newer_or_a_locked_database_is_refused() {
    let _alone = crate::alone().await;
    let (mut daemon, session) = killed().await;
    let path = daemon.data_dir().join("cove.db");
    let other = rusqlite::Connection::open(&path).expect("a database");
    let version: i64 = other.query_row("PRAGMA user_version", (), |row| row.get(0)).expect("a version");
    other.pragma_update(None, "user_version", version + 7).expect("a write");
    is_refused(&mut daemon, &["newer cove", "start that version"]).await;
    other.pragma_update(None, "user_version", version).expect("a write");
    other.execute_batch("BEGIN EXCLUSIVE").expect("a lock");
    is_refused(&mut daemon, &["locked", "end the program"]).await;
    drop(other);
    is_back(daemon, session).await;
}
