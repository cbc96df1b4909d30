//! The given settings, each with its origin, so that an error can name the place to correct.
//!
//! Flags win over variables, and variables over the file. If a setting is left that nothing has read, no such setting
//! exists, which is an error that suggests the nearest of those that something has asked for.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use super::origin::Origin;
use super::{ConfigError, suggestion};

/// Variables `COVE_SECTION_…` with these sections are settings. Others that begin with `COVE_` may belong to other programs.
const SECTIONS: [&str; 12] = [
    "server",
    "sessions",
    "snapshots",
    "exec",
    "log",
    "local",
    "docker",
    "pool",
    "workspaces",
    "audit",
    "network",
    "preview",
];

/// Short variables for the most common settings.
const SHORT_VARIABLES: [(&str, &str); 6] = [
    ("COVE_LISTEN", "server.listen"),
    ("COVE_API_KEY", "server.api_key"),
    ("COVE_DATA_DIR", "data_dir"),
    ("COVE_RUNTIME", "runtime"),
    ("COVE_LOG", "log.filter"),
    ("COVE_LOG_FORMAT", "log.format"),
];

#[derive(Debug, Default)]
pub struct Settings {
    given: BTreeMap<String, Given>,
    /// Every key that was asked for, given or not.
    known: BTreeSet<String>,
    /// The sections whose keys the user chooses.
    open_sections: BTreeSet<String>,
}

#[derive(Debug)]
struct Given {
    value: Value,
    origin: Origin,
    read: bool,
}

#[derive(Debug, Clone)]
enum Value {
    /// The text of a variable or a flag, which can become a value of any type.
    Text(String),
    Toml(toml::Value),
}

impl Settings {
    /// Adds the settings of a file. `lines` has the line of each key.
    pub fn add_file(&mut self, path: &str, table: toml::Table, lines: &BTreeMap<String, usize>) {
        let origin = |key: &str| Origin::File { path: path.to_owned(), line: lines.get(key).copied().unwrap_or(1) };
        for (key, value) in table {
            match value {
                toml::Value::Table(section) => {
                    for (name, value) in section {
                        let key = format!("{key}.{name}");
                        let origin = origin(&key);
                        self.add(key, Value::Toml(value), origin);
                    }
                }
                value => {
                    let origin = origin(&key);
                    self.add(key, Value::Toml(value), origin);
                }
            }
        }
    }

    /// Adds variables. An empty one counts as not set.
    pub fn add_variables(&mut self, variables: impl Iterator<Item = (String, String)>) {
        for (name, value) in variables.filter(|(_, value)| !value.is_empty()) {
            let short =
                SHORT_VARIABLES.iter().find(|(variable, _)| *variable == name).map(|(_, key)| (*key).to_owned());
            let long = || {
                let rest = name.strip_prefix("COVE_")?.to_ascii_lowercase();
                let section = SECTIONS.iter().find(|section| rest.starts_with(&format!("{section}_")))?;
                Some(format!("{section}.{}", &rest[section.len() + 1..]))
            };
            if let Some(key) = short.or_else(long) {
                self.add(key, Value::Text(value), Origin::Variable(name));
            }
        }
    }

    pub fn add_flag(&mut self, key: &str, flag: &str, value: Option<String>) {
        if let Some(value) = value {
            self.add(key.to_owned(), Value::Text(value), Origin::Flag(flag.to_owned()));
        }
    }

    fn add(&mut self, key: String, value: Value, origin: Origin) {
        self.given.insert(key, Given { value, origin, read: false });
    }

    pub fn origin_of(&self, key: &str) -> Option<Origin> {
        self.given.get(key).map(|given| given.origin.clone())
    }

    fn take(&mut self, key: &str) -> Option<(Value, Origin)> {
        self.known.insert(key.to_owned());
        let given = self.given.get_mut(key)?;
        given.read = true;
        Some((given.value.clone(), given.origin.clone()))
    }

