//! Turns what a client asks for, a preset or rules, into a policy, together with what the operator adds to it: extra rules, and the
//! maximum of the key.

use std::collections::BTreeMap;
use std::sync::Arc;

use network_policy::{Policy, Rule, Side};
use shared_protocol::api::{NetworkRule, NetworkRules, NetworkSpec};

use super::session::SessionPolicy;
use crate::owner::{Creator, NetworkMaximum};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NetworkError {
    #[error("there is no network preset {name:?}; there are: {known}")]
    NoSuchPreset { name: String, known: String },
    #[error("network rule {rule:?}: {why}")]
    InvalidRule { rule: String, why: String },
    #[error("network rule {rule:?} may reach private addresses; only a key with the role admin may use such a rule")]
    NeedsAdmin { rule: String },
    #[error("network rule {rule:?} is more than this key may ask for: its maximum is {max}")]
    AboveMaximum { rule: String, max: String },
    #[error("no package manager of this host has told its registries; `cove network detect` shows why")]
    NothingDetected,
    #[error("{0}")]
    TooManyRules(String),
}

/// Who asks for a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asker {
    /// It may use rules that reach private addresses: an admin, the operator, or a session that was checked before.
    Trusted,
    User,
}

impl Asker {
    pub fn of(creator: &Creator) -> Self {
        if creator.may_reach_private { Self::Trusted } else { Self::User }
    }
}

/// The presets of the operator.
pub type OwnPresets = BTreeMap<String, Arc<Policy>>;

/// What the operator has configured for all sessions.
#[derive(Debug, Clone, Default)]
pub struct OperatorRules {
    pub presets: OwnPresets,
    /// Added to what every session asks for: the deny rules always, and the allow rules unless it asks for `none`.
    pub extra: Policy,
    /// The most that a key may ask for that has no maximum of its own and is no admin.
    pub maximum: Option<NetworkSpec>,
    /// What agents may open by themselves. `None`: nothing.
    pub requests: Option<NetworkSpec>,
}

/// Whether a policy may ask for more than its maximum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AboveMaximum {
    /// A client asks: it is told at once.
    Refused,
    /// It was asked for earlier, under another configuration: it reaches less now.
    Narrowed,
}

impl OperatorRules {
    /// Makes the policy of a session. `packages` are the rules of that preset, if they are known.
    pub fn compile(
        &self,
        asked: &NetworkSpec,
        asker: Asker,
        maximum: &NetworkMaximum,
        above: AboveMaximum,
        packages: Option<&Arc<Policy>>,
    ) -> Result<SessionPolicy, NetworkError> {
        let own = self.rules_of(asked, asker, packages)?;
        let max = self.maximum_of(maximum);
        let compiled = |policy| {
            let (asked, maximum) = (asked.clone(), maximum.clone());
            SessionPolicy { asked, maximum, max: max.cloned(), policy: Arc::new(policy), injections: Arc::default() }
        };
        let extra_allow = if asked.is_none() { &[] } else { self.extra.allow() };
        let policy = joined(&[own.allow(), extra_allow], &[own.deny(), self.extra.deny()])?;
        // Nothing is within every maximum, also while nobody knows what the maximum means.
        let Some(most) = max.filter(|_| !asked.is_none()) else { return Ok(compiled(policy)) };
        let limit = self.rules_of(most, Asker::Trusted, packages)?;
        if above == AboveMaximum::Refused
            && let Some(rule) = own.rule_above(&limit)
        {
            return Err(NetworkError::AboveMaximum { rule: rule.to_string(), max: described(most) });
        }
        let limit = joined(&[limit.allow(), self.extra.allow()], &[limit.deny()])?;
        Ok(compiled(policy.under(&limit)))
    }

    /// What this maximum is now.
    pub fn maximum_of<'a>(&'a self, maximum: &'a NetworkMaximum) -> Option<&'a NetworkSpec> {
        match maximum {
            NetworkMaximum::Daemon => self.maximum.as_ref(),
            NetworkMaximum::Key(max) => Some(max),
            NetworkMaximum::Unlimited => None,
        }
    }

    /// The rules of a preset, or of rules and the presets that they name.
    fn rules_of(
        &self,
        asked: &NetworkSpec,
        asker: Asker,
        packages: Option<&Arc<Policy>>,
    ) -> Result<Arc<Policy>, NetworkError> {
        let named = |name: &str| preset(name, &self.presets, packages);
        let rules = match asked {
            NetworkSpec::Preset(name) => return named(name),
            NetworkSpec::Rules(rules) => rules,
        };
        let presets = rules.presets.iter().map(|name| named(name)).collect::<Result<Vec<_>, _>>()?;
        let given = of_rules(rules, asker)?;
        let all = || presets.iter().map(AsRef::as_ref).chain([&given]);
        let (allow, deny): (Vec<_>, Vec<_>) = all().map(|policy| (policy.allow(), policy.deny())).unzip();
        joined(&allow, &deny).map(Arc::new)
    }
}

fn joined(allow: &[&[Rule]], deny: &[&[Rule]]) -> Result<Policy, NetworkError> {
    Policy::new(allow.concat(), deny.concat()).map_err(|error| NetworkError::TooManyRules(error.to_string()))
}

