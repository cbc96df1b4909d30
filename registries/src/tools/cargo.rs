//! cargo: the registries of its configuration, with replaced sources, and the built-in one.
//!
//! The built-in registry is found by asking cargo to search with a proxy that does not exist: its message names the URL that it
//! would have asked. Nothing gets to the network, and cargo's own cache is not touched.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde_json::Value as Json;
use toml::{Table, Value};

use crate::detected::ProblemKind;
use crate::inquiry::Inquiry;
use crate::source_url::SourceUrl;
use crate::toolbox::{Invocation, RunError};
use crate::variable::Part;

/// cargo's own name for its built-in registry.
const DEFAULT: &str = "crates-io";
/// A proxy that refuses connections: the port is reserved, and nothing listens on it.
const NO_PROXY_AT_ALL: &str = "http://127.0.0.1:1";
/// What the URL of a sparse index begins with.
const SPARSE: &str = "sparse+";
/// The file of a sparse index that names the hosts.
const INDEX_CONFIG: &str = "config.json";
/// A small crate that nearly every mirror has, and its file in an index.
const PROBE_CRATE: &str = "itoa";
const PROBE_INDEX_FILE: &str = "it/oa/itoa";

pub fn ask(inquiry: &mut Inquiry<'_>) {
    let config = Config::read(inquiry);
    let mut indexes = Vec::new();
    match config.end_of(DEFAULT) {
        Ok(End::Registry(url)) => {
            indexes.push((url, "cargo's source replacement".to_owned()));
            let message = "no variable can replace a source of cargo: in sandboxes, cargo needs the [source] tables in a file \
                           (.cargo/config.toml of the project or of the home directory)";
            inquiry.problem(ProblemKind::Note, message.to_owned());
        }
        Ok(End::Local) => {}
        Ok(End::Unconfigured) => indexes.extend(built_in(inquiry)),
        Err(message) => inquiry.problem(ProblemKind::Configuration, message),
    }
    for (name, index) in &config.registries {
        offer_registry(inquiry, name, index);
        let replaced = config.sources.iter().find(|(_, source)| source.registry.as_ref() == Some(index));
        match replaced.map(|(source, _)| config.end_of(source)) {
            Some(Ok(End::Registry(url))) => indexes.push((url, format!("cargo's registry {name}"))),
            Some(Ok(End::Local)) => {}
            Some(Err(message)) => inquiry.problem(ProblemKind::Configuration, message),
            None | Some(Ok(End::Unconfigured)) => indexes.push((index.clone(), format!("cargo's registry {name}"))),
        }
    }
    for (url, because) in indexes {
        let (is_sparse, url) = match url.strip_prefix(SPARSE) {
            Some(url) => (true, url),
            None => (false, url.strip_prefix("registry+").unwrap_or(&url)),
        };
        let Some(index) = inquiry.add(url, &because) else { continue };
        match is_sparse {
            true => follow_index(inquiry, &index),
            false => {
                let message = format!("{index} is a git repository, so the hosts of its files are not known");
                inquiry.problem(ProblemKind::Note, message);
            }
        }
    }
}

/// Offers a registry that has a name. Which source replaces another one cannot be said by a variable.
fn offer_registry(inquiry: &mut Inquiry<'_>, name: &str, index: &str) {
    let url = index.strip_prefix(SPARSE).unwrap_or(index);
    let is_plain = name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'));
    if let (Ok(url), true) = (SourceUrl::parse(url), is_plain) {
        let prefix = Part::Text(if index.starts_with(SPARSE) { SPARSE } else { "" }.to_owned());
        let name = name.to_ascii_uppercase().replace('-', "_");
        inquiry.offer(&format!("CARGO_REGISTRIES_{name}_INDEX"), vec![prefix, Part::Url(url)]);
    }
}

/// What cargo's files and variables say. The first value of a name wins.
#[derive(Default)]
struct Config {
    sources: BTreeMap<String, SourceTable>,
    /// The index of each registry.
    registries: BTreeMap<String, String>,
}

#[derive(Default, Clone)]
struct SourceTable {
    registry: Option<String>,
    replace_with: Option<String>,
    is_local: bool,
}

/// Where a chain of replaced sources ends.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Registry(String),
    /// A directory, or a git repository that is a dependency's own.
    Local,
    /// The configuration says nothing about it.
    Unconfigured,
}

impl Config {
    fn read(inquiry: &mut Inquiry<'_>) -> Self {
        let mut config = Self::default();
        for (name, value) in inquiry.variables() {
            let registry = name.strip_prefix("CARGO_REGISTRIES_").and_then(|n| n.strip_suffix("_INDEX"));
            if let Some(name) = registry.filter(|_| !value.is_empty()) {
                config.registries.insert(name.to_lowercase().replace('_', "-"), value);
            }
        }
        let home = inquiry.variable("CARGO_HOME").map_or_else(|| inquiry.home(".cargo"), PathBuf::from);
        // cargo looks from the working directory, which is `/`, upwards, then in its home. It prefers `config` if both exist.
        let directories = [PathBuf::from("/.cargo"), home];
        for path in directories.iter().flat_map(|directory| ["config", "config.toml"].map(|name| directory.join(name)))
        {
            let Some(text) = inquiry.read(&path) else { continue };
            match text.parse::<Table>() {
                Ok(table) => config.add(&table),
                Err(_) => inquiry.problem(ProblemKind::Configuration, format!("{} is not TOML", path.display())),
            }
        }
        config
    }

