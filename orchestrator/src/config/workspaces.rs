//! `[workspaces]`: the size limit of workspaces.

use super::ConfigError;
use super::settings::Settings;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WorkspacesConfig {
    /// The size limit of each workspace, where the host can enforce it; 0 means no limit.
    pub max_mb: u64,
}

/// The largest limit in MiB: one pebibyte.
const MAX_MIB: u64 = 1 << 30;

impl WorkspacesConfig {
    pub(super) fn read(settings: &mut Settings) -> Result<Self, ConfigError> {
        Ok(Self { max_mb: settings.whole("workspaces.max_mb", 0, 0..=MAX_MIB)? })
    }
}
