//! Decides what a start of the daemon does with the stored rows and the sandboxes that exist. Pure.

use std::collections::{BTreeMap, BTreeSet};

use shared_protocol::api::SessionStatus;
use shared_protocol::{RuntimeName, SessionId};

use crate::session::EndReason;
use crate::store::SessionRow;

#[derive(Debug, PartialEq)]
pub enum RecoveryStep {
    /// The session was running or paused: it continues, or has crashed meanwhile.
    Adopt { row: SessionRow, is_paused: bool },
    /// The sandbox waited in a pool: it still does, or has ended meanwhile.
    AdoptPooled { row: SessionRow },
    /// The session was stopped, or was about to be.
    KeepStopped { row: SessionRow },
    /// The session was about to end, and may be half removed.
    Finish { row: SessionRow, end: EndReason },
    /// The create was interrupted, and no client was told of it.
    Undo { row: SessionRow },
    /// The session has ended, and its clients may still ask for it.
    Bury { row: SessionRow, end: EndReason },
    /// The session's runtime is not part of this daemon: its state is unknown, and nothing is done.
    Absent { row: SessionRow },
    /// A sandbox of this daemon that no row owns.
    Remove { runtime: RuntimeName, id: SessionId },
}

/// Decides. `found` are the sandboxes of each runtime, all made by daemons with this data directory.
pub fn decide(rows: Vec<SessionRow>, found: &BTreeMap<RuntimeName, BTreeSet<SessionId>>) -> Vec<RecoveryStep> {
    let mut unowned = found.clone();
    let mut steps = Vec::new();
    for row in rows {
        let end = || row.end.as_ref().map_or(EndReason::Destroyed, EndReason::of_stored);
        let is_over = matches!(row.status, SessionStatus::Destroyed | SessionStatus::Expired | SessionStatus::Crashed);
        if is_over {
            // A sandbox that it may have left has no owner.
            let end = end();
            steps.push(RecoveryStep::Bury { row, end });
            continue;
        }
        let Some(sandboxes) = unowned.get_mut(&row.spec.runtime) else {
            steps.push(RecoveryStep::Absent { row });
            continue;
        };
        sandboxes.remove(&row.id);
        steps.push(match row.status {
            SessionStatus::Running => RecoveryStep::Adopt { row, is_paused: false },
            SessionStatus::Paused => RecoveryStep::Adopt { row, is_paused: true },
            SessionStatus::Destroying => {
                let end = end();
                RecoveryStep::Finish { row, end }
            }
            SessionStatus::Stopped => RecoveryStep::KeepStopped { row },
            SessionStatus::PoolIdle => RecoveryStep::AdoptPooled { row },
            _ => RecoveryStep::Undo { row },
        });
    }
    for (runtime, ids) in unowned {
        steps.extend(ids.into_iter().map(|id| RecoveryStep::Remove { runtime: runtime.clone(), id }));
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::time::{Duration, SystemTime};

    use proptest::prelude::*;
    use shared_protocol::api::{AcquireSource, ResourcesView};

    use crate::spec::SessionSpec;
    use crate::store::StoredEnd;

    fn row(id: &SessionId, status: SessionStatus, runtime: &str) -> SessionRow {
        let ends = [SessionStatus::Destroyed, SessionStatus::Expired, SessionStatus::Crashed];
        let end = match status {
            SessionStatus::Destroying => Some(SessionStatus::Expired),
            status => ends.contains(&status).then_some(status),
        };
        SessionRow {
            id: id.clone(),
            status,
            end: end.map(|status| StoredEnd { status, reason: Some("why".into()) }),
            spec: Arc::new(SessionSpec::plain(
                "base",
                RuntimeName::new(runtime).unwrap(),
                ResourcesView { cpus: 1.0, memory_mb: 64, pids: 64, disk_mb: 64 },
                Duration::from_secs(60),
            )),
            source: AcquireSource::Cold,
            key: None,
            created_at: SystemTime::UNIX_EPOCH,
            last_activity: SystemTime::UNIX_EPOCH,
            ended_at: None,
            cwd: "/".into(),
        }
    }

    fn id(number: u16) -> SessionId {
        SessionId::new(format!("{number:08x}-000")).unwrap()
    }

    fn what(step: &RecoveryStep) -> (&'static str, SessionId) {
        match step {
            RecoveryStep::Adopt { row, is_paused: false } => ("adopt", row.id.clone()),
            RecoveryStep::Adopt { row, is_paused: true } => ("adopt paused", row.id.clone()),
            RecoveryStep::AdoptPooled { row } => ("adopt pooled", row.id.clone()),
            RecoveryStep::KeepStopped { row } => ("keep stopped", row.id.clone()),
            RecoveryStep::Finish { row, end: EndReason::Expired } => ("finish", row.id.clone()),
            RecoveryStep::Finish { row, .. } => ("finish otherwise", row.id.clone()),
            RecoveryStep::Undo { row } => ("undo", row.id.clone()),
            RecoveryStep::Bury { row, .. } => ("bury", row.id.clone()),
            RecoveryStep::Absent { row } => ("absent", row.id.clone()),
            RecoveryStep::Remove { id, .. } => ("remove", id.clone()),
        }
    }

    #[test]
    fn each_status_has_its_step() {
        use SessionStatus::{Crashed, Creating, Destroyed, Destroying, Expired, Paused, PoolIdle, Running, Stopped};
        let local = BTreeMap::from([(RuntimeName::local(), BTreeSet::new())]);
        for (status, step) in [
            (Creating, "undo"),
            (Running, "adopt"),
            (Paused, "adopt paused"),
            (Stopped, "keep stopped"),
            (PoolIdle, "adopt pooled"),
            (Destroying, "finish"),
            (Destroyed, "bury"),
            (Expired, "bury"),
            (Crashed, "bury"),
        ] {
            let steps = decide(vec![row(&id(1), status, "local")], &local);
            assert_eq!(steps.iter().map(what).collect::<Vec<_>>(), [(step, id(1))], "{status:?}");
        }
        let steps = decide(vec![row(&id(1), Running, "docker")], &local);
        assert_eq!(what(&steps[0]).0, "absent", "a runtime that is not here is not one without sandboxes");
    }

    #[test]
    fn what_a_session_left_that_is_over_is_removed() {
        let local = BTreeMap::from([(RuntimeName::local(), BTreeSet::from([id(1)]))]);
        let steps = decide(vec![row(&id(1), SessionStatus::Destroyed, "local")], &local);
        assert_eq!(steps.iter().map(what).collect::<Vec<_>>(), [("bury", id(1)), ("remove", id(1))]);
    }

    proptest! {
        #[test]
        fn every_row_has_one_step_and_a_sandbox_is_removed_only_if_no_row_needs_it(
            rows in prop::collection::btree_map(0u16..40, (0usize..9, any::<bool>()), 0..30),
            found in prop::collection::btree_set(0u16..40, 0..30),
        ) {
            let rows: Vec<SessionRow> = rows
                .into_iter()
                .map(|(n, (status, here))| row(&id(n), SessionStatus::ALL[status], if here { "local" } else { "docker" }))
                .collect();
            let found: BTreeSet<SessionId> = found.into_iter().map(id).collect();
            let steps = decide(rows.clone(), &BTreeMap::from([(RuntimeName::local(), found.clone())]));
            let removed: Vec<SessionId> =
                steps.iter().filter(|step| matches!(step, RecoveryStep::Remove { .. })).map(|step| what(step).1).collect();
            prop_assert_eq!(steps.len() - removed.len(), rows.len());
            for id in &found {
                let owner = rows.iter().find(|row| {
                    row.id == *id && row.spec.runtime == RuntimeName::local() && row.ended_at.is_none()
                        && !matches!(row.status, SessionStatus::Destroyed | SessionStatus::Expired | SessionStatus::Crashed)
                });
                prop_assert_eq!(owner.is_none(), removed.contains(id));
            }
            prop_assert!(removed.iter().all(|id| found.contains(id)));
        }
    }
}
