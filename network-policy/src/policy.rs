//! `Policy`, the rules of one sandbox, and its three questions: may a name be resolved, may a connection be opened, and may it go
//! on after its first bytes.
//!
//! A connection is judged by each allow rule on its own, and the most permissive verdict counts:
//!
//! ```text
//! No < Port < Private < Own < Yes(Unnamed < Named < NamedPort < ByAddress)
//!      └── why not ───────┘       └── how strictly the first bytes are checked
//! ```
//!
//! So an allow rule can never take away what another one gives.
//!
//! A policy can have a maximum, which is a policy too. Then both are asked, and the stricter answer counts.
//!
//! It does not resolve names: `Target::names` must be names that the daemon itself resolved to the address, for this sandbox.

use std::net::IpAddr;
use std::sync::Arc;

use crate::address::{AddressClass, canonical, classify};
use crate::denial::{Denial, Reason};
use crate::name::HostName;
use crate::network::Network;
use crate::rule::{HostPattern, Ports, Rule, Side, WEB_PORTS};

/// The most rules in one policy, allow and deny together: each connection looks at all of them.
pub const MAX_RULES: usize = 4096;

/// What a sandbox may reach. The default is nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Policy {
    allow: Vec<Rule>,
    deny: Vec<Rule>,
    /// The most that it can allow, whatever its own rules say. It has no maximum of its own.
    maximum: Option<Arc<Policy>>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    #[error("a policy has at most {MAX_RULES} rules, and this one has {count}")]
    TooManyRules { count: usize },
    #[error("the rule {rule} was read for the other list: an allow rule and a deny rule mean different ports")]
    WrongSide { rule: String },
}

/// A connection that the sandbox wants to open.
#[derive(Debug, Clone, Copy)]
pub struct Target<'a> {
    /// The names that this sandbox resolved to this address. Empty if it knows the address from elsewhere.
    pub names: &'a [HostName],
    pub address: IpAddr,
    pub port: u16,
    /// Whether the address, or the IPv4 address that it carries, is one of this host's.
    pub is_own_host: bool,
    /// Whether the daemon, or another service that a sandbox must never reach, listens there.
    pub is_daemon: bool,
}

/// How a connection may begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Opening {
    /// It may be dialled at once, and whatever is spoken is allowed: a rule for the address allows it, and there is no deny rule.
    Free,
    /// It may be dialled at once, and any protocol may be spoken. If the first bytes name a host, `spoken` still decides.
    Any,
    /// The first bytes must be TLS with a server name or HTTP with a Host, and `spoken` must allow that name.
    Named,
    /// As `Named`; and because the sandbox never resolved this address, the carrier must resolve the spoken name itself, check
    /// that the address is among its addresses, and ask `connect` again with that name.
    Unnamed,
}

/// What the first bytes of the client turned out to be. A name that is malformed is not an absent one: the carrier closes such a
/// connection (`Reason::NotUnderstood`), because the server may understand it differently.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Spoken {
    Tls(Option<HostName>),
    Http(Option<HostName>),
    Other,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    /// The rule is for another host.
    No,
    /// The rule is for this host, but not for this port.
    Port,
    /// The rule is not for private addresses.
    Private,
    /// The rule is not for addresses of this host.
    Own,
    Yes(Access),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Access {
    Unnamed,
    Named,
    /// By a name and a port that the rule lists: other protocols may be spoken, such as SSH.
    NamedPort,
    ByAddress,
}

impl Policy {
    pub fn new(allow: Vec<Rule>, deny: Vec<Rule>) -> Result<Self, PolicyError> {
        let count = allow.len() + deny.len();
        if count > MAX_RULES {
            return Err(PolicyError::TooManyRules { count });
        }
        let is_wrong = |rules: &[Rule], side| rules.iter().find(|rule| rule.side() != side).map(Rule::to_string);
        match is_wrong(&allow, Side::Allow).or_else(|| is_wrong(&deny, Side::Deny)) {
            Some(rule) => Err(PolicyError::WrongSide { rule }),
            None => Ok(Self { allow, deny, maximum: None }),
        }
    }

