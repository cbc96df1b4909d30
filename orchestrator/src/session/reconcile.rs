//! What a start does about what an earlier daemon wrote down and what there is. Pure.

use std::collections::{BTreeMap, BTreeSet};

use shared_protocol::api::SessionStatus;
use shared_protocol::{RuntimeName, SessionId};

use super::End;
use crate::store::SessionRow;

#[derive(Debug, PartialEq)]
pub enum Step {
    /// It ran or was paused: it goes on, or has crashed meanwhile.
    Adopt { row: SessionRow, is_paused: bool },
    /// It waited in a pool, and does so still, or it has ended meanwhile.
    AdoptMember { row: SessionRow },
    /// Its end was decided and may be half done.
    Finish { row: SessionRow, end: End },
    /// Its creation was cut off: nobody was told of it.
    Undo { row: SessionRow },
    /// It is over; its clients may still ask.
    Bury { row: SessionRow, end: End },
    /// Its runtime is not part of this daemon now: nothing is known and nothing is done.
    Absent { row: SessionRow },
    /// A sandbox of ours that no row owns.
    Remove { runtime: RuntimeName, id: SessionId },
}

/// `found`: the sandboxes that each runtime of this daemon has, all of them made by daemons of this data directory.
pub fn decide(rows: Vec<SessionRow>, found: &BTreeMap<RuntimeName, BTreeSet<SessionId>>) -> Vec<Step> {
    let mut unowned = found.clone();
    let mut steps = Vec::new();
    for row in rows {
        let end = || row.end.as_ref().map_or(End::Destroyed, End::of_stored);
        let is_over = matches!(row.status, SessionStatus::Destroyed | SessionStatus::Expired | SessionStatus::Crashed);
        if is_over {
            // What it may have left is nobody's.
            let end = end();
            steps.push(Step::Bury { row, end });
            continue;
        }
        let Some(sandboxes) = unowned.get_mut(&row.facts.runtime) else {
            steps.push(Step::Absent { row });
            continue;
        };
        sandboxes.remove(&row.id);
        steps.push(match row.status {
            SessionStatus::Running => Step::Adopt { row, is_paused: false },
            SessionStatus::Paused => Step::Adopt { row, is_paused: true },
            SessionStatus::Destroying => {
                let end = end();
                Step::Finish { row, end }
            }
            SessionStatus::PoolIdle => Step::AdoptMember { row },
            _ => Step::Undo { row },
        });
    }
    for (runtime, ids) in unowned {
        steps.extend(ids.into_iter().map(|id| Step::Remove { runtime: runtime.clone(), id }));
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::SystemTime;

    use proptest::prelude::*;
    use shared_protocol::api::{AcquireSource, NetworkMode, ResourcesView};

    use crate::store::{StoredEnd, StoredFacts};

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
            facts: StoredFacts {
                image: "base".into(),
                runtime: RuntimeName::new(runtime).unwrap(),
                workspace: None,
                labels: BTreeMap::new(),
                resources: ResourcesView { cpus: 1.0, memory_mb: 64, pids: 64, disk_mb: 64 },
                network: NetworkMode::None,
                writable_root: false,
                lifetime_seconds: 60,
                idle_pause_seconds: None,
                source: AcquireSource::Cold,
            },
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

    fn what(step: &Step) -> (&'static str, SessionId) {
        match step {
            Step::Adopt { row, is_paused: false } => ("adopt", row.id.clone()),
            Step::Adopt { row, is_paused: true } => ("adopt paused", row.id.clone()),
            Step::AdoptMember { row } => ("adopt member", row.id.clone()),
            Step::Finish { row, end: End::Expired } => ("finish", row.id.clone()),
            Step::Finish { row, .. } => ("finish otherwise", row.id.clone()),
            Step::Undo { row } => ("undo", row.id.clone()),
            Step::Bury { row, .. } => ("bury", row.id.clone()),
            Step::Absent { row } => ("absent", row.id.clone()),
            Step::Remove { id, .. } => ("remove", id.clone()),
        }
    }

    #[test]
    fn each_status_has_its_step() {
        use SessionStatus::{Crashed, Creating, Destroyed, Destroying, Expired, Paused, PoolIdle, Running};
        let local = BTreeMap::from([(RuntimeName::local(), BTreeSet::new())]);
        for (status, step) in [
            (Creating, "undo"),
            (Running, "adopt"),
            (Paused, "adopt paused"),
            (PoolIdle, "adopt member"),
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
            rows in prop::collection::btree_map(0u16..40, (0usize..8, any::<bool>()), 0..30),
            found in prop::collection::btree_set(0u16..40, 0..30),
        ) {
            let rows: Vec<SessionRow> = rows
                .into_iter()
                .map(|(n, (status, here))| row(&id(n), SessionStatus::ALL[status], if here { "local" } else { "docker" }))
                .collect();
            let found: BTreeSet<SessionId> = found.into_iter().map(id).collect();
            let steps = decide(rows.clone(), &BTreeMap::from([(RuntimeName::local(), found.clone())]));
            let removed: Vec<SessionId> =
                steps.iter().filter(|step| matches!(step, Step::Remove { .. })).map(|step| what(step).1).collect();
            prop_assert_eq!(steps.len() - removed.len(), rows.len());
            for id in &found {
                let owner = rows.iter().find(|row| {
                    row.id == *id && row.facts.runtime == RuntimeName::local() && row.ended_at.is_none()
                        && !matches!(row.status, SessionStatus::Destroyed | SessionStatus::Expired | SessionStatus::Crashed)
                });
                prop_assert_eq!(owner.is_none(), removed.contains(id));
            }
            prop_assert!(removed.iter().all(|id| found.contains(id)));
        }
    }
}
