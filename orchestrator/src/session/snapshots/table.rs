//! The snapshots that the daemon knows: whose they are, and which ones are being used. A plain value under a lock; nothing waits.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::json;
use shared_protocol::{KeyName, SnapshotId};

use crate::config::SnapshotsConfig;
use crate::session::SessionError;
use crate::store::SnapshotRow;

#[derive(Debug, Clone)]
pub struct SnapshotTable(Arc<Mutex<Known>>);

#[derive(Debug)]
struct Known {
    config: SnapshotsConfig,
    snapshots: BTreeMap<SnapshotId, Entry>,
}

#[derive(Debug)]
struct Entry {
    row: SnapshotRow,
    /// How many sessions are being made from it.
    users: usize,
}

/// The right to make a session from a snapshot. While there is one, the snapshot cannot be removed.
#[derive(Debug)]
pub struct SnapshotHold {
    table: SnapshotTable,
    pub row: SnapshotRow,
}

impl Drop for SnapshotHold {
    fn drop(&mut self) {
        if let Some(entry) = self.table.lock().snapshots.get_mut(&self.row.id) {
            entry.users = entry.users.saturating_sub(1);
        }
    }
}

impl SnapshotTable {
    pub fn new(config: SnapshotsConfig) -> Self {
        Self(Arc::new(Mutex::new(Known { config, snapshots: BTreeMap::new() })))
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn knows(&self, id: &SnapshotId) -> bool {
        self.lock().snapshots.contains_key(id)
    }

    /// Adds a snapshot that is about to be made, if its owner may have one more. One that exists only for a fork does not count.
    pub fn reserve(&self, row: SnapshotRow) -> Result<(), SessionError> {
        let mut known = self.lock();
        let (count, _) = known.of_owner(&row.facts.spec.owner);
        let limit = known.config.max_per_owner;
        if !row.facts.is_temporary && count >= limit {
            let message = format!("there are {count} snapshots already, and the limit is {limit}: remove some first");
            let details = json!({ "what": "snapshots", "limit": limit, "in_use": count, "asked": 1 });
            return Err(SessionError::Limit { message, details });
        }
        known.snapshots.insert(row.id.clone(), Entry { row, users: 0 });
        Ok(())
    }

    /// Notes what a snapshot that is being made holds, from when on it counts. Refuses one that is too much for its owner, with what
    /// its other snapshots hold.
    pub fn note_size(&self, id: &SnapshotId, bytes: u64) -> Result<(), SessionError> {
        let mut known = self.lock();
        let limit = known.config.max_bytes_per_owner();
        let Some(owner) = known.snapshots.get(id).map(|entry| entry.row.facts.spec.owner.clone()) else {
            return Ok(());
        };
        // Its own size is not known before.
        let (_, held) = known.of_owner(&owner);
        let Some(limit) = limit.filter(|limit| held.saturating_add(bytes) > *limit) else {
            if let Some(entry) = known.snapshots.get_mut(id) {
                entry.row.facts.bytes = bytes;
            }
            return Ok(());
        };
        let mib = |bytes: u64| bytes.div_ceil(1 << 20);
        let message = format!(
            "the snapshot holds {} MiB, the others {}, and the limit is {} MiB: remove some first",
            mib(bytes),
            mib(held),
            mib(limit)
        );
        let details =
            json!({ "what": "MiB of snapshots", "limit": mib(limit), "in_use": mib(held), "asked": mib(bytes) });
        Err(SessionError::Limit { message, details })
    }

    /// Adds a snapshot of an earlier daemon, or replaces the row of one that is ready now.
    pub fn insert(&self, row: SnapshotRow) {
        let mut known = self.lock();
        let users = known.snapshots.get(&row.id).map_or(0, |entry| entry.users);
        known.snapshots.insert(row.id.clone(), Entry { row, users });
    }

    /// Forgets a snapshot that was not made, or is no longer there.
    pub fn forget(&self, id: &SnapshotId) {
        self.lock().snapshots.remove(id);
    }

    /// Takes a snapshot out, so that nobody can use it any more. Refused while a session is made from it.
    pub fn take(&self, id: &SnapshotId) -> Result<SnapshotRow, SessionError> {
        let mut known = self.lock();
        match known.snapshots.get(id) {
            None => Err(SessionError::SnapshotNotFound(id.clone())),
            Some(entry) if !entry.row.is_ready => {
                Err(SessionError::Conflict(format!("the snapshot {id} is still being made; try again")))
            }
            Some(entry) if entry.users > 0 => Err(SessionError::Conflict(format!(
                "{} sessions are being made from the snapshot {id}; try again",
                entry.users
            ))),
            Some(_) => match known.snapshots.remove(id) {
                Some(entry) => Ok(entry.row),
                None => Err(SessionError::SnapshotNotFound(id.clone())),
            },
        }
    }

    /// A snapshot that is ready.
    pub fn get(&self, id: &SnapshotId) -> Result<SnapshotRow, SessionError> {
        let known = self.lock();
        let found = known.snapshots.get(id).filter(|entry| entry.row.is_ready);
        found.map(|entry| entry.row.clone()).ok_or_else(|| SessionError::SnapshotNotFound(id.clone()))
    }

    pub fn hold(&self, id: &SnapshotId) -> Result<SnapshotHold, SessionError> {
        let mut known = self.lock();
        let found = known.snapshots.get_mut(id).filter(|entry| entry.row.is_ready);
        let entry = found.ok_or_else(|| SessionError::SnapshotNotFound(id.clone()))?;
        entry.users += 1;
        Ok(SnapshotHold { table: self.clone(), row: entry.row.clone() })
    }

    /// The snapshots that clients see, the oldest first.
    pub fn list(&self) -> Vec<SnapshotRow> {
        let known = self.lock();
        let shown = known.snapshots.values().filter(|entry| entry.row.is_ready && !entry.row.facts.is_temporary);
        let mut rows: Vec<SnapshotRow> = shown.map(|entry| entry.row.clone()).collect();
        rows.sort_by(|a, b| (a.created_at, &a.id).cmp(&(b.created_at, &b.id)));
        rows
    }
}

impl Known {
    /// How many snapshots an owner has, and the bytes that they hold together.
    fn of_owner(&self, owner: &KeyName) -> (u64, u64) {
        let own = self.snapshots.values().filter(|entry| entry.row.facts.spec.owner == *owner);
        let own = own.filter(|entry| !entry.row.facts.is_temporary);
        own.fold((0, 0), |(count, bytes), entry| (count + 1, bytes.saturating_add(entry.row.facts.bytes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, SystemTime};

    use shared_protocol::api::ResourcesView;
    use shared_protocol::{RuntimeName, SessionId};

    use crate::spec::SessionSpec;
    use crate::store::SnapshotFacts;

    fn row(id: &str, owner: &str, mib: u64) -> SnapshotRow {
        let resources = ResourcesView { cpus: 1.0, memory_mb: 64, pids: 64, disk_mb: 64 };
        let mut spec = SessionSpec::plain("base", RuntimeName::local(), resources, Duration::from_secs(60));
        spec.owner = KeyName::new(owner).unwrap();
        SnapshotRow {
            id: SnapshotId::new(id).unwrap(),
            is_ready: true,
            facts: SnapshotFacts {
                name: None,
                session: SessionId::new("s").unwrap(),
                spec: Box::new(spec),
                bytes: mib << 20,
                shells: Vec::new(),
                is_temporary: false,
            },
            created_at: SystemTime::UNIX_EPOCH,
        }
    }

    fn table(max_per_owner: u64, max_mb_per_owner: u64) -> SnapshotTable {
        SnapshotTable::new(SnapshotsConfig { max_per_owner, max_mb_per_owner: Some(max_mb_per_owner) })
    }

    #[test]
    fn an_owner_has_its_own_limits_and_a_fork_does_not_count() {
        let table = table(2, 10);
        table.reserve(row("a", "alice", 4)).unwrap();
        table.reserve(row("b", "alice", 0)).unwrap();
        assert!(matches!(table.reserve(row("c", "alice", 0)), Err(SessionError::Limit { .. })));
        let mut fork = row("f", "alice", 4);
        fork.facts.is_temporary = true;
        table.reserve(fork).unwrap();
        table.reserve(row("d", "bob", 0)).unwrap();
        let id = |text: &str| SnapshotId::new(text).unwrap();
        assert!(matches!(table.note_size(&id("b"), 7 << 20), Err(SessionError::Limit { .. })));
        assert!(table.note_size(&id("b"), 5 << 20).is_ok());
        // It counts although it is not ready.
        table.forget(&id("a"));
        table.reserve(row("e", "alice", 0)).unwrap();
        assert!(matches!(table.note_size(&id("e"), 6 << 20), Err(SessionError::Limit { .. })));
        assert!(table.note_size(&id("e"), 5 << 20).is_ok());
        assert_eq!(table.list().len(), 3, "nobody sees what a fork uses");
    }

    #[test]
    fn a_snapshot_is_not_removed_while_a_session_is_made_from_it_or_while_it_is_made() {
        let (table, id) = (table(9, 0), SnapshotId::new("a").unwrap());
        table.reserve(SnapshotRow { is_ready: false, ..row("a", "alice", 0) }).unwrap();
        assert!(matches!(table.take(&id), Err(SessionError::Conflict(_))));
        assert!(table.hold(&id).is_err() && table.get(&id).is_err() && table.list().is_empty());
        table.insert(row("a", "alice", 0));
        let holds = [table.hold(&id).unwrap(), table.hold(&id).unwrap()];
        assert!(matches!(table.take(&id), Err(SessionError::Conflict(_))));
        drop(holds);
        table.take(&id).unwrap();
        assert!(matches!(table.take(&id), Err(SessionError::SnapshotNotFound(_))));
    }
}