    /// Allows nothing.
    pub fn none() -> Self {
        Self::default()
    }

    /// Allows every public address.
    pub fn full() -> Self {
        Self { allow: vec![Rule::everything()], ..Self::default() }
    }

    /// The same rules under a maximum: allowed is what both allow. A maximum that it had before is replaced, and one of the
    /// maximum itself does not count.
    pub fn under(&self, maximum: &Policy) -> Self {
        let maximum = Self { maximum: None, ..maximum.clone() };
        Self { maximum: Some(Arc::new(maximum)), ..self.clone() }
    }

    pub fn allow(&self) -> &[Rule] {
        &self.allow
    }

    pub fn deny(&self) -> &[Rule] {
        &self.deny
    }

    pub fn maximum(&self) -> Option<&Policy> {
        self.maximum.as_deref()
    }

    /// Whether the sandbox may learn the addresses of this name.
    pub fn may_resolve(&self, name: &HostName) -> Result<(), Denial> {
        let most = self.maximum().map_or(Ok(()), |maximum| maximum.resolves(name));
        stricter(self.resolves(name), most).map_err(|reason| Denial { reason, wanted: name.to_string() })
    }

    fn resolves(&self, name: &HostName) -> Result<(), Reason> {
        if self.deny.iter().any(|rule| rule.ports == Ports::Every && rule.matches_name(name)) {
            return Err(Reason::DeniedByRule);
        }
        if !self.allow.iter().any(|rule| rule.matches_name(name)) {
            return Err(Reason::NameNotAllowed);
        }
        Ok(())
    }

    /// Whether a name may be an alias of another one: only a deny rule is about the other name. `port` is the one to connect to; a
    /// rule for some ports does not forbid to learn the addresses.
    pub fn may_be_alias(&self, name: &HostName, alias_of: &HostName, port: Option<u16>) -> Result<(), Denial> {
        let denies = |policy: &Self| {
            let covers = |ports: &Ports| *ports == Ports::Every || port.is_some_and(|port| ports.contains(port));
            policy.deny.iter().any(|rule| covers(&rule.ports) && rule.matches_name(alias_of))
        };
        let judged = if denies(self) { Err(Reason::DeniedByRule) } else { Ok(()) };
        let most = if self.maximum().is_some_and(denies) { Err(Reason::AboveMaximum) } else { Ok(()) };
        stricter(judged, most).map_err(|reason| Denial { reason, wanted: name.to_string() })
    }

    /// Whether a rule about this name allows this port of it. The addresses of the name may still be forbidden.
    pub fn may_dial_name(&self, name: &HostName, port: u16) -> Result<(), Denial> {
        let is_about = |rule: &Rule| rule.matches_name(name) && rule.ports.contains(port);
        let denial = |reason| Denial { reason, wanted: format!("{name}:{port}") };
        if self.deny.iter().any(is_about) {
            return Err(denial(Reason::DeniedByRule));
        }
        if self.allow.iter().any(is_about) { Ok(()) } else { Err(denial(Reason::NameNotAllowed)) }
    }

    /// Whether some port of an address may be reached under this name. An address for which that is not so need not be told to
    /// the sandbox. `target.port` does not count.
    pub fn may_reach(&self, target: &Target<'_>) -> Result<(), Denial> {
        let mut first = None;
        // Few rules are for one name. Where one side allows every port, the other one says which.
        let rules = self.allow.iter().chain(self.maximum().map(Self::allow).unwrap_or_default());
        for rule in rules.filter(|rule| target.names.iter().any(|name| rule.matches_name(name))) {
            for port in rule.ports.examples() {
                match self.access(&Target { port, ..*target }) {
                    Ok(_) => return Ok(()),
                    Err(denial) => first = first.or(Some(denial)),
                }
            }
        }
        Err(first.unwrap_or_else(|| Denial { reason: Reason::NameNotAllowed, wanted: target.wanted(None) }))
    }

