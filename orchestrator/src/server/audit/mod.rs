//! The audit log: one line for each request that changes something, with the key that asked for it (`record`), in a file that
//! rotates (`file`).
//!
//! One thread writes. Requests send it records over a bounded queue. If the disk is slower than the requests, a request waits a
//! moment for room in the queue; then its record is dropped and counted (`cove_audit_dropped_total`). So a disk that is full or
//! stuck never stops the daemon. A record is queued before its answer is sent and written soon after, so a daemon that is
//! killed may lose the last ones.
//!
//! Requests without a valid key change nothing and are not recorded: a stranger cannot push records out of the log.

mod file;
mod record;

use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tracing::{info, warn};

pub use record::{AuditRecord, bounded, ids_in};

use self::file::RotatingFile;
use crate::config::AuditConfig;
use crate::metrics::Metrics;

/// The most records that wait for the thread.
const QUEUE_LENGTH: usize = 1024;
/// How long a request waits for room in the queue before its record is dropped.
const MAX_WAIT: Duration = Duration::from_millis(100);
/// How long the thread lets records gather before it writes them. To wake it for each one would slow each request down.
const GATHER: Duration = Duration::from_millis(20);
/// How long the end of the daemon waits for the last records.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

enum Job {
    Add(Box<AuditRecord>),
    Close(oneshot::Sender<()>),
}

/// The way to the audit log. Cheap to clone.
#[derive(Clone)]
pub struct AuditLog {
    queue: mpsc::Sender<Job>,
    metrics: Metrics,
}

impl AuditLog {
    /// Starts the thread.
    pub fn start(config: AuditConfig, metrics: Metrics) -> std::io::Result<Self> {
        let (queue, jobs) = mpsc::channel(QUEUE_LENGTH);
        let writer = Writer { path: config.path.display().to_string(), file: RotatingFile::new(config), dropped: 0 };
        let counts = metrics.clone();
        std::thread::Builder::new().name("audit".into()).spawn(move || writer.run(jobs, &counts))?;
        Ok(Self { queue, metrics })
    }

    pub async fn add(&self, record: AuditRecord) {
        let sent = self.queue.send_timeout(Job::Add(Box::new(record)), MAX_WAIT).await;
        if sent.is_err() {
            self.metrics.audit_dropped();
        }
    }

    /// Waits until everything in the queue is written.
    pub async fn close(&self) {
        let (done, closed) = oneshot::channel();
        let closing = async {
            if self.queue.send(Job::Close(done)).await.is_ok() {
                let _ = closed.await;
            }
        };
        let _ = timeout(CLOSE_TIMEOUT, closing).await;
    }
}

struct Writer {
    path: String,
    file: RotatingFile,
    /// The records in a row that could not be written.
    dropped: u64,
}

impl Writer {
    fn run(mut self, mut jobs: mpsc::Receiver<Job>, metrics: &Metrics) {
        while let Some(first) = jobs.blocking_recv() {
            if matches!(first, Job::Add(_)) {
                std::thread::sleep(GATHER);
            }
            let mut next = Some(first);
            while let Some(job) = next {
                match job {
                    Job::Add(record) => self.add(&record.line(), metrics),
                    Job::Close(done) => {
                        let _ = done.send(());
                        return;
                    }
                }
                next = jobs.try_recv().ok();
            }
        }
    }

    /// Writes a line. The first failure and the end of the failures are logged, and each lost record is counted.
    fn add(&mut self, line: &[u8], metrics: &Metrics) {
        match self.file.add(line) {
            Ok(()) if self.dropped > 0 => {
                info!(path = self.path, lost = self.dropped, "the audit log is written again");
                self.dropped = 0;
            }
            Ok(()) => {}
            Err(cause) => {
                if self.dropped == 0 {
                    warn!(path = self.path, %cause, "the audit log cannot be written");
                }
                self.dropped = self.dropped.saturating_add(1);
                metrics.audit_dropped();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(number: usize) -> AuditRecord {
        AuditRecord {
            time: "t".into(),
            request_id: number.to_string(),
            caller: "alice".into(),
            role: "user",
            remote: "uid:7".into(),
            method: "POST".into(),
            route: "/v1/sessions".into(),
            ids: serde_json::Map::new(),
            status: 201,
            error_code: None,
        }
    }

    #[tokio::test]
    async fn every_record_is_a_line_and_a_log_that_cannot_be_written_stops_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        let metrics = Metrics::new();
        let config = AuditConfig { path: path.clone(), max_bytes: 1 << 20, keep: 1 };
        let log = AuditLog::start(config.clone(), metrics.clone()).unwrap();
        for number in 0..3000 {
            log.add(record(number)).await;
        }
        log.close().await;
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), 3000);
        let first = r#"{"time":"t","request_id":"0","caller":"alice","role":"user","remote":"uid:7","method":"POST","route":"/v1/sessions","ids":{},"status":201}"#;
        assert_eq!(text.lines().next(), Some(first));

        let broken = AuditConfig { path: folder.path().join("no/such/directory/audit.log"), ..config };
        let log = AuditLog::start(broken, metrics.clone()).unwrap();
        for number in 0..5 {
            log.add(record(number)).await;
        }
        log.close().await;
        let text = metrics.encode(&std::collections::HashMap::new()).unwrap();
        assert!(text.contains("cove_audit_dropped_total 5"), "{text}");
    }
}
