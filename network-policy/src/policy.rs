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
//! It does not resolve names: `Target::names` must be names that the daemon itself resolved to the address, for this sandbox.

use std::net::IpAddr;

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
            None => Ok(Self { allow, deny }),
        }
    }

    /// Allows nothing.
    pub fn none() -> Self {
        Self::default()
    }

    /// Allows every public address.
    pub fn full() -> Self {
        Self { allow: vec![Rule::everything()], deny: Vec::new() }
    }

    pub fn allow(&self) -> &[Rule] {
        &self.allow
    }

    pub fn deny(&self) -> &[Rule] {
        &self.deny
    }

    /// Whether the sandbox may learn the addresses of this name.
    pub fn may_resolve(&self, name: &HostName) -> Result<(), Denial> {
        let denial = |reason| Denial { reason, wanted: name.to_string() };
        if self.deny.iter().any(|rule| rule.ports == Ports::Every && rule.matches_name(name)) {
            return Err(denial(Reason::DeniedByRule));
        }
        if !self.allow.iter().any(|rule| rule.matches_name(name)) {
            return Err(denial(Reason::NameNotAllowed));
        }
        Ok(())
    }

    /// Whether some port of an address may be reached under this name. An address for which that is not so need not be told to
    /// the sandbox. `target.port` does not count.
    pub fn may_reach(&self, target: &Target<'_>) -> Result<(), Denial> {
        let mut first = None;
        // Few rules are for one name.
        for rule in self.allow.iter().filter(|rule| target.names.iter().any(|name| rule.matches_name(name))) {
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
            Access::ByAddress if self.deny.is_empty() => Opening::Free,
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
                // A rule that lists the port allows it.
                Access::Named | Access::Unnamed => {
                    Err(Denial { reason: spoken.missing(), wanted: target.wanted(Some(target.port)) })
                }
            };
        };
        // By address, this is the same verdict again, unless a deny rule is about the name.
        let named = Target { names: std::slice::from_ref(name), ..*target };
        match self.access(&named) {
            Ok(_) => Ok(()),
            Err(denial) if denial.reason == Reason::DeniedByRule => Err(denial),
            Err(denial) => Err(Denial { reason: spoken.not_allowed(), ..denial }),
        }
    }

    fn access(&self, target: &Target<'_>) -> Result<Access, Denial> {
        self.judge(target).map_err(|reason| Denial { reason, wanted: target.wanted(target.port_unless_web()) })
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
