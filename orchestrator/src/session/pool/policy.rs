//! Decides what a pool does next, and which pooled sandboxes make room for a session. Pure.

use std::time::Duration;

use tokio::time::Instant;

use crate::session::registry::Refusal;

/// The most sandboxes of one pool that are started at the same time. More would only take CPU time from each other and from
/// the sessions.
pub const MAX_FILLING: usize = 4;

/// The pause after the first failed start. Each further failure doubles it.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LAST_PAUSE: Duration = Duration::from_secs(30);

/// The delay of a refill while the pool is not empty: starting a sandbox takes CPU time, and the session that just claimed
/// one goes first.
const REFILL_DELAY: Duration = Duration::from_millis(20);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolCounts {
    /// How many sandboxes should wait.
    pub size: usize,
    /// How many sandboxes wait.
    pub idle: usize,
    /// How many sandboxes are being started.
    pub filling: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolStep {
    /// Start this many more.
    Fill(usize),
    /// Remove this many waiting ones.
    Remove(usize),
    Rest,
}

pub fn next_step(counts: PoolCounts, may_fill: bool) -> PoolStep {
    let PoolCounts { size, idle, filling } = counts;
    if idle > size {
        return PoolStep::Remove(idle - size);
    }
    let missing = size.saturating_sub(idle + filling).min(MAX_FILLING.saturating_sub(filling));
    if missing > 0 && may_fill { PoolStep::Fill(missing) } else { PoolStep::Rest }
}

/// The time until which a refill waits, given the number of idle sandboxes.
pub fn refill_delay(idle: usize, last_taken: Option<Instant>, now: Instant) -> Option<Instant> {
    last_taken.map(|taken| taken + REFILL_DELAY).filter(|until| idle > 0 && *until > now)
}

/// The pause after consecutive failures.
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

    /// The time until which no start is tried.
    pub fn until(&self, now: Instant) -> Option<Instant> {
        self.until.filter(|until| *until > now)
    }
}

/// Chooses the pooled sandboxes to evict, one after the other with `release`, until `admit` accepts one more session. `None`
/// if evicting all of them would not be enough. It changes only the values that the two closures work on.
pub fn choose_evictions<T>(
    mut pooled: impl Iterator<Item = T>,
    mut admit: impl FnMut() -> Result<(), Refusal>,
    mut release: impl FnMut(&T),
) -> Option<Vec<T>> {
    let mut evicted = Vec::new();
    while admit().is_err() {
        let next = pooled.next()?;
        release(&next);
        evicted.push(next);
    }
    Some(evicted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::registry::admission::Admission;
    use crate::session::registry::{Demand, Limits};
    use proptest::prelude::*;

    #[test]
    fn a_refill_lets_the_claim_go_first_unless_nobody_waits() {
        let now = Instant::now();
        assert_eq!(refill_delay(3, Some(now), now), Some(now + REFILL_DELAY));
        assert_eq!(refill_delay(3, Some(now), now + REFILL_DELAY), None);
        assert_eq!(refill_delay(0, Some(now), now), None);
        assert_eq!(refill_delay(3, None, now), None);
    }

    proptest! {
        #[test]
        fn a_pool_comes_to_its_size_and_never_starts_too_many_at_once(size in 0usize..50, idle in 0usize..50, taken in prop::collection::vec(0usize..8, 0..40)) {
            let mut counts = PoolCounts { size, idle, filling: 0 };
            for n in taken {
                match next_step(counts, true) {
                    PoolStep::Fill(n) => counts.filling += n,
                    PoolStep::Remove(n) => counts.idle -= n,
                    PoolStep::Rest => {}
                }
                prop_assert!(counts.filling <= MAX_FILLING);
                prop_assert!(counts.idle <= counts.size);
                prop_assert!(counts.idle + counts.filling <= counts.size.max(counts.filling));
                // Some sandboxes become ready, and some are claimed.
                let up = counts.filling.min(n);
                counts.filling -= up;
                counts.idle = (counts.idle + up).saturating_sub(n / 3);
            }
            for _ in 0..200 {
                if let PoolStep::Fill(n) = next_step(counts, true) { counts.filling += n }
                counts.idle += counts.filling;
                counts.filling = 0;
                if let PoolStep::Remove(n) = next_step(counts, true) { counts.idle -= n }
            }
            prop_assert_eq!(counts.idle, size);
        }
    }

    #[test]
    fn while_it_must_not_fill_it_only_removes() {
        assert_eq!(next_step(PoolCounts { size: 3, idle: 0, filling: 0 }, false), PoolStep::Rest);
        assert_eq!(next_step(PoolCounts { size: 1, idle: 3, filling: 0 }, false), PoolStep::Remove(2));
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

    fn full(memory: &[u64], limit: u64) -> Admission {
        let limits = Limits {
            max_sessions: 10,
            max_total_memory_mb: Some(limit),
            max_total_disk_mb: None,
            max_total_millicpus: None,
        };
        let mut admission = Admission::new(limits);
        for memory_mb in memory {
            admission.admit(&Demand { memory_mb: *memory_mb, disk_mb: 0, millicpus: 0 }, None).unwrap();
        }
        admission
    }

    fn evicted(admission: &Admission, pooled: &[u64], asked: u64) -> Option<Vec<u64>> {
        let admission = std::cell::RefCell::new(admission.clone());
        let demand = |memory_mb: u64| Demand { memory_mb, disk_mb: 0, millicpus: 0 };
        choose_evictions(
            pooled.iter().copied(),
            || admission.borrow_mut().admit(&demand(asked), None),
            |memory_mb| admission.borrow_mut().release(&demand(*memory_mb), None),
        )
    }

    #[test]
    fn pooled_sandboxes_are_evicted_only_where_that_helps_and_no_more_than_needed() {
        let admission = full(&[40, 20, 20, 20], 100);
        assert_eq!(evicted(&admission, &[20, 20, 20], 10), Some(vec![20]));
        assert_eq!(evicted(&admission, &[20, 20, 20], 50), Some(vec![20, 20, 20]));
        assert_eq!(evicted(&admission, &[20, 20, 20], 61), None);
        assert_eq!(evicted(&full(&[40], 100), &[20], 60), Some(vec![]));
    }
}
