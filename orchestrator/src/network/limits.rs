//! What the network of one session may take: connections, and bytes per second and in total; and the connections of all sessions
//! together.

use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use network_policy::Reason;
use tokio::time::Instant;

/// The limits of each session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NetworkLimits {
    /// Connections at the same time.
    pub connections: usize,
    /// Bytes per second, both ways together. `None`: as fast as it goes.
    pub bytes_per_second: Option<u64>,
    /// Bytes in total, both ways together. `None`: as many as the session wants.
    pub total_bytes: Option<u64>,
}

impl Default for NetworkLimits {
    fn default() -> Self {
        Self { connections: DEFAULT_CONNECTIONS, bytes_per_second: None, total_bytes: None }
    }
}

pub const DEFAULT_CONNECTIONS: usize = 1024;

/// How many open files one connection takes at most: two sockets, and a pipe with two ends in each direction.
const FILES_OF_A_CONNECTION: u64 = 6;

/// How many connections all sessions may have together, if the daemon may have this many open files: a quarter of the files is left
/// for clients, sandboxes and the store.
pub fn total_connections(open_files: u64) -> usize {
    usize::try_from(open_files / 4 * 3 / FILES_OF_A_CONNECTION).unwrap_or(usize::MAX).max(1)
}

/// A number of places for connections.
#[derive(Debug)]
pub struct Places {
    most: usize,
    taken: AtomicUsize,
}

impl Places {
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, taken: AtomicUsize::new(0) })
    }

    pub fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }
}

/// The place of one open connection, until it is dropped.
#[derive(Debug)]
pub struct Place(Arc<Places>);

impl Place {
    /// Takes a place. `None` if all are taken.
    pub fn take(places: &Arc<Places>) -> Option<Self> {
        let is_free = |taken: usize| (taken < places.most).then_some(taken + 1);
        let taken = places.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, is_free);
        taken.is_ok().then(|| Self(places.clone()))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How far a session may be ahead of its rate before it has to wait.
const BURST: Duration = Duration::from_millis(200);

/// What a session has taken so far.
#[derive(Debug)]
pub struct SessionMeter {
    limits: NetworkLimits,
    connections: Arc<Places>,
    sent: AtomicU64,
    received: AtomicU64,
    /// When the bytes so far would have passed at the session's rate.
    paid_until: Mutex<Instant>,
}

impl SessionMeter {
    pub fn new(limits: NetworkLimits) -> Self {
        Self {
            limits,
            connections: Places::new(limits.connections),
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
            paid_until: Mutex::new(Instant::now()),
        }
    }

    pub fn connections(&self) -> &Arc<Places> {
        &self.connections
    }

    /// The bytes that programs have sent and received.
    pub fn bytes(&self) -> (u64, u64) {
        (self.sent.load(Ordering::Relaxed), self.received.load(Ordering::Relaxed))
    }

    /// Whether no byte may pass any more.
    pub fn is_used_up(&self) -> bool {
        let (sent, received) = self.bytes();
        self.limits.total_bytes.is_some_and(|most| sent.saturating_add(received) >= most)
    }

    /// Whether bytes may have to wait.
    pub fn has_rate(&self) -> bool {
        self.limits.bytes_per_second.is_some()
    }

    pub async fn sent(&self, count: usize) -> Result<(), Reason> {
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        self.sent.fetch_add(count, Ordering::Relaxed);
        self.take(count).await
    }

    pub async fn received(&self, count: usize) -> Result<(), Reason> {
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        self.received.fetch_add(count, Ordering::Relaxed);
        self.take(count).await
    }

    /// Counts bytes that are about to pass: fails if they are too many, and waits if they come too soon.
    async fn take(&self, count: u64) -> Result<(), Reason> {
        let (sent, received) = self.bytes();
        if self.limits.total_bytes.is_some_and(|most| sent.saturating_add(received) > most) {
            return Err(Reason::ByteLimit);
        }
        if let Some(rate) = self.limits.bytes_per_second {
            let cost = Duration::from_secs_f64(to_f64(count) / to_f64(rate.max(1)));
            let wait_until = {
                let mut paid_until = self.paid_until.lock().unwrap_or_else(PoisonError::into_inner);
                *paid_until = (*paid_until).max(Instant::now()) + cost;
                *paid_until
            };
            if wait_until > Instant::now() + BURST {
                tokio::time::sleep_until(wait_until - BURST).await;
            }
        }
        Ok(())
    }
}

#[expect(clippy::cast_precision_loss, reason = "a rate need not be exact")]
fn to_f64(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_rate_is_kept_over_time() {
        let limits = NetworkLimits { bytes_per_second: Some(1000), ..NetworkLimits::default() };
        let (meter, began) = (SessionMeter::new(limits), Instant::now());
        for _ in 0..50 {
            meter.sent(100).await.unwrap();
            meter.received(100).await.unwrap();
        }
        let took = began.elapsed();
        assert!(took > Duration::from_secs(9) && took < Duration::from_secs(11), "{took:?}");
    }

    #[test]
    fn all_connections_together_leave_open_files_for_the_daemon() {
        for files in [0, 1, 64, 1024, 20_000, 1 << 20, u64::MAX] {
            let most = total_connections(files);
            let taken = u64::try_from(most).unwrap().saturating_mul(FILES_OF_A_CONNECTION);
            assert!(most == 1 || taken <= files - files / 4, "{files}: {most}");
        }
        assert_eq!(total_connections(1 << 20), 131_072);
    }

    #[tokio::test]
    async fn a_total_and_the_number_of_connections_are_limits() {
        let limits = NetworkLimits { connections: 2, total_bytes: Some(10), bytes_per_second: None };
        let meter = SessionMeter::new(limits);
        let take = || Place::take(meter.connections());
        let (first, second) = (take().unwrap(), take().unwrap());
        assert!(take().is_none() && meter.connections().taken() == 2);
        drop(first);
        assert!(take().is_some());
        drop(second);
        assert_eq!(meter.connections().taken(), 0);
        assert_eq!(meter.sent(6).await, Ok(()));
        assert!(!meter.is_used_up());
        assert_eq!(meter.received(4).await, Ok(()));
        assert!(meter.is_used_up());
        assert_eq!(meter.received(1).await, Err(Reason::ByteLimit));
        assert_eq!(meter.bytes(), (6, 5));
    }
}
