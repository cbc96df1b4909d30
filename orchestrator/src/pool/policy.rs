//! What a pool does next, whom it serves, and whom it gives up: decided here, from plain values. Pure.

use std::time::Duration;

use tokio::time::Instant;

use crate::session::{Plan, Refusal};

/// Members of one pool that are started at the same moment. More only take the cpu from each other and from the sessions.
pub const MAX_FILLING: usize = 4;

/// After a failed start the next waits, twice as long each time.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LAST_PAUSE: Duration = Duration::from_secs(30);

/// A pool that is not empty lets whoever took a member begin first: starting another takes a processor.
const BREATH: Duration = Duration::from_millis(20);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Census {
    /// How many shall wait.
    pub size: usize,
    /// Wait.
    pub idle: usize,
    /// Are being started.
    pub filling: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Start so many more.
    Fill(usize),
    /// Give up so many that wait.
    Shed(usize),
    Rest,
}

pub fn next_step(census: Census, may_fill: bool) -> Step {
    let Census { size, idle, filling } = census;
    if idle > size {
        return Step::Shed(idle - size);
    }
    let missing = size.saturating_sub(idle + filling).min(MAX_FILLING.saturating_sub(filling));
    if missing > 0 && may_fill { Step::Fill(missing) } else { Step::Rest }
}

/// Until when a refill holds back, with so many that wait.
pub fn breath(idle: usize, last_taken: Option<Instant>, now: Instant) -> Option<Instant> {
    last_taken.map(|taken| taken + BREATH).filter(|until| idle > 0 && *until > now)
}

/// Whether a member as `template` describes it can become what `plan` asks for. Variables, labels, a workspace and a lifetime are
/// given at the claim.
pub fn fits(template: &Plan, plan: &Plan, can_give_workspace: bool) -> bool {
    template.image == plan.image
        && template.resources == plan.resources
        && template.network == plan.network
        && template.writable_root == plan.writable_root
        && (plan.workspace.is_none() || can_give_workspace)
}

/// How long to wait after failures in a row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Backoff {
    failures: u32,
    until: Option<Instant>,
}

impl Backoff {
    pub fn failed(&mut self, now: Instant) {
        let pause = FIRST_PAUSE.saturating_mul(1 << self.failures.min(16)).min(LAST_PAUSE);
        self.failures = self.failures.saturating_add(1);
        self.until = Some(now + pause);
    }

    pub fn worked(&mut self) {
        *self = Self::default();
    }

    /// Until when nothing is to be tried.
    pub fn until(&self, now: Instant) -> Option<Instant> {
        self.until.filter(|until| *until > now)
    }
}

