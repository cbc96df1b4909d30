//! The daemon's own deadline behind a command's time limit. Pure.
//!
//! The runner ends a command that has run out of time, and reports it within a second. This deadline is for a runner that
//! does not: it is stuck, it lies, or a process in the sandbox hides the end of another one. It counts from the frame
//! `started`, because a command in a queue has not begun.
//!
//! What the runner sent before the deadline may still be on its way, because the client reads slowly. So after the deadline
//! the stream ends when the daemon has **waited** for the runner for `LAST_WAIT` in all, or when it has got more bytes than a
//! runner keeps. A client that does not read costs neither.

use std::time::Duration;

use tokio::time::Instant;

/// The time in which the runner ends a command after its time limit: INT, TERM, KILL, a new shell.
pub const ESCALATION: Duration = Duration::from_secs(1);

/// How much later than that the report may come, on a host that is busy.
pub const REPORT_GRACE: Duration = Duration::from_secs(10);

/// How long the daemon still waits for the runner after the deadline.
pub const LAST_WAIT: Duration = Duration::from_secs(4);

/// The most bytes that a runner may send after the deadline: more than it keeps of one command.
pub const LAST_BYTES: u64 = 64 << 20;

#[derive(Debug)]
pub struct Deadline {
    /// The command's time limit. `None`: it may run for ever.
    limit: Option<Duration>,
    began: Option<Instant>,
    /// Since when nothing has come, while the stream waits for the runner.
    waiting_since: Option<Instant>,
    /// The time that was spent waiting after the deadline, without the current wait.
    waited: Duration,
    /// The bytes that came after the deadline.
    bytes: u64,
}

impl Deadline {
    pub fn new(limit: Option<Duration>) -> Self {
        Self { limit, began: None, waiting_since: None, waited: Duration::ZERO, bytes: 0 }
    }

    /// The command has begun.
    pub fn begin(&mut self, now: Instant) {
        self.began.get_or_insert(now);
    }

    /// How long the command has run.
    pub fn run_time(&self, now: Instant) -> Duration {
        self.began.map_or(Duration::ZERO, |began| now - began)
    }

    /// Bytes have come. Returns `false` if no more may come.
    pub fn took(&mut self, now: Instant, bytes: usize) -> bool {
        self.add_wait(now);
        self.waiting_since = None;
        if self.at().is_some_and(|at| at <= now) {
            self.bytes = self.bytes.saturating_add(bytes as u64);
        }
        self.bytes <= LAST_BYTES
    }

    /// Nothing is there, and the stream waits for the runner. Returns when the wait is over, if it has an end.
    pub fn wait(&mut self, now: Instant) -> Option<Instant> {
        self.waiting_since.get_or_insert(now);
        let (at, since) = (self.at()?, self.waiting_since?);
        Some(at.max(since) + LAST_WAIT.saturating_sub(self.waited))
    }

    fn at(&self) -> Option<Instant> {
        Some(self.began? + self.limit? + ESCALATION + REPORT_GRACE)
    }

    fn add_wait(&mut self, now: Instant) {
        if let (Some(at), Some(since)) = (self.at(), self.waiting_since) {
            self.waited += now.saturating_duration_since(at.max(since));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(5);
    const AT: Duration = Duration::from_secs(16);

    fn begun() -> (Instant, Deadline) {
        let start = Instant::now();
        let mut deadline = Deadline::new(Some(LIMIT));
        deadline.begin(start);
        (start, deadline)
    }

    #[test]
    fn a_silent_runner_is_waited_for_until_the_limit_and_the_named_times_after_it_have_passed() {
        let (start, mut deadline) = begun();
        assert_eq!(deadline.wait(start), Some(start + AT + LAST_WAIT));
        assert_eq!(deadline.wait(start + LIMIT), Some(start + AT + LAST_WAIT), "waiting on changes nothing");
    }

    #[test]
    fn a_command_without_a_limit_or_in_a_queue_has_no_deadline() {
        let now = Instant::now();
        assert_eq!(Deadline::new(Some(LIMIT)).wait(now), None);
        let mut unlimited = Deadline::new(None);
        unlimited.begin(now);
        assert_eq!(unlimited.wait(now), None);
    }

    #[test]
    fn a_client_that_reads_late_still_gets_what_was_sent_in_time() {
        let (start, mut deadline) = begun();
        // The client does not read for an hour, so the stream does not wait for the runner.
        let late = start + Duration::from_secs(3600);
        assert!(deadline.took(late, 100));
        assert_eq!(deadline.wait(late), Some(late + LAST_WAIT));
    }

    #[test]
    fn neither_a_drip_nor_a_flood_of_output_goes_on_for_ever() {
        let (start, mut deadline) = begun();
        let mut now = start + AT;
        let second = Duration::from_secs(1);
        let drops = (1..).find(|_| {
            let end = deadline.wait(now).unwrap();
            now += second;
            end <= now || !deadline.took(now, 1)
        });
        assert_eq!(drops, Some(4));
        let (start, mut deadline) = begun();
        assert!(deadline.took(start, usize::MAX), "before the deadline any amount is fine");
        let now = start + AT;
        let chunk = 1 << 20;
        assert_eq!((1..).find(|_| !deadline.took(now, chunk)), Some(65));
    }
}
