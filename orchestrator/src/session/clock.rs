//! The session clock. Decisions use tokio's monotonic clock, so that a jump of the host's clock expires nothing and a test
//! can stop time. Times that are shown or stored are that clock, counted from one reading of the wall clock.
//!
//! The times that an earlier daemon stored come from another reading of the wall clock, and the host's clock may have been
//! set in between. So a stored time that decides something is limited to a plausible range (`recall`).

use std::time::{Duration, SystemTime};

use tokio::time::Instant;

#[derive(Debug, Clone, Copy)]
pub struct Clock {
    instant: Instant,
    wall: SystemTime,
}

impl Clock {
    pub fn start() -> Self {
        Self { instant: Instant::now(), wall: SystemTime::now() }
    }

    /// A clock that starts as if the host's clock showed `wall` at this moment.
    #[cfg(test)]
    pub fn starting_at(wall: SystemTime) -> Self {
        Self { instant: Instant::now(), wall }
    }

    /// The wall-clock time of a moment, counted from the start of this clock. If it is too large, the largest possible time.
    pub fn wall(&self, at: Instant) -> SystemTime {
        let wall = match at.checked_duration_since(self.instant) {
            Some(after) => self.wall.checked_add(after),
            None => self.wall.checked_sub(self.instant.saturating_duration_since(at)),
        };
        wall.unwrap_or_else(last_shown)
    }

    /// The moment that a wall-clock time stands for.
    pub fn instant(&self, wall: SystemTime) -> Instant {
        let at = match wall.duration_since(self.wall) {
            Ok(after) => self.instant.checked_add(after),
            Err(before) => self.instant.checked_sub(before.duration()),
        };
        at.unwrap_or(self.instant)
    }

    /// The moment at which a session of an earlier daemon was last used: never in the future, and never longer ago than the
    /// session's lifetime, even if the host's clock was set meanwhile. So the session's remaining time is between zero and
    /// its whole lifetime.
    pub fn recall(&self, wall: SystemTime, lifetime: Duration) -> Instant {
        let now = Instant::now();
        let earliest = now.checked_sub(lifetime).unwrap_or(now);
        self.instant(wall).clamp(earliest, now)
    }

    /// A moment in RFC 3339 format, in UTC and with milliseconds. If it is too large, the last time that the format can
    /// show.
    pub fn show(&self, at: Instant) -> String {
        show_wall(self.wall(at))
    }
}

/// Shows a wall-clock time as `Clock::show` does.
pub fn show_wall(at: SystemTime) -> String {
    humantime::format_rfc3339_millis(at.min(last_shown())).to_string()
}

/// 9999-12-31T23:59:59Z: RFC 3339 has four digits for the year, and the formatter panics past them.
fn last_shown() -> SystemTime {
    SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(253_402_300_799)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn shown_times_follow_the_clock_that_decides() {
        let clock =
            Clock { instant: Instant::now(), wall: SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000) };
        tokio::time::advance(Duration::from_millis(1500)).await;
        assert_eq!(clock.show(Instant::now()), "2001-09-09T01:46:41.500Z");
        assert_eq!(show_wall(last_shown() + Duration::from_secs(9)), "9999-12-31T23:59:59.000Z");
    }

    #[tokio::test(start_paused = true)]
    async fn a_time_that_was_written_down_is_the_same_moment_again() {
        let clock = Clock::starting_at(SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000));
        tokio::time::advance(Duration::from_secs(5)).await;
        let at = Instant::now() - Duration::from_millis(2500);
        assert_eq!(clock.instant(clock.wall(at)), at);
        assert_eq!(clock.recall(clock.wall(at), Duration::from_secs(60)), at);
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_jumped_takes_all_of_the_time_or_gives_it_again_and_no_more() {
        let before = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        let (lifetime, year) = (Duration::from_secs(60), Duration::from_secs(31_536_000));
        let ahead = Clock::starting_at(before + year);
        assert_eq!(ahead.recall(before, lifetime), Instant::now() - lifetime);
        let behind = Clock::starting_at(before - year);
        assert_eq!(behind.recall(before, lifetime), Instant::now());
        let absurd = Clock::starting_at(SystemTime::UNIX_EPOCH);
        assert_eq!(absurd.recall(last_shown(), lifetime), Instant::now());
        assert_eq!(absurd.recall(SystemTime::UNIX_EPOCH, Duration::MAX), absurd.instant(SystemTime::UNIX_EPOCH));
    }
}
