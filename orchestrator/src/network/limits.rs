//! What the network of one session may take: connections, and bytes per second and in total.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
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

/// How far a session may be ahead of its rate before it has to wait.
const BURST: Duration = Duration::from_millis(200);

/// What a session has taken so far.
#[derive(Debug)]
pub struct SessionMeter {
    limits: NetworkLimits,
    connections: AtomicUsize,
    sent: AtomicU64,
    received: AtomicU64,
    /// When the bytes so far would have passed at the session's rate.
    paid_until: Mutex<Instant>,
}

impl SessionMeter {
    pub fn new(limits: NetworkLimits) -> Self {
        Self {
            limits,
            connections: AtomicUsize::new(0),
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
            paid_until: Mutex::new(Instant::now()),
        }
    }

    /// Takes a place for one connection, until `leave`. `false` if all are taken.
    pub fn enter(&self) -> bool {
        let is_free = |count: usize| (count < self.limits.connections).then_some(count + 1);
        self.connections.fetch_update(Ordering::Relaxed, Ordering::Relaxed, is_free).is_ok()
    }

    pub fn leave(&self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }

    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
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

    #[tokio::test]
    async fn a_total_and_the_number_of_connections_are_limits() {
        let limits = NetworkLimits { connections: 2, total_bytes: Some(10), bytes_per_second: None };
        let meter = SessionMeter::new(limits);
        assert!(meter.enter() && meter.enter() && !meter.enter());
        meter.leave();
        assert!(meter.enter());
        assert_eq!(meter.sent(6).await, Ok(()));
        assert!(!meter.is_used_up());
        assert_eq!(meter.received(4).await, Ok(()));
        assert!(meter.is_used_up());
        assert_eq!(meter.received(1).await, Err(Reason::ByteLimit));
        assert_eq!(meter.bytes(), (6, 5));
    }
}
