//! Decides whether one more session fits: a value that counts resources and knows nothing else about sessions.
//!
//! It counts twice: for the whole daemon, and for each owner, whose key may have limits of its own. A session is admitted only
//! if it fits both, and both counts change together. A pooled sandbox counts for the daemon alone until a session claims it.
//!
//! CPUs are counted in thousandths, so that subtraction is exact.

use std::collections::HashMap;

use serde_json::{Value, json};
use shared_protocol::KeyName;
use shared_protocol::api::ResourcesView;

use crate::owner::{Creator, OwnerUsage};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    pub max_sessions: u64,
    pub max_total_memory_mb: Option<u64>,
    pub max_total_disk_mb: Option<u64>,
    pub max_total_millicpus: Option<u64>,
}

/// What one session needs of the resources that all sessions share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Demand {
    pub memory_mb: u64,
    pub disk_mb: u64,
    pub millicpus: u64,
}

impl Demand {
    pub fn of(resources: &ResourcesView) -> Self {
        Self { memory_mb: resources.memory_mb, disk_mb: resources.disk_mb, millicpus: millicpus(resources.cpus) }
    }
}

impl Demand {
    /// What a stopped session has: its disk.
    pub fn parked(&self) -> Self {
        Self { memory_mb: 0, disk_mb: self.disk_mb, millicpus: 0 }
    }
}

/// Converts CPUs to thousandths, rounded up. An invalid number becomes the largest value, which is refused.
pub fn millicpus(cpus: f64) -> u64 {
    let thousandths = (cpus * 1000.0).ceil();
    if (0.0..1e15).contains(&thousandths) {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked on the line above")]
        let count = thousandths as u64;
        count
    } else {
        u64::MAX
    }
}

/// Whose limit is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    Daemon,
    Key,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub of: Scope,
    pub what: &'static str,
    pub limit: u64,
    pub in_use: u64,
    pub asked: u64,
}

impl Refusal {
    pub fn message(&self) -> String {
        let Self { of, what, limit, in_use, asked } = self;
        let whose = match of {
            Scope::Daemon => "no room for another session",
            Scope::Key => "the limit of your API key is reached",
        };
        format!("{whose}: {in_use} of {limit} {what} are in use and {asked} more were asked for")
    }

    pub fn details(&self) -> Value {
        let of = match self.of {
            Scope::Daemon => "daemon",
            Scope::Key => "key",
        };
        json!({ "of": of, "what": self.what, "limit": self.limit, "in_use": self.in_use, "asked": self.asked })
    }
}

#[derive(Debug, Clone)]
pub struct Admission {
    limits: Limits,
    sessions: u64,
    memory_mb: u64,
    disk_mb: u64,
    millicpus: u64,
    /// The owners that have sessions now.
    by_owner: HashMap<KeyName, OwnerUsage>,
}

impl Admission {
    pub fn new(limits: Limits) -> Self {
        Self { limits, sessions: 0, memory_mb: 0, disk_mb: 0, millicpus: 0, by_owner: HashMap::new() }
    }

    pub fn usage_of(&self, owner: &KeyName) -> OwnerUsage {
        self.by_owner.get(owner).copied().unwrap_or_default()
    }

    pub fn in_use(&self) -> u64 {
        self.sessions
    }

    /// Takes the room for a session of `creator`, or for a pooled sandbox, which has none. A refusal changes nothing.
    pub fn admit(&mut self, demand: &Demand, creator: Option<&Creator>) -> Result<(), Refusal> {
        // The limits of the key come first: a caller can do something about those.
        let share = creator.map(|creator| self.share_after(demand, creator)).transpose()?;
        let Limits { max_sessions, max_total_memory_mb, max_total_disk_mb, max_total_millicpus } = self.limits;
        let sessions = fit(Scope::Daemon, "sessions", Some(max_sessions), self.sessions, 1)?;
        let memory_mb = fit(Scope::Daemon, MEMORY, max_total_memory_mb, self.memory_mb, demand.memory_mb)?;
        let disk_mb = fit(Scope::Daemon, DISK, max_total_disk_mb, self.disk_mb, demand.disk_mb)?;
        let millicpus =
            fit(Scope::Daemon, "thousandths of a cpu", max_total_millicpus, self.millicpus, demand.millicpus)?;
        (self.sessions, self.memory_mb, self.disk_mb, self.millicpus) = (sessions, memory_mb, disk_mb, millicpus);
        if let (Some(creator), Some(share)) = (creator, share) {
            self.by_owner.insert(creator.owner.clone(), share);
        }
        Ok(())
    }

    /// Whether the key of a creator has room for one more session. This changes nothing.
    pub fn check_share(&self, demand: &Demand, creator: &Creator) -> Result<(), Refusal> {
        self.share_after(demand, creator).map(drop)
    }

    /// Gives a pooled sandbox, which has its room already, to a session of `creator`. A refusal changes nothing.
    pub fn assign(&mut self, demand: &Demand, creator: &Creator) -> Result<(), Refusal> {
        let share = self.share_after(demand, creator)?;
        self.by_owner.insert(creator.owner.clone(), share);
        Ok(())
    }