    /// Whether a connection may be opened, and how it may begin.
    pub fn connect(&self, target: &Target<'_>) -> Result<Opening, Denial> {
        Ok(match self.access(target)? {
            Access::Unnamed => Opening::Unnamed,
            Access::Named => Opening::Named,
            Access::ByAddress if self.has_no_deny_rule() => Opening::Free,
            Access::NamedPort | Access::ByAddress => Opening::Any,
        })
    }

    /// Whether a connection may go on after its first bytes. If `connect` said `Unnamed`, a yes is about the name alone: whether
    /// the address is one of its addresses is for the carrier to find out.
    pub fn spoken(&self, target: &Target<'_>, spoken: &Spoken) -> Result<(), Denial> {
        let access = self.access(target)?;
        let Some(name) = spoken.name() else {
            return match access {
                Access::NamedPort | Access::ByAddress => Ok(()),
                // A rule that lists the port allows it, unless the maximum has none.
                Access::Named | Access::Unnamed => {
                    let is_named = |policy: &Self| policy.judge(target).is_ok_and(|access| access <= Access::Named);
                    let is_above = self.maximum().is_some_and(is_named);
                    let reason = if is_above { Reason::AboveMaximum } else { spoken.missing() };
                    Err(Denial { reason, wanted: target.wanted(Some(target.port)) })
                }
            };
        };
        // By address, this is the same verdict again, unless a deny rule is about the name.
        let named = Target { names: std::slice::from_ref(name), ..*target };
        match self.access(&named) {
            Ok(_) => Ok(()),
            Err(denial) if matches!(denial.reason, Reason::DeniedByRule | Reason::AboveMaximum) => Err(denial),
            Err(denial) => Err(Denial { reason: spoken.not_allowed(), ..denial }),
        }
    }

    fn has_no_deny_rule(&self) -> bool {
        self.deny.is_empty() && self.maximum().is_none_or(Self::has_no_deny_rule)
    }

    fn access(&self, target: &Target<'_>) -> Result<Access, Denial> {
        self.judge_with_maximum(target)
            .map_err(|reason| Denial { reason, wanted: target.wanted(target.port_unless_web()) })
    }

    fn judge_with_maximum(&self, target: &Target<'_>) -> Result<Access, Reason> {
        let Some(maximum) = self.maximum() else { return self.judge(target) };
        let both = |target: &Target<'_>| stricter(self.judge(target), maximum.judge(target));
        let all = both(target)?;
        if target.names.len() < 2 {
            return Ok(all);
        }
        // Both must allow the same one of several names. The deny rules were asked about all of them.
        let each = target.names.iter().map(|name| both(&Target { names: std::slice::from_ref(name), ..*target }));
        each.reduce(|best, next| match (best, next) {
            (Ok(best), Ok(next)) => Ok(best.max(next)),
            (Ok(found), Err(_)) | (Err(_), Ok(found)) => Ok(found),
            (Err(_), Err(_)) => Err(Reason::AboveMaximum),
        })
        .unwrap_or(Ok(all))
    }

    fn judge(&self, target: &Target<'_>) -> Result<Access, Reason> {
        if target.is_daemon {
            return Err(Reason::OwnAddress);
        }
        let class = classify(target.address);
        match class {
            AddressClass::Loopback => return Err(Reason::LoopbackAddress),
            AddressClass::LinkLocal => return Err(Reason::LinkLocalAddress),
            AddressClass::Metadata => return Err(Reason::MetadataAddress),
            AddressClass::Multicast => return Err(Reason::MulticastAddress),
            AddressClass::Public | AddressClass::Private => {}
        }
        if self.deny.iter().any(|rule| target.is_denied_by(rule)) {
            return Err(Reason::DeniedByRule);
        }
        match self.allow.iter().map(|rule| target.verdict(rule, class)).max().unwrap_or(Verdict::No) {
            Verdict::Yes(access) => Ok(access),
            Verdict::Own => Err(Reason::OwnAddress),
            Verdict::Private => Err(Reason::PrivateAddress),
            Verdict::Port => Err(Reason::PortNotAllowed),
            Verdict::No if !target.names.is_empty() => Err(Reason::NameNotAllowed),
            Verdict::No if target.is_own_host => Err(Reason::OwnAddress),
            Verdict::No if class == AddressClass::Private => Err(Reason::PrivateAddress),
            Verdict::No => Err(Reason::AddressNotAllowed),
        }
    }
}

