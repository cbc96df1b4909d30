//! What a session may reach over the network, and what it tried to reach.

use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize};

/// What a session may reach: the name of a preset, or rules.
///
/// Presets that always exist: `none` (loopback only), `packages` (the registries that this host's package managers use), `learn` (every
/// public address; `cove network learn` prints what was used) and `full` (every public address). The daemon's operator may add others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum NetworkSpec {
    /// The name of a preset.
    Preset(String),
    /// Rules: what is allowed, and what is denied in spite of that.
    Rules(NetworkRules),
}

impl NetworkSpec {
    pub const NONE: &'static str = "none";
    pub const PACKAGES: &'static str = "packages";
    pub const LEARN: &'static str = "learn";
    pub const FULL: &'static str = "full";

    pub fn preset(name: &str) -> Self {
        Self::Preset(name.to_owned())
    }

    pub fn is_none(&self) -> bool {
        matches!(self, Self::Preset(name) if name == Self::NONE)
    }

    pub fn is_learn(&self) -> bool {
        matches!(self, Self::Preset(name) if name == Self::LEARN)
    }

    pub fn is_full(&self) -> bool {
        matches!(self, Self::Preset(name) if name == Self::FULL)
    }
}

impl Default for NetworkSpec {
    fn default() -> Self {
        Self::preset(Self::NONE)
    }
}

/// Rules for a session's network. A deny rule wins over every allow rule.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct NetworkRules {
    /// Presets whose rules count too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub presets: Vec<String>,
    /// What the session may reach.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<NetworkRule>,
    /// What the session may not reach, in spite of `allow`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<NetworkRule>,
}

/// One rule, as text or with its parts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum NetworkRule {
    /// `example.com` (ports 80 and 443), `example.com:22`, `*.example.com`, `203.0.113.0/24:5432` or `*`.
    Text(String),
    /// The parts of a rule.
    Parts(NetworkRuleParts),
}

/// A rule with several ports, or for a name that has private addresses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct NetworkRuleParts {
    /// A name, a name with `*.` before it, or an address range.
    pub host: String,
    /// The ports. The default is 80 and 443.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<u16>,
    /// Whether the name may have private addresses, as a company's mirror does. Only for keys with the role `admin`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub private: bool,
}

/// A header that the daemon adds to the requests of a session to one host. The sandbox never sees its value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct InjectionSpec {
    /// The host, as in `https://HOST/`: a name, with a port if that is not 443.
    pub host: String,
    /// The name of the header. Values that programs send under this name are replaced.
    pub header: String,
    /// Where the value comes from: `secret:NAME`.
    pub value_from: String,
    /// The value of the header, with `{}` for the secret. The default is the secret alone; an example is `Bearer {}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
}

/// A change of a session's network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SetNetworkRequest {
    /// What the session may reach from now on. Connections that it forbids are cut at once.
    pub network: NetworkSpec,
    /// The headers that the daemon adds from now on. Without it, the session keeps those that it has; an empty list removes all. Only a
    /// session that was created with `inject` can have any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inject: Option<Vec<InjectionSpec>>,
}

/// A session's network now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct NetworkView {
    /// What was asked for.
    pub network: NetworkSpec,
    /// The most that the session may reach, by the key that chose its network; absent if there is no maximum. What is reached is what
    /// both this and the rules allow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<NetworkSpec>,
    /// What is allowed, as rules.
    pub allow: Vec<NetworkRule>,
    /// What is denied in spite of that, as rules.
    pub deny: Vec<NetworkRule>,
    /// The headers that the daemon adds, without their values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inject: Vec<InjectionSpec>,
    /// Whether programs in the sandbox have a way to the daemon at all. `false` on a host that cannot open one: then nothing is reachable.
    pub is_open: bool,
    /// The proxy that programs in the sandbox have to use, where they cannot simply dial. Their variables lead to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy: Option<String>,
    /// What was reached so far, as rules that would allow it: the allowlist of a session with the network `learn`. A change to `learn`
    /// begins a new list.
    pub used: Vec<String>,
    /// How many connections are open.
    pub connections: u64,
    /// How many bytes programs have sent.
    pub bytes_sent: u64,
    /// How many bytes programs have received.
    pub bytes_received: u64,
}

/// Whether something was allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum NetworkVerdict {
    /// It was allowed.
    Allowed,
    /// The policy does not allow it.
    Denied,
    /// It was allowed, and did not work: the name does not exist, or nothing answers at the address.
    Failed,
    /// An open connection was cut, because the policy changed or a limit was reached.
    Cut,
}

/// What a program wanted of the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum NetworkWish {
    /// The addresses of a name.
    Resolve,
    /// A TCP connection.
    Connect,
}

