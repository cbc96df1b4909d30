//! Whether one more session fits: a value that counts, and knows nothing of how sessions come and go.
//!
//! Cpus are counted in thousandths, so that what was added can be taken away exactly.

use serde_json::{Value, json};
use shared_protocol::api::ResourcesView;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    pub max_sessions: u64,
    pub max_total_memory_mb: Option<u64>,
    pub max_total_millicpus: Option<u64>,
}

/// What one session takes of the whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    pub memory_mb: u64,
    pub millicpus: u64,
}

impl Ask {
    pub fn of(resources: &ResourcesView) -> Self {
        Self { memory_mb: resources.memory_mb, millicpus: millicpus(resources.cpus) }
    }
}

/// Rounded up; a number that makes no sense counts as the largest, which is refused.
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

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub what: &'static str,
    pub limit: u64,
    pub in_use: u64,
    pub asked: u64,
}

impl Refusal {
    pub fn message(&self) -> String {
        let Self { what, limit, in_use, asked } = self;
        format!("no room for another session: {in_use} of {limit} {what} are in use and {asked} more were asked for")
    }

    pub fn details(&self) -> Value {
        json!({ "what": self.what, "limit": self.limit, "in_use": self.in_use, "asked": self.asked })
    }
}

#[derive(Debug, Clone)]
pub struct Admission {
    limits: Limits,
    sessions: u64,
    memory_mb: u64,
    millicpus: u64,
}

impl Admission {
    pub fn new(limits: Limits) -> Self {
        Self { limits, sessions: 0, memory_mb: 0, millicpus: 0 }
    }

    pub fn in_use(&self) -> u64 {
        self.sessions
    }

    /// Takes the room, or changes nothing.
    pub fn admit(&mut self, ask: &Ask) -> Result<(), Refusal> {
        let after = Self {
            limits: self.limits,
            sessions: fit("sessions", Some(self.limits.max_sessions), self.sessions, 1)?,
            memory_mb: fit("MiB of memory", self.limits.max_total_memory_mb, self.memory_mb, ask.memory_mb)?,
            millicpus: fit("thousandths of a cpu", self.limits.max_total_millicpus, self.millicpus, ask.millicpus)?,
        };
        *self = after;
        Ok(())
    }

    /// Takes the room of one that is there already, whatever the limits say now.
    pub fn restore(&mut self, ask: &Ask) {
        self.sessions = self.sessions.saturating_add(1);
        self.memory_mb = self.memory_mb.saturating_add(ask.memory_mb);
        self.millicpus = self.millicpus.saturating_add(ask.millicpus);
    }

    /// Gives back what `admit` or `restore` took for the same ask.
    pub fn release(&mut self, ask: &Ask) {
        self.sessions = self.sessions.saturating_sub(1);
        self.memory_mb = self.memory_mb.saturating_sub(ask.memory_mb);
        self.millicpus = self.millicpus.saturating_sub(ask.millicpus);
    }
}

fn fit(what: &'static str, limit: Option<u64>, in_use: u64, asked: u64) -> Result<u64, Refusal> {
    let limit = limit.unwrap_or(u64::MAX);
    match in_use.checked_add(asked) {
        Some(sum) if sum <= limit => Ok(sum),
        _ => Err(Refusal { what, limit, in_use, asked }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Debug, Clone)]
    enum Step {
        Admit(Ask),
        ReleaseNth(usize),
    }

    fn ask() -> impl Strategy<Value = Ask> {
        (prop_oneof![0u64..5000, Just(u64::MAX)], prop_oneof![0u64..9000, Just(u64::MAX)])
            .prop_map(|(memory_mb, millicpus)| Ask { memory_mb, millicpus })
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![ask().prop_map(Step::Admit), (0usize..16).prop_map(Step::ReleaseNth)]
    }

    proptest! {
        #[test]
        fn what_is_admitted_never_exceeds_a_limit_and_what_is_refused_changes_nothing(
            max_sessions in 0u64..12,
            memory in prop::option::of(0u64..20_000),
            cpus in prop::option::of(0u64..30_000),
            steps in prop::collection::vec(step(), 0..200),
        ) {
            let limits = Limits { max_sessions, max_total_memory_mb: memory, max_total_millicpus: cpus };
            let mut admission = Admission::new(limits);
            let mut held: Vec<Ask> = Vec::new();
            for step in steps {
                match step {
                    Step::Admit(ask) => {
                        let fits = held.len() < usize::try_from(max_sessions).unwrap()
                            && total(&held, |a| a.memory_mb) + u128::from(ask.memory_mb) <= u128::from(memory.unwrap_or(u64::MAX))
                            && total(&held, |a| a.millicpus) + u128::from(ask.millicpus) <= u128::from(cpus.unwrap_or(u64::MAX));
                        prop_assert_eq!(admission.admit(&ask).is_ok(), fits);
                        if fits { held.push(ask); }
                    }
                    Step::ReleaseNth(n) if n < held.len() => admission.release(&held.swap_remove(n)),
                    Step::ReleaseNth(_) => {}
                }
                prop_assert_eq!(u128::from(admission.sessions), held.len() as u128);
                prop_assert_eq!(u128::from(admission.memory_mb), total(&held, |a| a.memory_mb));
                prop_assert_eq!(u128::from(admission.millicpus), total(&held, |a| a.millicpus));
            }
        }
    }

    fn total(held: &[Ask], part: impl Fn(&Ask) -> u64) -> u128 {
        held.iter().map(|ask| u128::from(part(ask))).sum()
    }

    #[test]
    fn a_refusal_says_what_is_full_and_by_how_much() {
        let limits = Limits { max_sessions: 9, max_total_memory_mb: Some(100), max_total_millicpus: None };
        let mut admission = Admission::new(limits);
        admission.admit(&Ask { memory_mb: 60, millicpus: 1 }).unwrap();
        let refusal = admission.admit(&Ask { memory_mb: 60, millicpus: 1 }).unwrap_err();
        assert_eq!(refusal, Refusal { what: "MiB of memory", limit: 100, in_use: 60, asked: 60 });
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
