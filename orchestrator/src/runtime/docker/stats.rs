//! Reads what a container uses: the engine's statistics, and the size of the content of its tmpfs.
//!
//! With gVisor the numbers are those of gVisor as a whole: its memory, which includes the sandbox's, and its own threads. The
//! content of its tmpfs cannot be seen from the host, so `disk_bytes` is missing.

use std::path::Path;

use bollard::query_parameters::StatsOptionsBuilder;
use futures_util::StreamExt as _;
use shared_protocol::SessionId;
use shared_protocol::api::StatsView;

use super::kernel::Kernel;
use super::{Inner, request};
use crate::runtime::{RuntimeError, files};

impl Inner {
    pub(super) async fn stats(&self, id: &SessionId) -> Result<StatsView, RuntimeError> {
        let name = self.name(id);
        let options = StatsOptionsBuilder::new().stream(false).one_shot(true).build();
        let first = std::pin::pin!(self.docker.stats(&name, Some(options))).next().await;
        let found = match first {
            Some(Ok(found)) => found,
            Some(Err(error)) => return Err(self.gone_or(id, "reading the container's statistics", error)),
            None => return Err(RuntimeError::Gone(id.clone())),
        };
        let memory = found.memory_stats.unwrap_or_default();
        let cpu = found.cpu_stats.unwrap_or_default().cpu_usage.unwrap_or_default();
        let disk_bytes = match self.pid(id).await.filter(|_| self.kernel == Kernel::Host) {
            Some(pid) => tokio::task::spawn_blocking(move || disk_bytes(pid)).await.ok().flatten(),
            None => None,
        };
        Ok(StatsView {
            memory_bytes: memory.usage.unwrap_or(0),
            memory_limit: memory.limit,
            cpu_usage_usec: cpu.total_usage.unwrap_or(0) / 1000,
            pids: found.pids_stats.unwrap_or_default().current.unwrap_or(0),
            disk_bytes,
        })
    }
}

/// The bytes in the container's tmpfs, seen through its first process. A workspace does not count. `None` if that process is
/// not on this host.
fn disk_bytes(pid: i64) -> Option<u64> {
    let used = request::DISKS
        .iter()
        .filter_map(|(path, _)| files::used_tmpfs_bytes(Path::new(&format!("/proc/{pid}/root{path}"))));
    used.reduce(|sum, bytes| sum + bytes)
}
