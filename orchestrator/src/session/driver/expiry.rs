//! Decides when an unused session expires, and when it is paused before that. Pure.

use std::time::Duration;

use tokio::time::Instant;

/// The current use of a session, and the time of its last use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    pub last_activity: Instant,
    /// The number of requests in flight.
    pub requests: usize,
    /// The number of detached commands that still run. They count as use, unless they are frozen.
    pub detached: usize,
    pub is_paused: bool,
}

impl Usage {
    pub fn is_in_use(&self) -> bool {
        self.requests > 0 || (self.detached > 0 && !self.is_paused)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expiry {
    /// Look again at this time, and not before.
    At(Instant),
    /// Something runs: the session cannot expire before that has ended.
    WhenIdle,
    /// The session has been idle long enough to be paused.
    Pause,
    Due,
}

pub fn expiry(now: Instant, usage: Usage, lifetime: Duration, idle_pause: Option<Duration>) -> Expiry {
    if usage.is_in_use() {
        return Expiry::WhenIdle;
    }
    let end = usage.last_activity + lifetime;
    if end <= now {
        return Expiry::Due;
    }
    match idle_pause.filter(|_| !usage.is_paused).map(|after| usage.last_activity + after) {
        Some(pause) if pause <= now => Expiry::Pause,
        Some(pause) => Expiry::At(pause.min(end)),
        None => Expiry::At(end),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFETIME: Duration = Duration::from_secs(10);
    const NANOSECOND: Duration = Duration::from_nanos(1);

    fn idle_since(last_activity: Instant) -> Usage {
        Usage { last_activity, requests: 0, detached: 0, is_paused: false }
    }

    #[test]
    fn it_is_due_at_the_very_moment_and_not_before_and_never_while_something_runs() {
        let start = Instant::now();
        let (idle, end) = (idle_since(start), start + LIFETIME);
        assert_eq!(expiry(end - NANOSECOND, idle, LIFETIME, None), Expiry::At(end));
        assert_eq!(expiry(end, idle, LIFETIME, None), Expiry::Due);
        assert_eq!(expiry(end, Usage { requests: 1, ..idle }, LIFETIME, None), Expiry::WhenIdle);
        assert_eq!(expiry(end, Usage { detached: 1, ..idle }, LIFETIME, None), Expiry::WhenIdle);
        let frozen = Usage { detached: 1, is_paused: true, ..idle };
        assert_eq!(expiry(end, frozen, LIFETIME, None), Expiry::Due, "what is frozen is not used");
    }

    #[test]
    fn it_is_paused_once_at_the_very_moment_unless_it_expires_first() {
        let start = Instant::now();
        let (idle, pause) = (idle_since(start), Some(Duration::from_secs(4)));
        let at = start + Duration::from_secs(4);
        assert_eq!(expiry(at - NANOSECOND, idle, LIFETIME, pause), Expiry::At(at));
        assert_eq!(expiry(at, idle, LIFETIME, pause), Expiry::Pause);
        assert_eq!(expiry(at, Usage { is_paused: true, ..idle }, LIFETIME, pause), Expiry::At(start + LIFETIME));
        assert_eq!(expiry(at, Usage { detached: 1, ..idle }, LIFETIME, pause), Expiry::WhenIdle);
        assert_eq!(expiry(start + LIFETIME, idle, LIFETIME, pause), Expiry::Due);
        assert_eq!(expiry(start, idle, LIFETIME, Some(LIFETIME * 2)), Expiry::At(start + LIFETIME));
    }
}