/// One decision about a session's network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct NetworkDecision {
    /// Numbers the decisions of a session, from 1. With gaps, decisions are missing that are no longer kept.
    pub sequence: u64,
    /// When it was made, or when the connection closed: Unix time in milliseconds.
    pub timestamp: u64,
    /// What a program wanted.
    pub wish: NetworkWish,
    /// The name, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The address that was dialled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The port that was dialled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Whether it was allowed.
    pub verdict: NetworkVerdict,
    /// Why not, as a word for programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The rule that would allow it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wanted: Option<String>,
    /// Whether the daemon added a header to the requests of this connection.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub injected: bool,
    /// How many bytes the program sent; present when a connection has closed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_sent: Option<u64>,
    /// How many bytes the program received; present when a connection has closed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_received: Option<u64>,
}

/// The last decisions about a session's network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct NetworkLogView {
    /// The decisions, the oldest first.
    pub decisions: Vec<NetworkDecision>,
}

/// The registries that this host's package managers use: what the network `packages` allows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct PackagesView {
    /// The hosts, each with the tool that uses it.
    pub found: Vec<RegistryView>,
    /// The variables that a session with the network `packages` gets, so that its package managers use the same registries.
    #[serde(default)]
    pub variables: Vec<RegistryVariable>,
    /// What could not be found out, and notes.
    pub problems: Vec<RegistryProblem>,
}

/// A host that a package manager downloads from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct RegistryView {
    /// The package manager.
    pub tool: String,
    /// The host.
    pub host: String,
    /// The ports.
    pub ports: Vec<u16>,
    /// Where the package manager has it from.
    pub because: String,
    /// Whether the host has private addresses here, as a company's mirror does.
    pub is_private: bool,
}

/// A variable that leads a package manager to a registry. It holds no credentials.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct RegistryVariable {
    /// The package manager.
    pub tool: String,
    /// The name of the variable.
    pub name: String,
    /// Its value.
    pub value: String,
}

/// Something about a package manager that could not be found out, or a note.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct RegistryProblem {
    /// The package manager.
    pub tool: String,
    /// What it is about.
    pub message: String,
}

/// Reads what is either a text or an object. Unlike serde's untagged enums, its errors name the field that is wrong.
struct TextOr<T> {
    expected: &'static str,
    of_text: fn(String) -> T,
}

impl<'de> Deserialize<'de> for NetworkSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expected =
            "the name of a preset, such as \"none\" or \"packages\", or an object with `presets`, `allow` and `deny`";
        deserializer.deserialize_any(TextOr { expected, of_text: Self::Preset })
    }
}

impl<'de> Deserialize<'de> for NetworkRule {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expected = "a rule, such as \"example.com\", or an object with `host`, `ports` and `private`";
        deserializer.deserialize_any(TextOr { expected, of_text: Self::Text })
    }
}

impl From<NetworkRules> for NetworkSpec {
    fn from(rules: NetworkRules) -> Self {
        Self::Rules(rules)
    }
}

impl From<NetworkRuleParts> for NetworkRule {
    fn from(parts: NetworkRuleParts) -> Self {
        Self::Parts(parts)
    }
}

/// The object form of a type that can also be a text.
trait ObjectForm {
    type Object: for<'de> Deserialize<'de> + Into<Self>
    where
        Self: Sized;
}

impl ObjectForm for NetworkSpec {
    type Object = NetworkRules;
}

impl ObjectForm for NetworkRule {
    type Object = NetworkRuleParts;
}

impl<'de, T: ObjectForm> Visitor<'de> for TextOr<T> {
    type Value = T;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.expected)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
        Ok((self.of_text)(text.to_owned()))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        T::Object::deserialize(MapAccessDeserializer::new(map)).map(Into::into)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_is_a_preset_or_rules_and_errors_name_what_is_wrong() {
        let read = serde_json::from_str::<NetworkSpec>;
        assert_eq!(read(r#""packages""#).unwrap(), NetworkSpec::preset("packages"));
        let text = r#"{"allow":["example.com",{"host":"mirror.corp","ports":[443],"private":true}]}"#;
        let rules = read(text).unwrap();
        assert_eq!(serde_json::to_string(&rules).unwrap(), text);
        assert_eq!(read("{}").unwrap(), NetworkSpec::Rules(NetworkRules::default()));
        for (bad, word) in [
            ("1", "the name of a preset"),
            (r#"{"alow":[]}"#, "alow"),
            (r#"{"allow":[1]}"#, "a rule, such as"),
            (r#"{"allow":[{"host":"x","port":1}]}"#, "`port`"),
            (r#"{"allow":[{"host":"x","ports":[70000]}]}"#, "70000"),
        ] {
            let error = read(bad).unwrap_err().to_string();
            assert!(error.contains(word), "{bad}: {error}");
        }
    }
}
