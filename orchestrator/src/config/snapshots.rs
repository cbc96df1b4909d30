//! `[snapshots]`: how many snapshots an owner may have, and how much they may hold.

use super::ConfigError;
use super::settings::Settings;

const DEFAULT_MAX_PER_OWNER: u64 = 100;
const MAX_PER_OWNER: u64 = 100_000;
/// The largest limit in MiB: one pebibyte.
const MAX_MIB: u64 = 1 << 30;

/// Without a setting, the snapshots of one owner hold at most the disks of all sessions divided by this.
const PART_OF_DISKS: u64 = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotsConfig {
    /// The most snapshots of one owner.
    pub max_per_owner: u64,
    /// What all snapshots of one owner may hold, as if they shared nothing; 0 means no limit, and `None` a part of the disk.
    pub max_mb_per_owner: Option<u64>,
}

impl Default for SnapshotsConfig {
    fn default() -> Self {
        Self { max_per_owner: DEFAULT_MAX_PER_OWNER, max_mb_per_owner: None }
    }
}

impl SnapshotsConfig {
    pub(super) fn read(settings: &mut Settings) -> Result<Self, ConfigError> {
        Ok(Self {
            max_per_owner: settings.whole("snapshots.max_per_owner", DEFAULT_MAX_PER_OWNER, 0..=MAX_PER_OWNER)?,
            max_mb_per_owner: settings.optional_whole("snapshots.max_mb_per_owner", 0..=MAX_MIB)?,
        })
    }

    /// The same settings on a host whose disks of sessions have this size, if they are disks.
    pub fn on_disks(self, total_mb: Option<u64>) -> Self {
        let part = total_mb.map(|total| (total / PART_OF_DISKS).max(1));
        Self { max_mb_per_owner: self.max_mb_per_owner.or(part), ..self }
    }

    pub fn max_bytes_per_owner(&self) -> Option<u64> {
        self.max_mb_per_owner.filter(|limit| *limit > 0).map(|limit| limit << 20)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_setting_an_owner_has_a_part_of_the_disks() {
        let of = |setting, total_mb| {
            let config = SnapshotsConfig { max_mb_per_owner: setting, ..SnapshotsConfig::default() };
            config.on_disks(total_mb).max_bytes_per_owner().map(|bytes| bytes >> 20)
        };
        assert_eq!(of(None, Some(1000)), Some(500));
        assert_eq!(of(Some(7), Some(1000)), Some(7));
        assert_eq!(of(Some(0), Some(1000)), None);
        assert_eq!(of(None, None), None);
    }
}