    fn add(&mut self, config: &Table) {
        let tables = |name: &str| config.get(name).and_then(Value::as_table).into_iter().flatten();
        for (name, source) in tables("source") {
            let text = |key: &str| source.get(key).and_then(Value::as_str).map(str::to_owned);
            let is_local = ["directory", "local-registry", "git"].iter().any(|key| source.get(*key).is_some());
            let table = SourceTable { registry: text("registry"), replace_with: text("replace-with"), is_local };
            self.sources.entry(name.clone()).or_insert(table);
        }
        for (name, registry) in tables("registries") {
            if let Some(index) = registry.get("index").and_then(Value::as_str) {
                self.registries.entry(name.clone()).or_insert_with(|| index.to_owned());
            }
        }
    }

    /// Follows `replace-with` from a source to its end.
    fn end_of(&self, start: &str) -> Result<End, String> {
        let mut seen = BTreeSet::new();
        let mut name = start;
        loop {
            if !seen.insert(name) {
                return Err(format!("the replacement of cargo's source {start} is a loop"));
            }
            let registry = self.registries.get(name).cloned().map(End::Registry);
            let Some(source) = self.sources.get(name) else {
                return match registry {
                    Some(end) => Ok(end),
                    None if name == DEFAULT => Ok(End::Unconfigured),
                    None => Err(format!("cargo's source {start} is replaced by one that does not exist")),
                };
            };
            match &source.replace_with {
                Some(next) => name = next,
                None if source.is_local => return Ok(End::Local),
                None => {
                    return Ok(source.registry.clone().map(End::Registry).or(registry).unwrap_or(End::Unconfigured));
                }
            }
        }
    }
}

/// Asks cargo for its built-in registry.
fn built_in(inquiry: &mut Inquiry<'_>) -> Option<(String, String)> {
    let search = Invocation::new("cargo", &["search", "--registry", DEFAULT, PROBE_CRATE])
        .scratch_variable("CARGO_HOME")
        .variable("CARGO_HTTP_PROXY", NO_PROXY_AT_ALL)
        .variable("NO_PROXY", "")
        .variable("no_proxy", "")
        .variable("CARGO_NET_RETRY", "0")
        .variable("CARGO_NET_OFFLINE", "false");
    let message = match inquiry.run(search) {
        Ok((_, _, message)) => message,
        Err(RunError::NotInstalled) => {
            inquiry.not_installed();
            return None;
        }
        Err(error) => {
            inquiry.problem(ProblemKind::ToolFailed, format!("`cargo search` {error}"));
            return None;
        }
    };
    let index =
        message.split('`').find_map(|quoted| quoted.strip_suffix(INDEX_CONFIG).filter(|url| url.contains("://")));
    match index {
        Some(index) => {
            let version =
                inquiry.run(Invocation::new("cargo", &["--version"])).map(|(_, text, _)| text).unwrap_or_default();
            let version = version.split_whitespace().nth(1).unwrap_or_default().to_owned();
            Some((format!("{SPARSE}{index}"), format!("built into cargo {version}").trim_end().to_owned()))
        }
        None => {
            let message = "cargo does not tell its built-in registry".to_owned();
            inquiry.problem(ProblemKind::ToolFailed, message);
            None
        }
    }
}

/// Adds the hosts that a sparse index names for downloads and for its API, and those that a download is redirected to.
fn follow_index(inquiry: &mut Inquiry<'_>, index: &SourceUrl) {
    let Ok(url) = index.below(INDEX_CONFIG) else { return };
    let Some((_, body)) = inquiry.page(&url, index) else { return };
    let Ok(config) = serde_json::from_slice::<Json>(&body) else {
        return inquiry.problem(ProblemKind::Registry, format!("the {INDEX_CONFIG} of {url} is not JSON"));
    };
    for name in ["dl", "api"] {
        match config.get(name).and_then(Json::as_str).map(SourceUrl::parse) {
            Some(Ok(url)) => inquiry.add_named(&url, &format!("{name} of the index's {INDEX_CONFIG}"), index),
            Some(Err(error)) => inquiry
                .problem(ProblemKind::Registry, format!("{name} in the {INDEX_CONFIG} of {index} is ignored: {error}")),
            None => {}
        }
    }
    if let Some(file) = config.get("dl").and_then(Json::as_str).and_then(|dl| probe_file(inquiry, index, dl)) {
        inquiry.follow_file(&file, index);
    }
}

/// The URL of a small crate's newest file.
fn probe_file(inquiry: &mut Inquiry<'_>, index: &SourceUrl, dl: &str) -> Option<SourceUrl> {
    let (_, body) = inquiry.page(&index.below(PROBE_INDEX_FILE).ok()?, index)?;
    let text = String::from_utf8_lossy(&body);
    let release: Json = serde_json::from_str(text.lines().last()?).ok()?;
    let (version, checksum) = (release.get("vers")?.as_str()?, release.get("cksum")?.as_str()?);
    let mut url = dl.to_owned();
    if !dl.contains('{') {
        url.push_str("/{crate}/{version}/download");
    }
    let values = [("{crate}", PROBE_CRATE), ("{version}", version), ("{sha256-checksum}", checksum)];
    let prefixes = [("{prefix}", "it/oa"), ("{lowerprefix}", "it/oa")];
    let filled = values.into_iter().chain(prefixes).fold(url, |url, (marker, value)| url.replace(marker, value));
    SourceUrl::parse(&filled).ok()
}

#[cfg(test)]
#[path = "cargo_test.rs"]
mod tests;
