//! `[local]`: the embedded runtime.

use super::ConfigError;
use super::settings::Settings;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LocalSettings {
    /// By name, as `cove doctor` lists them. For tests that show that a protection is one; never for use.
    pub disabled_protections: Vec<String>,
}

impl LocalSettings {
    pub(super) fn read(settings: &mut Settings) -> Result<Self, ConfigError> {
        Ok(Self { disabled_protections: settings.texts("local.disabled_protections")? })
    }
}
