//! Figures for Prometheus.

use shared_protocol::runner::OutcomeKind;

#[derive(Debug, Clone, Default)]
pub struct Metrics;

impl Metrics {
    pub fn exec_finished(&self, _kind: OutcomeKind, _seconds: f64) {}
    pub fn bytes_out(&self, _count: u64) {}
    pub fn bytes_in(&self, _count: u64) {}
}
