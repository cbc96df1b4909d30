//! A container's accounts, as the engine keeps them, and what its tmpfs hold.
//!
//! With gVisor the numbers are of gVisor as a whole: its memory, which has all of the sandbox's in it, and its own threads.
//! What its tmpfs hold cannot be seen from outside there.

use std::path::Path;

use bollard::query_parameters::StatsOptionsBuilder;
use futures_util::StreamExt as _;
use shared_protocol::SessionId;
use shared_protocol::api::StatsView;

use super::kernel::Kernel;
use super::{Inner, body};
use crate::runtime::{RuntimeError, files};

impl Inner {
    pub(super) async fn stats(&self, id: &SessionId) -> Result<StatsView, RuntimeError> {
        let name = self.name(id);
        let options = StatsOptionsBuilder::new().stream(false).one_shot(true).build();
        let first = std::pin::pin!(self.docker.stats(&name, Some(options))).next().await;
        let found = match first {
            Some(Ok(found)) => found,
            Some(Err(error)) => return Err(self.gone_or(id, "reading the container's accounts", error)),
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

/// Of its tmpfs, seen through its first process; a workspace is not counted. Nothing where that process is not of this host.
fn disk_bytes(pid: i64) -> Option<u64> {
    let used =
        body::DISKS.iter().filter_map(|path| files::used_tmpfs_bytes(Path::new(&format!("/proc/{pid}/root{path}"))));
    used.reduce(|sum, bytes| sum + bytes)
}
