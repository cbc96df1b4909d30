//! Clears up what an earlier daemon left of snapshots: those that are not ready, files without a row, and rows without files.

use std::collections::BTreeSet;

use shared_protocol::SnapshotId;
use tracing::{info, warn};

use crate::failpoint;
use crate::session::{Registry, SessionError};
use crate::store::{SnapshotRow, Write};

impl Registry {
    /// Restores the snapshots that are ready, and removes the rest. Called once, before any session is made from one.
    pub(in crate::session) async fn recover_snapshots(&self) {
        let rows = self.0.store.snapshots_at_open().to_vec();
        for runtime in self.0.runtimes.values() {
            let own: Vec<SnapshotRow> =
                rows.iter().filter(|row| row.facts.spec.runtime == runtime.name()).cloned().collect();
            if let Err(error) = runtime.keeps_disks() {
                // The disks are not open now. Nothing is decided about what may be on them.
                if !own.is_empty() {
                    let cause = SessionError::chain(&error);
                    warn!(snapshots = own.len(), %cause, "snapshots cannot be used now");
                }
                own.into_iter().filter(is_lasting).for_each(|row| self.0.snapshots.insert(row));
                continue;
            }
            let found: BTreeSet<SnapshotId> = match runtime.list_snapshots().await {
                Ok(found) => found.into_iter().collect(),
                Err(error) => {
                    let cause = SessionError::chain(&error);
                    warn!(runtime = %runtime.name(), %cause, "snapshots could not be listed");
                    own.into_iter().filter(is_lasting).for_each(|row| self.0.snapshots.insert(row));
                    continue;
                }
            };
            let (kept, dropped) = decide(own, &found);
            for row in kept {
                self.0.snapshots.insert(row);
            }
            for id in &dropped {
                failpoint::pass("recover.snapshot");
                // The row goes first, as in every removal.
                if let Err(cause) = self.0.store.write(Write::RemoveSnapshot { id: id.clone() }).await {
                    warn!(snapshot_id = %id, %cause, "the row of a snapshot is left");
                }
                if let Err(error) = runtime.remove_snapshot(id).await {
                    let cause = SessionError::chain(&error);
                    warn!(snapshot_id = %id, %cause, "a snapshot that is not complete is left");
                }
            }
            if !dropped.is_empty() {
                info!(removed = dropped.len(), "removed snapshots that were not complete");
            }
        }
    }
}

fn is_lasting(row: &SnapshotRow) -> bool {
    row.is_ready && !row.facts.is_temporary
}

/// The snapshots that stay, and those of which everything is to be removed. Pure.
fn decide(rows: Vec<SnapshotRow>, found: &BTreeSet<SnapshotId>) -> (Vec<SnapshotRow>, BTreeSet<SnapshotId>) {
    let known: BTreeSet<SnapshotId> = rows.iter().map(|row| row.id.clone()).collect();
    let (kept, lost): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| is_lasting(row) && found.contains(&row.id));
    let mut dropped: BTreeSet<SnapshotId> = lost.into_iter().map(|row| row.id).collect();
    dropped.extend(found.difference(&known).cloned());
    (kept, dropped)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, SystemTime};

    use shared_protocol::api::ResourcesView;
    use shared_protocol::{RuntimeName, SessionId};

    use crate::spec::SessionSpec;
    use crate::store::SnapshotFacts;

    fn id(name: &str) -> SnapshotId {
        SnapshotId::new(name).unwrap()
    }

    fn row(name: &str, is_ready: bool, is_temporary: bool) -> SnapshotRow {
        let resources = ResourcesView { cpus: 1.0, memory_mb: 64, pids: 64, disk_mb: 64 };
        let spec = SessionSpec::plain("base", RuntimeName::local(), resources, Duration::from_secs(60));
        let session = SessionId::new("s").unwrap();
        let (spec, shells) = (Box::new(spec), Vec::new());
        let facts = SnapshotFacts { name: None, session, spec, bytes: 0, shells, is_temporary };
        SnapshotRow { id: id(name), is_ready, facts, created_at: SystemTime::UNIX_EPOCH }
    }

    #[test]
    fn only_what_is_ready_on_both_sides_stays() {
        let rows = vec![
            row("whole", true, false),
            row("half", false, false),
            row("intended", false, false),
            row("lost", true, false),
            row("fork", true, true),
        ];
        let found = ["whole", "half", "fork", "unowned"].map(id).into();
        let (kept, dropped) = decide(rows, &found);
        assert_eq!(kept.iter().map(|row| row.id.as_str()).collect::<Vec<_>>(), ["whole"]);
        assert_eq!(dropped, ["fork", "half", "intended", "lost", "unowned"].map(id).into());
    }
}