    /// What the creator has after one more session, if the limits of its key allow it.
    fn share_after(&self, demand: &Demand, creator: &Creator) -> Result<OwnerUsage, Refusal> {
        let (now, limits) = (self.usage_of(&creator.owner), &creator.limits);
        Ok(OwnerUsage {
            sessions: fit(Scope::Key, "sessions", limits.max_sessions, now.sessions, 1)?,
            memory_mb: fit(Scope::Key, MEMORY, limits.max_memory_mb, now.memory_mb, demand.memory_mb)?,
        })
    }

    /// Takes the room for a session that already exists, whatever the limits are now. A pooled sandbox has no owner.
    pub fn restore(&mut self, demand: &Demand, owner: Option<&KeyName>) {
        self.sessions = self.sessions.saturating_add(1);
        self.memory_mb = self.memory_mb.saturating_add(demand.memory_mb);
        self.disk_mb = self.disk_mb.saturating_add(demand.disk_mb);
        self.millicpus = self.millicpus.saturating_add(demand.millicpus);
        if let Some(owner) = owner {
            let share = self.by_owner.entry(owner.clone()).or_default();
            share.sessions = share.sessions.saturating_add(1);
            share.memory_mb = share.memory_mb.saturating_add(demand.memory_mb);
        }
    }

    /// Returns the room that `admit`, `assign` or `restore` took for the same demand and owner.
    pub fn release(&mut self, demand: &Demand, owner: Option<&KeyName>) {
        self.sessions = self.sessions.saturating_sub(1);
        self.memory_mb = self.memory_mb.saturating_sub(demand.memory_mb);
        self.disk_mb = self.disk_mb.saturating_sub(demand.disk_mb);
        self.millicpus = self.millicpus.saturating_sub(demand.millicpus);
        if let Some(owner) = owner
            && let Some(share) = self.by_owner.get_mut(owner)
        {
            share.sessions = share.sessions.saturating_sub(1);
            share.memory_mb = share.memory_mb.saturating_sub(demand.memory_mb);
            if share.sessions == 0 {
                self.by_owner.remove(owner);
            }
        }
    }
}

const MEMORY: &str = "MiB of memory";
const DISK: &str = "MiB of disk";

