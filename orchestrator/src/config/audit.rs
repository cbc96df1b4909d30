//! `[audit]`: where the daemon writes who changed what, and how much of it is kept.

use std::path::{Path, PathBuf};

use super::ConfigError;
use super::settings::Settings;

/// The name of the audit log in the data directory.
const FILE_NAME: &str = "audit.log";
const DEFAULT_MAX_MB: u64 = 64;
const DEFAULT_KEEP: u64 = 4;
/// The largest file, in MiB.
const MAX_MIB: u64 = 1 << 20;
const MAX_KEEP: u64 = 100;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditConfig {
    pub path: PathBuf,
    /// The size at which a new file is begun.
    pub max_bytes: u64,
    /// How many full files are kept beside the one that is written.
    pub keep: u64,
}

impl AuditConfig {
    pub(super) fn read(settings: &mut Settings, data_dir: &Path) -> Result<Self, ConfigError> {
        let path = settings.text("audit.path")?.map(PathBuf::from);
        if let Some(path) = path.as_ref().filter(|path| !path.is_absolute()) {
            let origin = settings.origin_of("audit.path").unwrap_or_default();
            let message = format!("must be an absolute path, not {:?}", path.display().to_string());
            return Err(ConfigError::new(origin, "audit.path", message));
        }
        Ok(Self {
            path: path.unwrap_or_else(|| data_dir.join(FILE_NAME)),
            max_bytes: settings.whole("audit.max_mb", DEFAULT_MAX_MB, 1..=MAX_MIB)? << 20,
            keep: settings.whole("audit.keep", DEFAULT_KEEP, 0..=MAX_KEEP)?,
        })
    }
}
