//! `[local]`: settings of the embedded runtime.

use super::ConfigError;
use super::sessions::MAX_MIB;
use super::settings::Settings;

/// The smallest file system that disks can be on.
const MIN_TOTAL_MB: u64 = 128;

/// A protection of sandboxes that the control of a test can turn off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protection {
    Seccomp,
    Network,
    Masks,
    ReadOnlyRoot,
    PrivatePids,
    Capabilities,
    OwnInodes,
    Landlock,
}

impl Protection {
    const ALL: [Self; 8] = [
        Self::Seccomp,
        Self::Network,
        Self::Masks,
        Self::ReadOnlyRoot,
        Self::PrivatePids,
        Self::Capabilities,
        Self::OwnInodes,
        Self::Landlock,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Seccomp => "seccomp",
            Self::Network => "network",
            Self::Masks => "masks",
            Self::ReadOnlyRoot => "read_only_root",
            Self::PrivatePids => "private_pids",
            Self::Capabilities => "capabilities",
            Self::OwnInodes => "own_inodes",
            Self::Landlock => "landlock",
        }
    }
}

/// Where the disks of sandboxes are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DiskSetting {
    /// The best of the others that this host can do.
    #[default]
    Auto,
    /// Subvolumes of the data directory's own file system.
    Btrfs,
    /// Subvolumes of a file system in a file in the data directory.
    Loop,
    /// In memory.
    Tmpfs,
}

impl std::str::FromStr for DiskSetting {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "auto" => Ok(Self::Auto),
            "btrfs" => Ok(Self::Btrfs),
            "loop" => Ok(Self::Loop),
            "tmpfs" => Ok(Self::Tmpfs),
            _ => Err(()),
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LocalSettings {
    pub disk: DiskSetting,
    /// The size of all disks together. By default what the data directory's file system has free, less the reserve.
    pub disk_total_mb: Option<u64>,
    /// Names in the host's `/etc` that sandboxes see in addition to the built-in ones.
    pub etc: Vec<String>,
    /// Protections to turn off. Only for tests that show what a protection is for.
    pub disabled_protections: Vec<Protection>,
}

impl LocalSettings {
    pub(super) fn read(settings: &mut Settings) -> Result<Self, ConfigError> {
        const KEY: &str = "local.disabled_protections";
        let mut disabled_protections = Vec::new();
        for name in settings.texts(KEY)? {
            let Some(found) = Protection::ALL.into_iter().find(|protection| protection.name() == name) else {
                let origin = settings.origin_of(KEY).unwrap_or_default();
                let message = format!("is wrong: there is no protection named {name:?}");
                return Err(ConfigError::new(origin, KEY, message));
            };
            disabled_protections.push(found);
        }
        Ok(Self {
            disk: settings.parsed("local.disk", "auto, btrfs, loop or tmpfs")?.unwrap_or_default(),
            disk_total_mb: settings.optional_whole("local.disk_total_mb", MIN_TOTAL_MB..=MAX_MIB)?,
            etc: etc(settings)?,
            disabled_protections,
        })
    }
}

/// Names, each with an optional `*` at its end. A bare `*` would show secrets that nobody thought of.
fn etc(settings: &mut Settings) -> Result<Vec<String>, ConfigError> {
    const KEY: &str = "local.etc";
    let names = settings.texts(KEY)?;
    let is_name = |name: &String| {
        let stem = name.strip_suffix('*').unwrap_or(name);
        !stem.is_empty() && stem != "." && stem != ".." && !stem.contains(['/', '*', '\0'])
    };
    match names.iter().find(|name| !is_name(name)) {
        None => Ok(names),
        Some(wrong) => {
            let origin = settings.origin_of(KEY).unwrap_or_default();
            let message = format!("is wrong: {wrong:?} is not a name in /etc, such as \"maven\" or \"php*\"");
            Err(ConfigError::new(origin, KEY, message))
        }
    }
}
