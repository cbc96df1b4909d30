//! `[network]`: what sessions reach by default, how much, and presets of the operator.

use std::collections::BTreeMap;

use network_policy::{Rule, Side};
use shared_protocol::api::{NetworkRule, NetworkRules, NetworkSpec};

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
            toml::Value::Array(_) => value.try_into().map(|allow| NetworkRules { allow, ..NetworkRules::default() }),
            value => value.try_into(),
        };
        let rules = rules.map_err(|error| complain(one_line(&format!("has a wrong preset {name:?}: {error}"))))?;
        check(&rules).map_err(|why| complain(one_line(&format!("has a wrong preset {name:?}: {why}"))))?;
        presets.insert(name, rules);
    }
    Ok(presets)
}

/// Reads every rule. A preset of the operator may reach private addresses, and names no other preset.
fn check(rules: &NetworkRules) -> Result<(), String> {
    if !rules.presets.is_empty() {
        return Err("a preset cannot name other presets".into());
    }
    for (list, side) in [(&rules.allow, Side::Allow), (&rules.deny, Side::Deny)] {
        for rule in list {
            let read = match rule {
                NetworkRule::Text(text) => Rule::parse(text, side),
                NetworkRule::Parts(parts) => Rule::from_parts(&parts.host, &parts.ports, parts.private, side),
            };
            read.map_err(|error| error.to_string())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::{Config, ServeFlags};
    use super::*;

    fn read(text: &str) -> Result<NetworkConfig, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cove.toml");
        std::fs::write(&path, format!("data_dir = '/nonexistent'\n{text}")).unwrap();
        let flags = ServeFlags { config: Some(path), ..ServeFlags::default() };
        Config::load(&flags).map(|config| config.network).map_err(|error| error.to_string())
    }

    #[test]
    fn presets_of_the_operator_are_lists_or_tables_of_rules() {
        let text = "[network]\ndefault = 'corp'\nmax_connections = 7\n[network.presets]\n\
                    corp = ['example.com', { host = 'mirror.corp', ports = [443], private = true }]\n\
                    open = { allow = ['*'], deny = ['*.example.com'] }\n";
        let config = read(text).unwrap();
        assert_eq!(config.default, NetworkSpec::preset("corp"));
        assert_eq!((config.max_connections, config.presets.len()), (7, 2));
        assert_eq!((config.presets["corp"].allow.len(), config.presets["open"].deny.len()), (2, 1));
    }

    #[test]
    fn a_wrong_preset_or_default_is_one_line_that_names_it() {
        for (text, words) in [
            ("[network]\ndefault = 'nope'", ["network.default", "packages"]),
            ("[network.presets]\nx = ['https://example.com']", ["\"x\"", "write example.com"]),
            ("[network.presets]\nfull = []", ["\"full\"", "already"]),
            ("[network.presets]\nx = { alow = [] }", ["\"x\"", "alow"]),
            ("[network.presets]\nx = { presets = ['full'] }", ["\"x\"", "other presets"]),
            ("[network]\nmax_connections = 0", ["network.max_connections", "1"]),
        ] {
            let error = read(text).unwrap_err();
            assert!(words.iter().all(|word| error.contains(word)) && error.lines().count() == 1, "{text}: {error}");
        }
    }
}