/// A network in an error: the name of a preset, or rules as JSON.
fn described(network: &NetworkSpec) -> String {
    let text = serde_json::to_string(network).unwrap_or_default();
    let shown: String = text.chars().take(MAX_SHOWN).collect();
    if shown.len() < text.len() { shown + "…" } else { shown }
}

fn preset(name: &str, own: &OwnPresets, packages: Option<&Arc<Policy>>) -> Result<Arc<Policy>, NetworkError> {
    Ok(match (name, own.get(name)) {
        (NetworkSpec::NONE, _) => Arc::new(Policy::none()),
        (NetworkSpec::FULL | NetworkSpec::LEARN, _) => Arc::new(Policy::full()),
        (_, Some(preset)) => preset.clone(),
        (NetworkSpec::PACKAGES, None) => packages.cloned().ok_or(NetworkError::NothingDetected)?,
        (_, None) => {
            let built_in = [NetworkSpec::NONE, NetworkSpec::PACKAGES, NetworkSpec::LEARN, NetworkSpec::FULL];
            let known = built_in.into_iter().chain(own.keys().map(String::as_str)).collect::<Vec<_>>().join(", ");
            return Err(NetworkError::NoSuchPreset { name: name.chars().take(MAX_SHOWN).collect(), known });
        }
    })
}

/// The policy of rules, without the presets that they name.
pub fn of_rules(rules: &NetworkRules, asker: Asker) -> Result<Policy, NetworkError> {
    let read = |rules: &[NetworkRule], side| rules.iter().map(|rule| read_rule(rule, side, asker)).collect();
    let (allow, deny): (Result<Vec<Rule>, _>, Result<Vec<Rule>, _>) =
        (read(&rules.allow, Side::Allow), read(&rules.deny, Side::Deny));
    Policy::new(allow?, deny?).map_err(|error| NetworkError::TooManyRules(error.to_string()))
}

/// The longest part of a wrong rule that an error repeats.
const MAX_SHOWN: usize = 100;