/// The answer of a policy and its maximum. What no rule can allow keeps its reason; and nobody is told to ask for what the maximum
/// forbids.
fn stricter<T: Ord>(own: Result<T, Reason>, most: Result<T, Reason>) -> Result<T, Reason> {
    match (own, most) {
        (Ok(own), Ok(most)) => Ok(own.min(most)),
        (Err(reason), _) if !reason.can_be_allowed() => Err(reason),
        (_, Err(_)) => Err(Reason::AboveMaximum),
        (Err(reason), Ok(_)) => Err(reason),
    }
}

impl Target<'_> {
    fn is_denied_by(&self, rule: &Rule) -> bool {
        let is_about = rule.denies_address(self.address) || self.names.iter().any(|name| rule.matches_name(name));
        is_about && rule.ports.contains(self.port)
    }

    /// What one allow rule says. The address is not one of those that are never allowed.
    fn verdict(&self, rule: &Rule, class: AddressClass) -> Verdict {
        let (is_match, access) = match &rule.host {
            HostPattern::Everything => (true, Access::ByAddress),
            HostPattern::Network(network) => (network.contains(self.address), Access::ByAddress),
            // Perhaps the first bytes tell a name that this rule is for.
            HostPattern::Name(_) | HostPattern::Below(_) if self.names.is_empty() => {
                (rule.ports.contains(self.port), Access::Unnamed)
            }
            HostPattern::Name(_) | HostPattern::Below(_) => {
                let is_match = self.names.iter().any(|name| rule.matches_name(name));
                (is_match, if rule.ports == Ports::Web { Access::Named } else { Access::NamedPort })
            }
        };
        let is_for_private = rule.is_private || matches!(rule.host, HostPattern::Network(_));
        if !is_match {
            Verdict::No
        } else if !rule.ports.contains(self.port) {
            Verdict::Port
        } else if self.is_own_host && !is_for_private {
            Verdict::Own
        } else if class == AddressClass::Private && !is_for_private {
            Verdict::Private
        } else {
            Verdict::Yes(access)
        }
    }

    /// The text of a rule that would allow this target: by name if a name is enough, else by address.
    fn wanted(&self, port: Option<u16>) -> String {
        let is_by_name = !self.is_own_host && classify(self.address) == AddressClass::Public;
        match (self.names.first().filter(|_| is_by_name), port) {
            (Some(name), None) => name.to_string(),
            (Some(name), Some(port)) => format!("{name}:{port}"),
            (None, _) => format!("{}:{}", Network::of_one(canonical(self.address)), self.port),
        }
    }

    fn port_unless_web(&self) -> Option<u16> {
        Some(self.port).filter(|port| !WEB_PORTS.contains(port))
    }
}

impl Spoken {
    fn name(&self) -> Option<&HostName> {
        match self {
            Self::Tls(name) | Self::Http(name) => name.as_ref(),
            Self::Other => None,
        }
    }

    fn missing(&self) -> Reason {
        match self {
            Self::Tls(_) => Reason::ServerNameMissing,
            Self::Http(_) => Reason::HostMissing,
            Self::Other => Reason::ProtocolNotAllowed,
        }
    }

    fn not_allowed(&self) -> Reason {
        match self {
            Self::Tls(_) => Reason::ServerNameNotAllowed,
            Self::Http(_) => Reason::HostNotAllowed,
            Self::Other => Reason::ProtocolNotAllowed,
        }
    }
}