/// How many members have to be given up, one after the other as `release` does it, for `admit` to let one more in; `None` where
/// it would not, even without all of them. Nothing is changed but the values that the two work on.
pub fn sacrifice<T>(
    mut members: impl Iterator<Item = T>,
    mut admit: impl FnMut() -> Result<(), Refusal>,
    mut release: impl FnMut(&T),
) -> Option<Vec<T>> {
    let mut given_up = Vec::new();
    while admit().is_err() {
        let member = members.next()?;
        release(&member);
        given_up.push(member);
    }
    Some(given_up)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::SessionsConfig;
    use crate::session::{Admission, Ask, Limits};
    use proptest::prelude::*;

    #[test]
    fn a_refill_lets_the_claim_go_first_unless_nobody_waits() {
        let now = Instant::now();
        assert_eq!(breath(3, Some(now), now), Some(now + BREATH));
        assert_eq!(breath(3, Some(now), now + BREATH), None);
        assert_eq!(breath(0, Some(now), now), None);
        assert_eq!(breath(3, None, now), None);
    }

    proptest! {
        #[test]
        fn a_pool_comes_to_its_size_and_never_starts_too_many_at_once(size in 0usize..50, idle in 0usize..50, taken in prop::collection::vec(0usize..8, 0..40)) {
            let mut census = Census { size, idle, filling: 0 };
            for n in taken {
                match next_step(census, true) {
                    Step::Fill(n) => census.filling += n,
                    Step::Shed(n) => census.idle -= n,
                    Step::Rest => {}
                }
                prop_assert!(census.filling <= MAX_FILLING);
                prop_assert!(census.idle <= census.size);
                prop_assert!(census.idle + census.filling <= census.size.max(census.filling));
                // Some come up, some are claimed.
                let up = census.filling.min(n);
                census.filling -= up;
                census.idle = (census.idle + up).saturating_sub(n / 3);
            }
            for _ in 0..200 {
                if let Step::Fill(n) = next_step(census, true) { census.filling += n }
                census.idle += census.filling;
                census.filling = 0;
                if let Step::Shed(n) = next_step(census, true) { census.idle -= n }
            }
            prop_assert_eq!(census.idle, size);
        }
    }

    #[test]
    fn while_it_must_not_fill_it_only_sheds() {
        assert_eq!(next_step(Census { size: 3, idle: 0, filling: 0 }, false), Step::Rest);
        assert_eq!(next_step(Census { size: 1, idle: 3, filling: 0 }, false), Step::Shed(2));
    }

    #[test]
    fn pauses_grow_to_a_bound_and_end_with_the_first_success() {
        let start = Instant::now();
        let mut backoff = Backoff::default();
        assert_eq!(backoff.until(start), None);
        let mut last = Duration::ZERO;
        for _ in 0..40 {
            backoff.failed(start);
            let pause = backoff.until(start).unwrap() - start;
            assert!(pause >= last && pause <= LAST_PAUSE);
            last = pause;
        }
        assert_eq!(last, LAST_PAUSE);
        assert_eq!(backoff.until(start + LAST_PAUSE), None);
        backoff.worked();
        assert_eq!(backoff.until(start), None);
    }

    #[test]
    fn a_create_that_asks_for_something_else_does_not_fit() {
        let plan = |json: &str| Plan::resolve(serde_json::from_str(json).unwrap(), &SessionsConfig::default()).unwrap();
        let template = plan(r#"{"image":"python"}"#);
        let given_later = r#"{"image":"python","env":{"A":"b"},"labels":{"a":"b"},"ttl_seconds":5,"workspace_id":"w"}"#;
        assert!(fits(&template, &plan(given_later), true));
        assert!(!fits(&template, &plan(given_later), false), "its runtime cannot give a workspace");
        for other in [
            r#"{"image":"node"}"#,
            r#"{"image":"python","network":"full"}"#,
            r#"{"image":"python","writable_root":true}"#,
            r#"{"image":"python","resources":{"pids":99}}"#,
        ] {
            assert!(!fits(&template, &plan(other), true), "{other}");
        }
    }

    fn full(memory: &[u64], limit: u64) -> Admission {
        let limits = Limits { max_sessions: 10, max_total_memory_mb: Some(limit), max_total_millicpus: None };
        let mut admission = Admission::new(limits);
        for memory_mb in memory {
            admission.admit(&Ask { memory_mb: *memory_mb, millicpus: 0 }).unwrap();
        }
        admission
    }

    fn given_up(admission: &Admission, members: &[u64], asked: u64) -> Option<Vec<u64>> {
        let admission = std::cell::RefCell::new(admission.clone());
        let ask = |memory_mb: u64| Ask { memory_mb, millicpus: 0 };
        sacrifice(
            members.iter().copied(),
            || admission.borrow_mut().admit(&ask(asked)),
            |memory_mb| admission.borrow_mut().release(&ask(*memory_mb)),
        )
    }

    #[test]
    fn members_are_given_up_only_where_that_helps_and_no_more_than_needed() {
        let admission = full(&[40, 20, 20, 20], 100);
        assert_eq!(given_up(&admission, &[20, 20, 20], 10), Some(vec![20]));
        assert_eq!(given_up(&admission, &[20, 20, 20], 50), Some(vec![20, 20, 20]));
        assert_eq!(given_up(&admission, &[20, 20, 20], 61), None);
        assert_eq!(given_up(&full(&[40], 100), &[20], 60), Some(vec![]));
    }
}