    pub fn text(&mut self, key: &str) -> Result<Option<String>, ConfigError> {
        match self.take(key) {
            None => Ok(None),
            Some((Value::Text(text) | Value::Toml(toml::Value::String(text)), _)) => Ok(Some(text)),
            Some((_, origin)) => Err(ConfigError::new(origin, key, "must be a string".into())),
        }
    }

    /// Parses a setting by its type. `what` says in an error what is allowed.
    pub fn parsed<T: std::str::FromStr>(&mut self, key: &str, what: &str) -> Result<Option<T>, ConfigError> {
        let Some(text) = self.text(key)? else { return Ok(None) };
        let origin = self.origin_of(key).unwrap_or_default();
        text.parse().map(Some).map_err(|_| ConfigError::new(origin, key, format!("must be {what}, not {text:?}")))
    }

    pub fn texts(&mut self, key: &str) -> Result<Vec<String>, ConfigError> {
        match self.take(key) {
            None => Ok(Vec::new()),
            Some((Value::Text(text), _)) => {
                Ok(text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect())
            }
            Some((Value::Toml(toml::Value::Array(items)), origin)) => items
                .into_iter()
                .map(|item| match item {
                    toml::Value::String(text) => Ok(text),
                    _ => Err(ConfigError::new(origin.clone(), key, "must be a list of strings".into())),
                })
                .collect(),
            Some((_, origin)) => Err(ConfigError::new(origin, key, "must be a list of strings".into())),
        }
    }

    pub fn optional_whole(&mut self, key: &str, range: RangeInclusive<u64>) -> Result<Option<u64>, ConfigError> {
        let Some((value, origin)) = self.take(key) else { return Ok(None) };
        let number = match &value {
            Value::Text(text) => text.trim().parse().ok(),
            Value::Toml(toml::Value::Integer(number)) => u64::try_from(*number).ok(),
            Value::Toml(_) => None,
        };
        match number.filter(|number| range.contains(number)) {
            Some(number) => Ok(Some(number)),
            None => {
                let what =
                    format!("must be a whole number from {} to {}, not {}", range.start(), range.end(), value.shown());
                Err(ConfigError::new(origin, key, what))
            }
        }
    }

    pub fn whole(&mut self, key: &str, default: u64, range: RangeInclusive<u64>) -> Result<u64, ConfigError> {
        Ok(self.optional_whole(key, range)?.unwrap_or(default))
    }

    pub fn optional_number(&mut self, key: &str, range: RangeInclusive<f64>) -> Result<Option<f64>, ConfigError> {
        let Some((value, origin)) = self.take(key) else { return Ok(None) };
        let number = match &value {
            Value::Text(text) => text.trim().parse().ok(),
            Value::Toml(toml::Value::Float(number)) => Some(*number),
            Value::Toml(toml::Value::Integer(number)) => i32::try_from(*number).ok().map(f64::from),
            Value::Toml(_) => None,
        };
        match number.filter(|number| range.contains(number)) {
            Some(number) => Ok(Some(number)),
            None => {
                let what = format!("must be a number from {} to {}, not {}", range.start(), range.end(), value.shown());
                Err(ConfigError::new(origin, key, what))
            }
        }
    }

    /// Whether any setting of a section was given.
    pub fn has_section(&self, section: &str) -> bool {
        let prefix = format!("{section}.");
        self.given.keys().any(|key| key.starts_with(&prefix))
    }

    pub fn flag(&mut self, key: &str) -> Result<Option<bool>, ConfigError> {
        match self.take(key) {
            None => Ok(None),
            Some((Value::Toml(toml::Value::Boolean(flag)), _)) => Ok(Some(flag)),
            Some((Value::Text(text), _)) if matches!(text.as_str(), "true" | "false") => Ok(Some(text == "true")),
            Some((value, origin)) => {
                Err(ConfigError::new(origin, key, format!("must be true or false, not {}", value.shown())))
            }
        }
    }

