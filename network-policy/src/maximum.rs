//! Whether rules stay within a maximum, so that a request that asks for more can be refused at once, by the name of a rule.
//!
//! This is not what protects: a policy under a maximum asks both about every connection (`Policy::under`). It says no in doubt: a
//! rule is within the maximum only if, for each of its ports, a single rule of the maximum covers it.

use crate::address;
use crate::policy::Policy;
use crate::rule::{HostPattern, Ports, Rule, WEB_PORTS};

impl Policy {
    /// The first allow rule that asks for more than the maximum allows. `None`: all of them stay within it.
    pub fn rule_above(&self, maximum: &Policy) -> Option<&Rule> {
        let is_denied = |rule: &Rule| {
            // What this policy denies itself, it does not ask for.
            let others = maximum.deny().iter().filter(|denied| !self.deny().contains(denied));
            others.into_iter().any(|denied| denied.covers(rule))
        };
        self.allow().iter().find(|rule| !rule.is_within(maximum.allow()) || is_denied(rule))
    }
}

impl Rule {
    /// Whether the rules together cover all ports of this one.
    fn is_within(&self, rules: &[Rule]) -> bool {
        let is_covered = |part: &Rule| rules.iter().any(|rule| rule.covers(part));
        match &self.ports {
            Ports::Listed(ports) => {
                ports.iter().all(|port| is_covered(&Self { ports: Ports::Listed(vec![*port]), ..self.clone() }))
            }
            Ports::Web | Ports::Every => is_covered(self),
        }
    }

    /// Whether everything that the other rule is about is something that this one is about, too.
    fn covers(&self, other: &Rule) -> bool {
        let is_host = match (&self.host, &other.host) {
            // `*` is for public addresses.
            (HostPattern::Everything, HostPattern::Network(network)) => {
                self.is_deny() || !address::has_private(network)
            }
            (HostPattern::Everything, _) => self.is_deny() || !other.is_private,
            (HostPattern::Name(name), HostPattern::Name(other)) => name == other,
            (HostPattern::Below(parent), HostPattern::Name(name)) => name.is_below(parent),
            (HostPattern::Below(parent), HostPattern::Below(other)) => other == parent || other.is_below(parent),
            (HostPattern::Network(network), HostPattern::Network(other)) => network.covers(other),
            _ => false,
        };
        let is_private = self.is_deny() || self.is_private || !other.is_private;
        is_host && is_private && self.ports.cover(&other.ports)
    }
}

impl Ports {
    fn cover(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Every, _) | (Self::Web, Self::Web) => true,
            (Self::Listed(ports), Self::Web) => WEB_PORTS.iter().all(|port| ports.contains(port)),
            (Self::Listed(ports), Self::Listed(others)) => others.iter().all(|port| ports.contains(port)),
            // A rule that lists its port allows other protocols there, and one without a port does not.
            (Self::Web, Self::Listed(_)) | (_, Self::Every) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Policy, Rule, Side};

    fn policy(allow: &str, deny: &str) -> Policy {
        let rules = |texts: &str, side| texts.split_whitespace().map(|text| Rule::parse(text, side).unwrap()).collect();
        Policy::new(rules(allow, Side::Allow), rules(deny, Side::Deny)).unwrap()
    }

    #[test]
    fn rules_are_within_a_maximum_as_in_the_table() {
        // What is asked for, the maximum, and the rule that is above it.
        for (allow, most, denied, above) in [
            ("", "", "", None),
            ("a.com", "a.com", "", None),
            ("a.com", "", "", Some("a.com")),
            ("a.com b.com", "a.com", "", Some("b.com")),
            ("b.a.com *.b.a.com", "*.a.com", "", None),
            ("a.com", "*.a.com", "", Some("a.com")),
            ("*.a.com", "b.a.com", "", Some("*.a.com")),
            ("a.com b.com:22 203.0.113.0/24:5432 *", "*", "", None),
            ("*", "a.com", "", Some("*")),
            ("*", "*:443", "", Some("*")),
            ("*:443", "*", "", None),
            ("10.0.0.1:80", "*", "", Some("10.0.0.1:80")),
            ("10.0.0.1:80", "10.0.0.0/8:80", "", None),
            ("10.0.0.0/8:80", "10.0.0.1:80", "", Some("10.0.0.0/8:80")),
            ("10.0.0.1:80", "10.0.0.0/8:443", "", Some("10.0.0.1:80")),
            // A rule without a port allows TLS and HTTP only.
            ("a.com:443", "a.com", "", Some("a.com:443")),
            ("a.com", "a.com:443", "", Some("a.com")),
            ("a.com", "a.com a.com:443", "", None),
            ("a.com", "a.com", "a.com", Some("a.com")),
            ("a.com", "*", "*.com", Some("a.com")),
            ("*.com", "*", "a.com", None),
            ("a.com", "*", "a.com:22", None),
        ] {
            let (asked, maximum) = (policy(allow, ""), policy(most, denied));
            let found = asked.rule_above(&maximum).map(ToString::to_string);
            assert_eq!(found.as_deref(), above, "{allow:?} under {most:?} without {denied:?}");
        }
        let ports = Rule::from_parts("a.com", &[80, 8443], false, Side::Allow).unwrap();
        let ports = Policy::new(vec![ports], Vec::new()).unwrap();
        assert!(ports.rule_above(&policy("*.com:8443 a.com:80", "")).is_none(), "two rules cover its two ports");
        let private = Rule::from_parts("a.com", &[], true, Side::Allow).unwrap();
        let private = Policy::new(vec![private], Vec::new()).unwrap();
        assert!(private.rule_above(&policy("a.com", "")).is_some() && private.rule_above(&policy("*", "")).is_some());
        assert!(private.rule_above(&private).is_none() && policy("a.com", "").rule_above(&private).is_none());
    }
}
