//! `[local]`: the embedded runtime.

use super::ConfigError;
use super::settings::Settings;
use crate::runtime::local::Protections;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LocalSettings {
    /// By name. For tests that show that a protection is one; never for use.
    pub disabled_protections: Vec<String>,
}

impl LocalSettings {
    pub(super) fn read(settings: &mut Settings) -> Result<Self, ConfigError> {
        let disabled_protections = settings.texts("local.disabled_protections")?;
        for name in &disabled_protections {
            if let Err(why) = Protections::ALL.disable(name) {
                let origin = settings.origin_of("local.disabled_protections").unwrap_or_default();
                return Err(ConfigError::new(origin, "local.disabled_protections", format!("is wrong: {why}")));
            }
        }
        Ok(Self { disabled_protections })
    }
}
