//! `[workspaces]`: where new workspaces are, how large each may become, and how many an owner may have.

use super::ConfigError;
use super::settings::Settings;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkspacesConfig {
    /// The size limit of each workspace, where the host can enforce it; 0 means no limit.
    pub max_mb: u64,
    /// Whether the operator has set the limit, and so wants to know if it is not enforced.
    pub is_own_limit: bool,
    pub storage: WorkspaceStorage,
    /// The most workspaces of one owner.
    pub max_per_owner: u64,
}

/// Where new workspaces are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum WorkspaceStorage {
    /// Where they can be limited: as directories if the file system has project quotas, else on the disks of sessions.
    #[default]
    Auto,
    /// Directories of the data directory.
    Directory,
    /// The disks of sessions.
    Disk,
}

impl std::str::FromStr for WorkspaceStorage {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "auto" => Ok(Self::Auto),
            "directory" => Ok(Self::Directory),
            "disk" => Ok(Self::Disk),
            _ => Err(()),
        }
    }
}

/// As much as the disk of a session.
const DEFAULT_MAX_MIB: u64 = 10 << 10;
/// The largest limit in MiB: one pebibyte.
const MAX_MIB: u64 = 1 << 30;
const DEFAULT_MAX_PER_OWNER: u64 = 1_000;
const MAX_PER_OWNER: u64 = 100_000;

impl Default for WorkspacesConfig {
    fn default() -> Self {
        Self {
            max_mb: DEFAULT_MAX_MIB,
            is_own_limit: false,
            storage: WorkspaceStorage::Auto,
            max_per_owner: DEFAULT_MAX_PER_OWNER,
        }
    }
}

impl WorkspacesConfig {
    pub(super) fn read(settings: &mut Settings) -> Result<Self, ConfigError> {
        let limit = settings.optional_whole("workspaces.max_mb", 0..=MAX_MIB)?;
        Ok(Self {
            max_mb: limit.unwrap_or(DEFAULT_MAX_MIB),
            is_own_limit: limit.is_some(),
            storage: settings.parsed("workspaces.storage", "auto, directory or disk")?.unwrap_or_default(),
            max_per_owner: settings.whole("workspaces.max_per_owner", DEFAULT_MAX_PER_OWNER, 1..=MAX_PER_OWNER)?,
        })
    }

    /// The limit in bytes. `None` means no limit.
    pub fn max_bytes(&self) -> Option<u64> {
        (self.max_mb > 0).then_some(self.max_mb << 20)
    }
}