    /// A table of strings. In a variable it is `NAME=VALUE,…`.
    pub fn pairs(&mut self, key: &str) -> Result<BTreeMap<String, String>, ConfigError> {
        let Some((value, origin)) = self.take(key) else { return Ok(BTreeMap::new()) };
        let pairs: Option<BTreeMap<String, String>> = match &value {
            Value::Text(text) => {
                let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
                parts
                    .map(|part| part.split_once('=').map(|(k, v)| (k.trim().to_owned(), v.trim().to_owned())))
                    .collect()
            }
            Value::Toml(toml::Value::Table(table)) => {
                table.iter().map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned()))).collect()
            }
            Value::Toml(_) => None,
        };
        pairs.ok_or_else(|| ConfigError::new(origin, key, "must be a table of strings".into()))
    }

    /// A value of any type. A variable or a flag gives a string.
    pub fn value(&mut self, key: &str) -> Result<Option<toml::Value>, ConfigError> {
        Ok(self.take(key).map(|(value, _)| match value {
            Value::Text(text) => toml::Value::String(text),
            Value::Toml(value) => value,
        }))
    }

    /// A table of any values. A variable cannot have one.
    pub fn table(&mut self, key: &str) -> Result<Option<toml::Table>, ConfigError> {
        match self.take(key) {
            None => Ok(None),
            Some((Value::Toml(toml::Value::Table(table)), _)) => Ok(Some(table)),
            Some((_, origin)) => Err(ConfigError::new(origin, key, "must be a table in the configuration file".into())),
        }
    }

    /// The keys that were given in a section whose keys the user chooses, each with its name there.
    fn open_section(&mut self, section: &str) -> Vec<(String, String)> {
        self.open_sections.insert(section.to_owned());
        let prefix = format!("{section}.");
        let named = |key: &String| Some((key.clone(), key.strip_prefix(&prefix)?.to_owned()));
        self.given.keys().filter_map(named).collect()
    }

    /// All settings of a section whose keys the user chooses, except for some that are the section's own.
    pub fn section(&mut self, section: &str, own: &[&str]) -> Result<BTreeMap<String, String>, ConfigError> {
        let mut found = BTreeMap::new();
        for (key, name) in self.open_section(section).into_iter().filter(|(_, name)| !own.contains(&name.as_str())) {
            if let Some(text) = self.text(&key)? {
                found.insert(name, text);
            }
        }
        Ok(found)
    }

    /// The same as `section`, with whole numbers.
    pub fn numbers(&mut self, section: &str, range: RangeInclusive<u64>) -> Result<BTreeMap<String, u64>, ConfigError> {
        let mut found = BTreeMap::new();
        for (key, name) in self.open_section(section) {
            if let Some(number) = self.optional_whole(&key, range.clone())? {
                found.insert(name, number);
            }
        }
        Ok(found)
    }

    /// An error for the first setting that nothing has read.
    pub fn finish(self) -> Result<(), ConfigError> {
        let Some((key, given)) = self.given.iter().find(|(_, given)| !given.read) else { return Ok(()) };
        let known: Vec<&str> = self.known.iter().map(String::as_str).collect();
        let open: Vec<&str> = self.open_sections.iter().map(String::as_str).collect();
        let hint = match suggestion::meant(key, &known, &open) {
            Some(meant) => format!("; did you mean {}?", given.origin.name_of(&meant)),
            None => String::new(),
        };
        Err(ConfigError::new(given.origin.clone(), key, format!("is not a setting of cove{hint}")))
    }
}

impl Value {
    fn shown(&self) -> String {
        match self {
            Self::Text(text) => format!("{text:?}"),
            Self::Toml(toml::Value::Integer(number)) => number.to_string(),
            Self::Toml(toml::Value::Float(number)) => number.to_string(),
            Self::Toml(value) => format!("a {}", value.type_str()),
        }
    }
}
