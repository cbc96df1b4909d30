//! `[network]`: what sessions reach by default, how much, and presets of the operator.

use std::collections::BTreeMap;

use shared_protocol::api::{NetworkRules, NetworkSpec};

use super::settings::Settings;
use super::{ConfigError, one_line};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkConfig {
    /// What a session reaches that asks for nothing: the name of a preset.
    pub default: NetworkSpec,
    /// Connections of one session at the same time.
    pub max_connections: u64,
    /// Bytes per second of one session; 0 means no limit.
    pub max_bytes_per_second: u64,
    /// Bytes of one session in total; 0 means no limit.
    pub max_total_bytes: u64,
    /// The operator's own presets.
    pub presets: BTreeMap<String, NetworkRules>,
}

const DEFAULT_CONNECTIONS: u64 = 1024;
const MAX_CONNECTIONS: u64 = 65_536;

impl Default for NetworkConfig {
    fn default() -> Self {
        Self {
            default: NetworkSpec::default(),
            max_connections: DEFAULT_CONNECTIONS,
            max_bytes_per_second: 0,
            max_total_bytes: 0,
            presets: BTreeMap::new(),
        }
    }
}

impl NetworkConfig {
    pub(super) fn read(settings: &mut Settings) -> Result<Self, ConfigError> {
        let ours = Self::default();
        let any = 0..=u64::MAX >> 1;
        let config = Self {
            default: settings.text("network.default")?.map_or(ours.default, NetworkSpec::Preset),
            max_connections: settings.whole("network.max_connections", ours.max_connections, 1..=MAX_CONNECTIONS)?,
            max_bytes_per_second: settings.whole("network.max_bytes_per_second", 0, any.clone())?,
            max_total_bytes: settings.whole("network.max_total_bytes", 0, any)?,
            presets: presets(settings)?,
        };
        let built_in = [NetworkSpec::NONE, NetworkSpec::PACKAGES, NetworkSpec::LEARN, NetworkSpec::FULL];
        if let NetworkSpec::Preset(name) = &config.default
            && !built_in.contains(&name.as_str())
            && !config.presets.contains_key(name)
        {
            let known = built_in.into_iter().chain(config.presets.keys().map(String::as_str)).collect::<Vec<_>>();
            let message = format!("must be one of {}, not {name:?}", known.join(", "));
            let key = "network.default";
            return Err(ConfigError::new(settings.origin_of(key).unwrap_or_default(), key, message));
        }
        Ok(config)
    }
}

/// `[network] presets`: a table of presets, each a list of rules, or a table with `allow` and `deny`.
fn presets(settings: &mut Settings) -> Result<BTreeMap<String, NetworkRules>, ConfigError> {
    let key = "network.presets";
    let Some(table) = settings.table(key)? else { return Ok(BTreeMap::new()) };
    let origin = settings.origin_of(key).unwrap_or_default();
    let complain = |message: String| ConfigError::new(origin.clone(), key, message);
    let mut presets = BTreeMap::new();
    for (name, value) in table {
        if [NetworkSpec::NONE, NetworkSpec::LEARN, NetworkSpec::FULL].contains(&name.as_str()) {
            return Err(complain(format!("cannot have a preset {name:?}: that name has its meaning already")));
        }
        let rules = match value {
            toml::Value::Array(_) => value.try_into().map(|allow| NetworkRules { allow, deny: Vec::new() }),
            value => value.try_into(),
        };
        let rules = rules.map_err(|error| complain(one_line(&format!("has a wrong preset {name:?}: {error}"))))?;
        presets.insert(name, rules);
    }
    Ok(presets)
}
