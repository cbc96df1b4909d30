//! One clock for deciding and for telling: decisions are made on tokio's monotonic one, so that a jump of the host's clock
//! expires nothing and a test can hold time still; what is shown is that, counted from one look at the wall clock.

use std::time::SystemTime;

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

    /// RFC 3339 in UTC, to the millisecond. A time beyond what can be shown is the last that can.
    pub fn show(&self, at: Instant) -> String {
        let wall = match at.checked_duration_since(self.instant) {
            Some(after) => self.wall.checked_add(after),
            None => self.wall.checked_sub(self.instant.saturating_duration_since(at)),
        };
        show_wall(wall.unwrap_or_else(last_shown))
    }
}

/// As `Clock::show`, of a wall-clock time.
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
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn shown_times_follow_the_clock_that_decides() {
        let clock =
            Clock { instant: Instant::now(), wall: SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000) };
        tokio::time::advance(Duration::from_millis(1500)).await;
        assert_eq!(clock.show(Instant::now()), "2001-09-09T01:46:41.500Z");
        assert_eq!(show_wall(last_shown() + Duration::from_secs(9)), "9999-12-31T23:59:59.000Z");
    }
}
