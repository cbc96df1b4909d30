//! `[network]`: what sessions reach by default, how much, and presets of the operator.

use std::collections::BTreeMap;
use std::path::PathBuf;

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
    /// Connections of all sessions together at the same time; 0 means what the daemon's limit of open files leaves.
    pub max_total_connections: u64,
    /// Certificate authorities that the daemon trusts in addition to the host's, where it injects headers.
    pub extra_ca_file: Option<PathBuf>,
    /// Bytes per second of one session; 0 means no limit.
    pub max_bytes_per_second: u64,
    /// Bytes of one session in total; 0 means no limit.
    pub max_total_bytes: u64,
    /// The most that a key may ask for that is no admin and has no maximum of its own.
    pub max: Option<NetworkSpec>,
    /// What agents may open by themselves, by the tool `network_request`.
    pub requests: Option<NetworkSpec>,
    /// Rules that are added to what every session asks for: `network.allow` and `network.deny`.
    pub extra: NetworkRules,
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
            max_total_connections: 0,
            extra_ca_file: None,
            max_bytes_per_second: 0,
            max_total_bytes: 0,
            max: None,
            requests: None,
            extra: NetworkRules::default(),
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
            max_total_connections: settings.whole("network.max_total_connections", 0, any.clone())?,
            extra_ca_file: settings.text("network.extra_ca_file")?.map(PathBuf::from),
            max_bytes_per_second: settings.whole("network.max_bytes_per_second", 0, any.clone())?,
            max_total_bytes: settings.whole("network.max_total_bytes", 0, any)?,
            max: network(settings, "network.max")?,
            requests: network(settings, "network.requests")?,
            extra: extra(settings)?,
            presets: presets(settings)?,
        };
        config.check_names(settings, "network.default", Some(&config.default))?;
        config.check_names(settings, "network.max", config.max.as_ref())?;
        config.check_names(settings, "network.requests", config.requests.as_ref())?;
        Ok(config)
    }

    /// Refuses a network that names a preset that does not exist.
    fn check_names(&self, settings: &Settings, key: &str, network: Option<&NetworkSpec>) -> Result<(), ConfigError> {
        let names = match network {
            Some(NetworkSpec::Preset(name)) => std::slice::from_ref(name),
            Some(NetworkSpec::Rules(rules)) => &rules.presets,
            None => &[],
        };
        let built_in = [NetworkSpec::NONE, NetworkSpec::PACKAGES, NetworkSpec::LEARN, NetworkSpec::FULL];
        let is_known = |name: &str| built_in.contains(&name) || self.presets.contains_key(name);
        let Some(name) = names.iter().find(|name| !is_known(name)) else { return Ok(()) };
        let known = built_in.into_iter().chain(self.presets.keys().map(String::as_str)).collect::<Vec<_>>();
        let message = format!("must be one of {}, not {name:?}", known.join(", "));
        Err(ConfigError::new(settings.origin_of(key).unwrap_or_default(), key, message))
    }
}

/// The setting `key`: the name of a preset, a list of rules, or a table with `presets`, `allow` and `deny`.
fn network(settings: &mut Settings, key: &str) -> Result<Option<NetworkSpec>, ConfigError> {
    let Some(value) = settings.value(key)? else { return Ok(None) };
    let origin = settings.origin_of(key).unwrap_or_default();
    let complain = |message: String| ConfigError::new(origin.clone(), key, one_line(&message));
    if let toml::Value::String(name) = value {
        return Ok(Some(NetworkSpec::Preset(name)));
    }
    let rules = rules(value).map_err(|error| complain(format!("is wrong: {error}")))?;
    check(&rules).map_err(|why| complain(format!("is wrong: {why}")))?;
    Ok(Some(NetworkSpec::Rules(rules)))
}

/// `[network] allow` and `deny`: lists of rules, or texts with commas between the rules.
fn extra(settings: &mut Settings) -> Result<NetworkRules, ConfigError> {
    let mut list = |key: &str| {
        let Some(value) = settings.value(key)? else { return Ok(Vec::new()) };
        let origin = settings.origin_of(key).unwrap_or_default();
        let complain = |why: String| ConfigError::new(origin.clone(), key, one_line(&format!("is wrong: {why}")));
        let given: Vec<NetworkRule> = match value {
            toml::Value::String(text) => {
                let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
                parts.map(|part| NetworkRule::Text(part.to_owned())).collect()
            }
            value => value.try_into().map_err(|error: toml::de::Error| complain(error.to_string()))?,
        };
        let side = if key == "network.deny" { Side::Deny } else { Side::Allow };
        given.iter().try_for_each(|rule| read(rule, side).map(drop)).map_err(complain)?;
        Ok(given)
    };
    Ok(NetworkRules { presets: Vec::new(), allow: list("network.allow")?, deny: list("network.deny")? })
}

