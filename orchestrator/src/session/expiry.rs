//! When a session is over for lack of use. Pure.

use std::time::Duration;

use tokio::time::Instant;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expiry {
    /// Look again then, not before.
    At(Instant),
    /// Something runs: it cannot expire before that has ended.
    WhenIdle,
    Due,
}

pub fn expiry(now: Instant, last_activity: Instant, active: usize, limit: Duration) -> Expiry {
    if active > 0 {
        return Expiry::WhenIdle;
    }
    let at = last_activity + limit;
    if at <= now { Expiry::Due } else { Expiry::At(at) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_due_at_the_very_moment_and_not_before_and_never_while_something_runs() {
        let start = Instant::now();
        let limit = Duration::from_secs(10);
        let just_before = start + limit - Duration::from_nanos(1);
        assert_eq!(expiry(just_before, start, 0, limit), Expiry::At(start + limit));
        assert_eq!(expiry(start + limit, start, 0, limit), Expiry::Due);
        assert_eq!(expiry(start + limit, start, 1, limit), Expiry::WhenIdle);
    }
}