fn read_rule(rule: &NetworkRule, side: Side, asker: Asker) -> Result<Rule, NetworkError> {
    let (shown, read) = match rule {
        NetworkRule::Text(text) => (text.as_str(), Rule::parse(text, side)),
        NetworkRule::Parts(parts) => {
            (parts.host.as_str(), Rule::from_parts(&parts.host, &parts.ports, parts.private, side))
        }
    };
    let shown = || shown.chars().take(MAX_SHOWN).collect::<String>();
    let read = read.map_err(|error| NetworkError::InvalidRule { rule: shown(), why: error.to_string() })?;
    if asker == Asker::User && side == Side::Allow && read.may_reach_private() {
        return Err(NetworkError::NeedsAdmin { rule: shown() });
    }
    Ok(read)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(text: &str) -> NetworkSpec {
        serde_json::from_str(text).unwrap()
    }

    fn policy(text: &str) -> Policy {
        of_rules(&serde_json::from_str(text).unwrap(), Asker::Trusted).unwrap()
    }

    fn compile(operator: &OperatorRules, asked: &NetworkSpec, asker: Asker) -> Result<Arc<Policy>, NetworkError> {
        let made = operator.compile(asked, asker, &NetworkMaximum::Daemon, AboveMaximum::Refused, None);
        made.map(|made| made.policy)
    }

    #[test]
    fn a_request_above_the_maximum_is_refused_and_what_was_asked_for_before_is_narrowed() {
        let corp = Arc::new(policy(r#"{"allow":["a.example.com","*.b.example.com:22"]}"#));
        let presets = OwnPresets::from([("corp".to_owned(), corp)]);
        let operator =
            OperatorRules { presets, maximum: Some(NetworkSpec::preset("corp")), ..OperatorRules::default() };
        let (daemons, unlimited) = (NetworkMaximum::Daemon, NetworkMaximum::Unlimited);
        let of_key = NetworkMaximum::Key(rules(r#"{"allow":["*"],"deny":["a.example.com"]}"#));
        // What is asked for, and the rule that is above the daemon's maximum and above the key's.
        for (asked, above_daemons, above_keys) in [
            (NetworkSpec::preset("none"), None, None),
            (NetworkSpec::preset("corp"), None, Some("a.example.com")),
            (NetworkSpec::preset("full"), Some("*"), None),
            (NetworkSpec::preset("learn"), Some("*"), None),
            (rules(r#"{"allow":["a.example.com","x.b.example.com:22"]}"#), None, Some("a.example.com")),
            (rules(r#"{"presets":["corp"],"allow":["x.example.com"]}"#), Some("x.example.com"), Some("a.example.com")),
            (rules(r#"{"deny":["x.example.com"]}"#), None, None),
        ] {
            for (maximum, above) in [(&daemons, above_daemons), (&of_key, above_keys), (&unlimited, None)] {
                let made = operator.compile(&asked, Asker::User, maximum, AboveMaximum::Refused, None);
                match (&made, above) {
                    (Ok(_), None) => {}
                    (Err(NetworkError::AboveMaximum { rule, max }), Some(expected)) => {
                        assert_eq!(rule, expected);
                        assert!(max.contains(if *maximum == daemons { "corp" } else { "deny" }), "{max}");
                    }
                    _ => panic!("{asked:?} under {maximum:?}: {made:?}"),
                }
                let kept = operator.compile(&asked, Asker::Trusted, maximum, AboveMaximum::Narrowed, None).unwrap();
                let may = |name: &str| kept.policy.may_resolve(&network_policy::HostName::parse(name).unwrap()).is_ok();
                assert!(*maximum != daemons || !may("evil.example.com"), "{asked:?}");
                assert!(*maximum != of_key || !may("a.example.com"), "{asked:?}");
            }
        }
    }

    #[test]
    fn a_maximum_that_means_nothing_yet_allows_only_none() {
        let operator = OperatorRules { maximum: Some(NetworkSpec::preset("packages")), ..OperatorRules::default() };
        assert!(compile(&operator, &NetworkSpec::preset("none"), Asker::User).is_ok());
        let full = compile(&operator, &NetworkSpec::preset("full"), Asker::User);
        assert_eq!(full, Err(NetworkError::NothingDetected));
    }

    #[test]
    fn the_operators_rules_are_added_to_every_network() {
        let extra = policy(r#"{"allow":["extra.example.com"],"deny":["evil.example.com"]}"#);
        let operator = OperatorRules { extra, ..OperatorRules::default() };
        let limited = OperatorRules { maximum: Some(rules(r#"{"allow":["a.example.com"]}"#)), ..operator.clone() };
        for (asked, has_extra) in [
            (NetworkSpec::preset("none"), false),
            (NetworkSpec::preset("full"), true),
            (rules(r#"{"allow":["a.example.com","evil.example.com"]}"#), true),
            (rules("{}"), true),
        ] {
            for operator in [&operator, &limited] {
                let made = operator.compile(&asked, Asker::User, &NetworkMaximum::Daemon, AboveMaximum::Narrowed, None);
                let policy = made.unwrap().policy;
                let may = |name: &str| policy.may_resolve(&network_policy::HostName::parse(name).unwrap()).is_ok();
                assert!(!may("evil.example.com"), "{asked:?}");
                assert_eq!(may("extra.example.com"), has_extra, "{asked:?}");
            }
        }
    }

    #[test]
    fn presets_and_rules_become_policies() {
        let corp = Arc::new(of_rules(&NetworkRules::default(), Asker::Trusted).unwrap());
        let own = OwnPresets::from([("corp".to_owned(), corp.clone())]);
        let operator = OperatorRules { presets: own, ..OperatorRules::default() };
        let compiled = |asked: &NetworkSpec| compile(&operator, asked, Asker::User);
        assert_eq!(*compiled(&NetworkSpec::preset("none")).unwrap(), Policy::none());
        assert_eq!(*compiled(&NetworkSpec::preset("full")).unwrap(), Policy::full());
        assert_eq!(*compiled(&NetworkSpec::preset("learn")).unwrap(), Policy::full());
        assert_eq!(compiled(&NetworkSpec::preset("corp")).unwrap(), corp);
        assert_eq!(compiled(&NetworkSpec::preset("packages")), Err(NetworkError::NothingDetected));
        let unknown = compiled(&NetworkSpec::preset("ful")).unwrap_err().to_string();
        assert!(unknown.contains("\"ful\"") && unknown.contains("full") && unknown.contains("corp"), "{unknown}");
        let allowed = compiled(&rules(r#"{"allow":["example.com"],"deny":["*.example.com"]}"#)).unwrap();
        assert_eq!((allowed.allow().len(), allowed.deny().len()), (1, 1));
        let both = compiled(&rules(r#"{"presets":["full"],"deny":["example.com"]}"#)).unwrap();
        assert_eq!((both.allow(), both.deny().len()), (Policy::full().allow(), 1));
        assert!(compiled(&rules(r#"{"presets":["ful"]}"#)).is_err());
    }

    #[test]
    fn only_an_admin_names_private_addresses() {
        for text in [r#"{"allow":[{"host":"mirror.corp","private":true}]}"#, r#"{"allow":["10.0.0.0/8:5432"]}"#] {
            let (asked, operator) = (rules(text), OperatorRules::default());
            let refused = compile(&operator, &asked, Asker::User).unwrap_err();
            assert!(matches!(refused, NetworkError::NeedsAdmin { .. }), "{refused}");
            assert!(compile(&operator, &asked, Asker::Trusted).is_ok());
        }
        let deny = rules(r#"{"allow":["*"],"deny":["10.0.0.0/8"]}"#);
        assert!(compile(&OperatorRules::default(), &deny, Asker::User).is_ok(), "anybody may deny");
    }

    #[test]
    fn a_wrong_rule_is_named_with_what_to_write_instead() {
        let asked = rules(r#"{"allow":["https://example.com/x"]}"#);
        let error = compile(&OperatorRules::default(), &asked, Asker::User).unwrap_err().to_string();
        assert!(error.contains("https://example.com/x") && error.contains("write example.com"), "{error}");
    }
}