fn fit(of: Scope, what: &'static str, limit: Option<u64>, in_use: u64, asked: u64) -> Result<u64, Refusal> {
    let limit = limit.unwrap_or(u64::MAX);
    match in_use.checked_add(asked) {
        Some(sum) if sum <= limit => Ok(sum),
        _ => Err(Refusal { of, what, limit, in_use, asked }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    use crate::owner::OwnerLimits;

    #[derive(Debug, Clone)]
    enum Change {
        /// A session of one of a few owners, or, without an owner, a pooled sandbox.
        Admit(Demand, Option<usize>),
        /// A session of an owner takes over the Nth pooled sandbox.
        AssignNth(usize, usize),
        ReleaseNth(usize),
    }

    fn demand() -> impl Strategy<Value = Demand> {
        let number = || prop_oneof![0u64..5000, Just(u64::MAX)];
        (number(), number(), prop_oneof![0u64..9000, Just(u64::MAX)])
            .prop_map(|(memory_mb, disk_mb, millicpus)| Demand { memory_mb, disk_mb, millicpus })
    }

    fn change() -> impl Strategy<Value = Change> {
        prop_oneof![
            (demand(), prop::option::of(0usize..3)).prop_map(|(demand, owner)| Change::Admit(demand, owner)),
            (0usize..16, 0usize..3).prop_map(|(nth, owner)| Change::AssignNth(nth, owner)),
            (0usize..16).prop_map(Change::ReleaseNth),
        ]
    }

    fn owner_limits() -> impl Strategy<Value = OwnerLimits> {
        (prop::option::of(0u64..6), prop::option::of(0u64..20_000))
            .prop_map(|(max_sessions, max_memory_mb)| OwnerLimits { max_sessions, max_memory_mb })
    }

    fn creator(number: usize, limits: OwnerLimits) -> Creator {
        Creator {
            owner: KeyName::new(format!("k{number}")).unwrap(),
            limits,
            sees_totals: false,
            may_reach_private: false,
            network_maximum: crate::owner::NetworkMaximum::Daemon,
        }
    }

    proptest! {
        #[test]
        fn what_is_admitted_never_exceeds_a_limit_and_what_is_refused_changes_nothing(
            max_sessions in 0u64..12,
            memory in prop::option::of(0u64..20_000),
            disk in prop::option::of(0u64..20_000),
            cpus in prop::option::of(0u64..30_000),
            keys in prop::array::uniform3(owner_limits()),
            changes in prop::collection::vec(change(), 0..200),
        ) {
            let limits = Limits { max_sessions, max_total_memory_mb: memory, max_total_disk_mb: disk, max_total_millicpus: cpus };
            let creators = [0, 1, 2].map(|number| creator(number, keys[number]));
            let mut admission = Admission::new(limits);
            let mut held: Vec<(Demand, Option<usize>)> = Vec::new();
            for change in changes {
                let fits_key = |demand: &Demand, owner: usize, held: &[(Demand, Option<usize>)]| {
                    let own: Vec<_> = held.iter().filter(|(_, of)| *of == Some(owner)).copied().collect();
                    (own.len() as u64) < keys[owner].max_sessions.unwrap_or(u64::MAX)
                        && total(&own, |a| a.memory_mb) + u128::from(demand.memory_mb)
                            <= u128::from(keys[owner].max_memory_mb.unwrap_or(u64::MAX))
                };
                match change {
                    Change::Admit(demand, owner) => {
                        let fits = held.len() < usize::try_from(max_sessions).unwrap()
                            && total(&held, |a| a.memory_mb) + u128::from(demand.memory_mb) <= u128::from(memory.unwrap_or(u64::MAX))
                            && total(&held, |a| a.disk_mb) + u128::from(demand.disk_mb) <= u128::from(disk.unwrap_or(u64::MAX))
                            && total(&held, |a| a.millicpus) + u128::from(demand.millicpus) <= u128::from(cpus.unwrap_or(u64::MAX))
                            && owner.is_none_or(|owner| fits_key(&demand, owner, &held));
                        prop_assert_eq!(admission.admit(&demand, owner.map(|owner| &creators[owner])).is_ok(), fits);
                        if fits { held.push((demand, owner)); }
                    }
                    Change::AssignNth(n, owner) if n < held.len() && held[n].1.is_none() => {
                        let demand = held[n].0;
                        let fits = fits_key(&demand, owner, &held);
                        prop_assert_eq!(admission.assign(&demand, &creators[owner]).is_ok(), fits);
                        if fits { held[n].1 = Some(owner); }
                    }
                    Change::ReleaseNth(n) if n < held.len() => {
                        let (demand, owner) = held.swap_remove(n);
                        admission.release(&demand, owner.map(|owner| &creators[owner].owner));
                    }
                    Change::AssignNth(..) | Change::ReleaseNth(_) => {}
                }
                prop_assert_eq!(u128::from(admission.sessions), held.len() as u128);
                prop_assert_eq!(u128::from(admission.memory_mb), total(&held, |a| a.memory_mb));
                prop_assert_eq!(u128::from(admission.disk_mb), total(&held, |a| a.disk_mb));
                prop_assert_eq!(u128::from(admission.millicpus), total(&held, |a| a.millicpus));
                for (number, creator) in creators.iter().enumerate() {
                    let own: Vec<_> = held.iter().filter(|(_, of)| *of == Some(number)).copied().collect();
                    let usage = admission.usage_of(&creator.owner);
                    prop_assert_eq!(u128::from(usage.sessions), own.len() as u128);
                    prop_assert_eq!(u128::from(usage.memory_mb), total(&own, |a| a.memory_mb));
                }
            }
        }
    }

    fn total(held: &[(Demand, Option<usize>)], part: impl Fn(&Demand) -> u64) -> u128 {
        held.iter().map(|(demand, _)| u128::from(part(demand))).sum()
    }

    #[test]
    fn a_refusal_says_what_is_full_and_by_how_much() {
        let limits = Limits {
            max_sessions: 9,
            max_total_memory_mb: Some(100),
            max_total_disk_mb: Some(10),
            max_total_millicpus: None,
        };
        let demand = |memory_mb, disk_mb| Demand { memory_mb, disk_mb, millicpus: 1 };
        let mut admission = Admission::new(limits);
        admission.admit(&demand(60, 4), None).unwrap();
        let refusal = admission.admit(&demand(20, 7), None).unwrap_err();
        assert_eq!(refusal, Refusal { of: Scope::Daemon, what: DISK, limit: 10, in_use: 4, asked: 7 });
        let refusal = admission.admit(&demand(60, 0), None).unwrap_err();
        assert_eq!(refusal, Refusal { of: Scope::Daemon, what: MEMORY, limit: 100, in_use: 60, asked: 60 });
        let small = creator(0, OwnerLimits { max_sessions: None, max_memory_mb: Some(50) });
        let refusal = admission.admit(&demand(60, 0), Some(&small)).unwrap_err();
        assert_eq!(refusal, Refusal { of: Scope::Key, what: MEMORY, limit: 50, in_use: 0, asked: 60 });
        assert!(refusal.message().starts_with("the limit of your API key is reached"), "{}", refusal.message());
    }

    #[test]
    fn cpus_that_make_no_sense_never_fit_below_a_limit() {
        for nonsense in [f64::NAN, f64::INFINITY, -1.0, 1e300] {
            assert_eq!(millicpus(nonsense), u64::MAX);
        }
        assert_eq!(millicpus(0.0001), 1);
        assert_eq!(millicpus(1.5), 1500);
    }
}