/// Rules as a list of what is allowed, or as a table.
fn rules(value: toml::Value) -> Result<NetworkRules, toml::de::Error> {
    match value {
        toml::Value::Array(_) => value.try_into().map(|allow| NetworkRules { allow, ..NetworkRules::default() }),
        value => value.try_into(),
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
        let rules =
            rules(value).map_err(|error| complain(one_line(&format!("has a wrong preset {name:?}: {error}"))))?;
        if !rules.presets.is_empty() {
            return Err(complain(format!("has a wrong preset {name:?}: a preset cannot name other presets")));
        }
        check(&rules).map_err(|why| complain(one_line(&format!("has a wrong preset {name:?}: {why}"))))?;
        presets.insert(name, rules);
    }
    Ok(presets)
}

/// Reads every rule. Those of the operator may reach private addresses.
fn check(rules: &NetworkRules) -> Result<(), String> {
    let mut allow = rules.allow.iter().map(|rule| read(rule, Side::Allow));
    let mut deny = rules.deny.iter().map(|rule| read(rule, Side::Deny));
    allow.try_for_each(|rule| rule.map(drop))?;
    deny.try_for_each(|rule| rule.map(drop))
}

fn read(rule: &NetworkRule, side: Side) -> Result<Rule, String> {
    let read = match rule {
        NetworkRule::Text(text) => Rule::parse(text, side),
        NetworkRule::Parts(parts) => Rule::from_parts(&parts.host, &parts.ports, parts.private, side),
    };
    read.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::super::{Config, ServeFlags};
    use super::*;

    fn config(text: &str) -> Result<NetworkConfig, String> {
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
        let config = config(text).unwrap();
        assert_eq!(config.default, NetworkSpec::preset("corp"));
        assert_eq!((config.max_connections, config.presets.len()), (7, 2));
        assert_eq!((config.presets["corp"].allow.len(), config.presets["open"].deny.len()), (2, 1));
    }

    #[test]
    fn the_maximum_is_a_preset_or_rules_and_extra_rules_are_lists() {
        let of = |text: &str| config(&format!("[network]\n{text}\n[network.presets]\ncorp = []")).unwrap();
        assert_eq!(of("").max, None);
        assert_eq!(of("max = 'corp'").max, Some(NetworkSpec::preset("corp")));
        for text in
            ["max = ['a.example.com', '10.0.0.0/8:80']", "max = { allow = ['a.example.com'], deny = ['x.com'] }"]
        {
            let Some(NetworkSpec::Rules(rules)) = of(text).max else { panic!("{text}") };
            assert_eq!(rules.allow.len() + rules.deny.len(), 2, "{text}");
        }
        let extra = of("max = { presets = ['corp'] }\nallow = ['a.example.com']\ndeny = ['x.com', 'y.com:22']").extra;
        assert_eq!((extra.allow.len(), extra.deny.len()), (1, 2));
        assert_eq!(of("deny = 'x.com, y.com:22'").extra.deny.len(), 2, "as in a variable");
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
            ("[network]\nmax = 'nope'", ["network.max", "packages"]),
            ("[network]\nmax = { presets = ['nope'] }", ["network.max", "\"nope\""]),
            ("[network]\nmax = ['https://example.com']", ["network.max", "write example.com"]),
            ("[network]\nmax = 5", ["network.max", "invalid type"]),
            ("[network]\nrequests = 'nope'", ["network.requests", "packages"]),
            ("[network]\nallow = ['https://example.com']", ["network.allow", "write example.com"]),
            ("[network]\ndeny = [{ host = 'a.example.com', private = true }]", ["network.deny", "private"]),
        ] {
            let error = config(text).unwrap_err();
            assert!(words.iter().all(|word| error.contains(word)) && error.lines().count() == 1, "{text}: {error}");
        }
    }
}
