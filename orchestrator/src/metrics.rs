//! The metrics that `/metrics` shows in the text format of Prometheus.
//!
//! To count is one atomic add; only the first use of a label takes a write lock. The number of sessions by status is read
//! from the session registry at each request, so the metric and the registry always agree.

use std::collections::HashMap;
use std::sync::Arc;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use shared_protocol::ErrorCode;
use shared_protocol::api::{AcquireSource, SessionStatus};
use shared_protocol::runner::OutcomeKind;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StatusLabel {
    status: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CreateLabel {
    result: &'static str,
    source: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabel {
    kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CodeLabel {
    code: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PoolLabel {
    image: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PoolResultLabel {
    image: String,
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

type MakeHistogram = fn() -> Histogram;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolResult {
    Hit,
    Miss,
    Dead,
}

#[derive(Clone)]
pub struct Metrics(Arc<Inner>);

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Metrics")
    }
}

struct Inner {
    registry: Registry,
    sessions: Family<StatusLabel, Gauge>,
    creates: Family<CreateLabel, Counter>,
    create_seconds: Histogram,
    exec_seconds: Family<KindLabel, Histogram, MakeHistogram>,
    bytes_in: Counter,
    bytes_out: Counter,
    errors: Family<CodeLabel, Counter>,
    connections: Gauge,
    audit_dropped: Counter,
    pool_claims: Family<PoolResultLabel, Counter>,
    pool_refill_seconds: Family<PoolLabel, Histogram, MakeHistogram>,
    pool_refill_failures: Family<PoolLabel, Counter>,
    network_connections: Counter,
    network_bytes: Counter,
    network_denials: Family<ReasonLabel, Counter>,
}

/// A histogram with buckets from 100 µs to 100 s.
fn exec_histogram() -> Histogram {
    Histogram::new([
        0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 100.0,
    ])
}

fn create_histogram() -> Histogram {
    Histogram::new([0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 60.0])
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    pub fn new() -> Self {
        let inner = Inner {
            registry: Registry::with_prefix("cove"),
            sessions: Family::default(),
            creates: Family::default(),
            create_seconds: create_histogram(),
            exec_seconds: Family::new_with_constructor(exec_histogram),
            bytes_in: Counter::default(),
            bytes_out: Counter::default(),
            errors: Family::default(),
            connections: Gauge::default(),
            audit_dropped: Counter::default(),
            pool_claims: Family::default(),
            pool_refill_seconds: Family::new_with_constructor(create_histogram),
            pool_refill_failures: Family::default(),
            network_connections: Counter::default(),
            network_bytes: Counter::default(),
            network_denials: Family::default(),
        };
        let mut inner = inner;
        let Inner {
            registry,
            sessions,
            creates,
            create_seconds,
            exec_seconds,
            bytes_in,
            bytes_out,
            errors,
            connections,
            audit_dropped,
            pool_claims,
            pool_refill_seconds,
            pool_refill_failures,
            network_connections,
            network_bytes,
            network_denials,
        } = &mut inner;
        registry.register(
            "network_connections",
            "TCP connections that programs in sandboxes have begun",
            network_connections.clone(),
        );
        registry.register_with_unit(
            "network",
            "Bytes that programs in sandboxes have sent and received over the network",
            Unit::Bytes,
            network_bytes.clone(),
        );
        registry.register(
            "network_denials",
            "What programs in sandboxes were not allowed to reach, by reason",
            network_denials.clone(),
        );
        registry.register("sessions", "Sessions that the daemon knows, by status", sessions.clone());
        registry.register(
            "session_creates",
            "Answered requests to create a session, by result and source",
            creates.clone(),
        );
        registry.register_with_unit(
            "session_create",
            "Time from a request to create a session to its answer",
            Unit::Seconds,
            create_seconds.clone(),
        );
        registry.register_with_unit(
            "exec",
            "Duration of commands and runs, by how they ended",
            Unit::Seconds,
            exec_seconds.clone(),
        );
        registry.register("received", "Bytes sent into sandboxes: input, files, archives", bytes_in.clone());
        registry.register("sent", "Bytes sent to clients: output, files, archives, terminals", bytes_out.clone());
        registry.register("errors", "Error answers, by error code", errors.clone());
        registry.register("connections", "Open connections of clients", connections.clone());
        registry.register("audit_dropped", "Records that are missing in the audit log", audit_dropped.clone());
        registry.register(
            "pool_claims",
            "Creates that fit a pool, by whether a pooled sandbox was claimed",
            pool_claims.clone(),
        );
        registry.register_with_unit(
            "pool_refill",
            "Time from the start of a pooled sandbox until it can be claimed",
            Unit::Seconds,
            pool_refill_seconds.clone(),
        );
        registry.register(
            "pool_refill_failures",
            "Starts of pooled sandboxes that failed",
            pool_refill_failures.clone(),
        );
        let build = vec![("version", env!("CARGO_PKG_VERSION")), ("runner_libc", crate::EMBEDDED_RUNNER_LIBC)];
        registry.register("build", "Version of the daemon and libc of its runner", Info::new(build));
        Self(Arc::new(inner))
    }

    /// Counts a create that was answered. Its time counts only if it made a session.
    pub fn created(&self, ok: bool, source: AcquireSource, seconds: f64) {
        let source = match source {
            AcquireSource::Pool => "pool",
            AcquireSource::Cold => "cold",
        };
        self.0.creates.get_or_create(&CreateLabel { result: if ok { "ok" } else { "error" }, source }).inc();
        if ok {
            self.0.create_seconds.observe(seconds);
        }
    }

    /// Counts a create that fits a pool: it claimed a pooled sandbox (`hit`), found none (`miss`), or claimed one that did
    /// not work (`dead`, counted after the `hit`).
    pub fn pool_claim(&self, image: &str, result: PoolResult) {
        let result = match result {
            PoolResult::Hit => "hit",
            PoolResult::Miss => "miss",
            PoolResult::Dead => "dead",
        };
        self.0.pool_claims.get_or_create(&PoolResultLabel { image: image.to_owned(), result }).inc();
    }

    /// Counts a record that did not get into the audit log.
    pub fn audit_dropped(&self) {
        self.0.audit_dropped.inc();
    }

    pub fn pool_filled(&self, image: &str, seconds: f64) {
        self.0.pool_refill_seconds.get_or_create(&PoolLabel { image: image.to_owned() }).observe(seconds);
    }

    pub fn pool_not_filled(&self, image: &str) {
        self.0.pool_refill_failures.get_or_create(&PoolLabel { image: image.to_owned() }).inc();
    }

    pub fn exec_finished(&self, kind: OutcomeKind, seconds: f64) {
        let kind = match kind {
            OutcomeKind::Exited => "exited",
            OutcomeKind::Signaled => "signaled",
            OutcomeKind::TimedOut => "timed_out",
            OutcomeKind::NeverRan => "never_ran",
            OutcomeKind::Lost => "lost",
        };
        self.0.exec_seconds.get_or_create(&KindLabel { kind }).observe(seconds);
    }

    pub fn network_connected(&self) {
        self.0.network_connections.inc();
    }

    pub fn network_bytes(&self, count: u64) {
        self.0.network_bytes.inc_by(count);
    }

    pub fn network_denied(&self, reason: &'static str) {
        self.0.network_denials.get_or_create(&ReasonLabel { reason }).inc();
    }

    pub fn bytes_in(&self, n: u64) {
        self.0.bytes_in.inc_by(n);
    }

    pub fn bytes_out(&self, n: u64) {
        self.0.bytes_out.inc_by(n);
    }

    pub fn error(&self, code: ErrorCode) {
        let code =
            serde_json::to_value(code).ok().and_then(|code| code.as_str().map(str::to_owned)).unwrap_or_default();
        self.0.errors.get_or_create(&CodeLabel { code }).inc();
    }

    /// Counts a connection until the returned value is dropped.
    pub fn connection(&self) -> OpenConnection {
        self.0.connections.inc();
        OpenConnection(self.clone())
    }

    pub fn encode(&self, sessions: &HashMap<SessionStatus, u64>) -> Result<String, std::fmt::Error> {
        for status in SessionStatus::ALL {
            let count = sessions.get(&status).copied().unwrap_or(0);
            let gauge = self.0.sessions.get_or_create(&StatusLabel { status: status.as_str() });
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
        let mut text = String::new();
        encode(&mut text, &self.0.registry)?;
        Ok(text)
    }
}

pub struct OpenConnection(Metrics);

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.0.connections.dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_counted_is_shown() {
        let metrics = Metrics::new();
        metrics.created(true, AcquireSource::Cold, 0.03);
        metrics.exec_finished(OutcomeKind::TimedOut, 0.5);
        metrics.bytes_out(7);
        metrics.pool_claim("python", PoolResult::Hit);
        metrics.pool_filled("python", 0.01);
        metrics.error(ErrorCode::SessionNotFound);
        let open = metrics.connection();
        drop(metrics.connection());
        let text = metrics.encode(&HashMap::from([(SessionStatus::Running, 3)])).unwrap();
        drop(open);
        for line in [
            "cove_sessions{status=\"running\"} 3",
            "cove_sessions{status=\"paused\"} 0",
            "cove_session_creates_total{result=\"ok\",source=\"cold\"} 1",
            "cove_session_create_seconds_count 1",
            "cove_exec_seconds_count{kind=\"timed_out\"} 1",
            "cove_sent_total 7",
            "cove_pool_claims_total{image=\"python\",result=\"hit\"} 1",
            "cove_pool_refill_seconds_count{image=\"python\"} 1",
            "cove_errors_total{code=\"SESSION_NOT_FOUND\"} 1",
            "cove_connections 1",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }
}
