//! A test's own memory cgroup, in the hierarchy of the machine. Dropping it removes the cgroup.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::wait::blocks_until;

static CGROUPS: AtomicU32 = AtomicU32::new(0);

#[derive(Debug)]
pub struct MemoryCgroup(PathBuf);

impl MemoryCgroup {
    /// Makes a cgroup whose processes together may use `limit_bytes`. The error says why that is impossible.
    pub fn with_limit(limit_bytes: u64) -> Result<Self, String> {
        if !crate::is_root() {
            return Err("making a cgroup needs root".to_owned());
        }
        let (parent, limit_file) = if Path::new("/sys/fs/cgroup/memory/memory.limit_in_bytes").exists() {
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
        } else if Path::new("/sys/fs/cgroup/cgroup.controllers").exists() {
            // This is refused if it is already on, or below a cgroup with processes; writing the limit shows whether it
            // worked.
            let _ = std::fs::write("/sys/fs/cgroup/cgroup.subtree_control", "+memory");
            ("/sys/fs/cgroup", "memory.max")
        } else {
            return Err("no cgroup hierarchy with a memory controller is mounted at /sys/fs/cgroup".to_owned());
        };
        let number = CGROUPS.fetch_add(1, Ordering::Relaxed);
        let path = Path::new(parent).join(format!("cove-e2e-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let cgroup = Self(path);
        std::fs::write(cgroup.0.join(limit_file), limit_bytes.to_string()).map_err(|e| format!("{limit_file}: {e}"))?;
        Ok(cgroup)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for MemoryCgroup {
    fn drop(&mut self) {
        // The cgroup is busy until its last process has been collected.
        if !blocks_until(Duration::from_secs(5), || std::fs::remove_dir(&self.0).is_ok()) {
            eprintln!("could not remove {}", self.0.display());
        }
    }
}
