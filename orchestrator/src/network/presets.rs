//! Turns what a client asks for, a preset or rules, into a policy.

use std::collections::BTreeMap;
use std::sync::Arc;

use network_policy::{Policy, Rule, Side};
use shared_protocol::api::{NetworkRule, NetworkRules, NetworkSpec};

use super::session::SessionPolicy;
use crate::owner::Creator;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NetworkError {
    #[error("there is no network preset {name:?}; there are: {known}")]
    NoSuchPreset { name: String, known: String },
    #[error("network rule {rule:?}: {why}")]
    InvalidRule { rule: String, why: String },
    #[error("network rule {rule:?} may reach private addresses; only a key with the role admin may use such a rule")]
    NeedsAdmin { rule: String },
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

/// Makes the policy of a session. `packages` are the rules of that preset, if they are known.
pub fn compile(
    asked: &NetworkSpec,
    asker: Asker,
    own: &OwnPresets,
    packages: Option<&Arc<Policy>>,
) -> Result<SessionPolicy, NetworkError> {
    let policy = match asked {
        NetworkSpec::Rules(rules) => Arc::new(of_rules(rules, asker)?),
        NetworkSpec::Preset(name) => match (name.as_str(), own.get(name)) {
            (NetworkSpec::NONE, _) => Arc::new(Policy::none()),
            (NetworkSpec::FULL | NetworkSpec::LEARN, _) => Arc::new(Policy::full()),
            (_, Some(preset)) => preset.clone(),
            (NetworkSpec::PACKAGES, None) => packages.cloned().ok_or(NetworkError::NothingDetected)?,
            (_, None) => {
                let built_in = [NetworkSpec::NONE, NetworkSpec::PACKAGES, NetworkSpec::LEARN, NetworkSpec::FULL];
                let known = built_in.into_iter().chain(own.keys().map(String::as_str)).collect::<Vec<_>>().join(", ");
                return Err(NetworkError::NoSuchPreset { name: name.clone(), known });
            }
        },
    };
    Ok(SessionPolicy { asked: asked.clone(), policy })
}

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

    #[test]
    fn presets_and_rules_become_policies() {
        let corp = Arc::new(of_rules(&NetworkRules::default(), Asker::Trusted).unwrap());
        let own = OwnPresets::from([("corp".to_owned(), corp.clone())]);
        let compiled = |asked: &NetworkSpec| compile(asked, Asker::User, &own, None).map(|made| made.policy);
        assert_eq!(*compiled(&NetworkSpec::preset("none")).unwrap(), Policy::none());
        assert_eq!(*compiled(&NetworkSpec::preset("full")).unwrap(), Policy::full());
        assert_eq!(*compiled(&NetworkSpec::preset("learn")).unwrap(), Policy::full());
        assert_eq!(compiled(&NetworkSpec::preset("corp")).unwrap(), corp);
        assert_eq!(compiled(&NetworkSpec::preset("packages")), Err(NetworkError::NothingDetected));
        let unknown = compiled(&NetworkSpec::preset("ful")).unwrap_err().to_string();
        assert!(unknown.contains("\"ful\"") && unknown.contains("full") && unknown.contains("corp"), "{unknown}");
        let allowed = compiled(&rules(r#"{"allow":["example.com"],"deny":["*.example.com"]}"#)).unwrap();
        assert_eq!((allowed.allow().len(), allowed.deny().len()), (1, 1));
    }

    #[test]
    fn only_an_admin_names_private_addresses() {
        for text in [r#"{"allow":[{"host":"mirror.corp","private":true}]}"#, r#"{"allow":["10.0.0.0/8:5432"]}"#] {
            let (asked, own) = (rules(text), OwnPresets::new());
            let refused = compile(&asked, Asker::User, &own, None).unwrap_err();
            assert!(matches!(refused, NetworkError::NeedsAdmin { .. }), "{refused}");
            assert!(compile(&asked, Asker::Trusted, &own, None).is_ok());
        }
        let deny = rules(r#"{"allow":["*"],"deny":["10.0.0.0/8"]}"#);
        assert!(compile(&deny, Asker::User, &OwnPresets::new(), None).is_ok(), "anybody may deny");
    }

    #[test]
    fn a_wrong_rule_is_named_with_what_to_write_instead() {
        let asked = rules(r#"{"allow":["https://example.com/x"]}"#);
        let error = compile(&asked, Asker::User, &OwnPresets::new(), None).unwrap_err().to_string();
        assert!(error.contains("https://example.com/x") && error.contains("write example.com"), "{error}");
    }
}
