//! What was found: sources, each with the reason why it is in the list, variables for sandboxes, and problems. The daemon keeps it as JSON.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The answer of [`detect`](crate::detect). All lists are sorted, so equal machines give equal answers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Detected {
    pub found: Vec<Source>,
    pub problems: Vec<Problem>,
    /// What sandboxes get, so that their tools use the same registries. Answers of older versions do not have it.
    #[serde(default)]
    pub variables: Vec<Variable>,
}

/// A host that a tool downloads from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Source {
    pub tool: String,
    /// A name in lower case, or an address.
    pub host: String,
    pub ports: Vec<u16>,
    pub url_scheme: String,
    /// All reasons, separated by `; `.
    pub because: String,
    /// The host resolves only to private addresses here, and a configuration or another private host names it. So a rule
    /// may reach a private address. A public page cannot cause it.
    pub is_private: bool,
}

/// A variable that leads a tool to the registry that is configured on this machine. It holds no credentials.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Variable {
    pub tool: String,
    pub name: String,
    pub value: String,
}

/// Something that was not found out. It holds no credentials.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Problem {
    pub tool: String,
    pub kind: ProblemKind,
    pub message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProblemKind {
    /// The tool is not on this machine. Its configuration files, if any, are read nevertheless.
    NotInstalled,
    /// The tool failed, hung, or printed too much or something unexpected.
    ToolFailed,
    /// A configuration file or a value in it cannot be used.
    Configuration,
    /// A registry does not answer, or answers something unexpected.
    Registry,
    /// A bound was reached, so the list is not complete.
    Limit,
    /// Nothing is wrong, but sandboxes will behave differently from this machine.
    Note,
}

/// A rule for the network policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    pub host: String,
    pub ports: Vec<u16>,
    pub is_private: bool,
}

impl Detected {
    /// One rule per host, sorted by host, with the ports of all tools.
    pub fn rules(&self) -> Vec<Rule> {
        let mut rules: BTreeMap<&str, Rule> = BTreeMap::new();
        for source in &self.found {
            let empty = || Rule { host: source.host.clone(), ports: Vec::new(), is_private: false };
            let rule = rules.entry(&source.host).or_insert_with(empty);
            rule.ports.extend(&source.ports);
            rule.ports.sort_unstable();
            rule.ports.dedup();
            rule.is_private |= source.is_private;
        }
        rules.into_values().collect()
    }
}
