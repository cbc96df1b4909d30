//! `Rule`, one line of an allowlist or a denylist: a host or a network, and its ports. `rule_text` reads and writes it.
//!
//! | text | allows | denies |
//! |---|---|---|
//! | `example.com` | ports 80 and 443 of this name | every port of it |
//! | `example.com:22` | this port | this port |
//! | `*.example.com` | names below it, at any depth; not `example.com` itself | the same, every port |
//! | `203.0.113.0/24:5432`, `[2001:db8::]/32:443` | addresses, private ones too | the same |
//! | `*`, `*:443` | public addresses that are not this host's | every address and name |

use std::net::IpAddr;

use crate::address::{self, AddressClass, carried};
use crate::name::{HostName, NameError};
use crate::network::{Network, NetworkError};

/// The longest text of a rule: a name, a port, and some room.
pub const MAX_RULE_BYTES: usize = 300;
/// The most ports in one rule.
pub const MAX_PORTS: usize = 64;
/// What an allow rule without a port means.
pub(crate) const WEB_PORTS: [u16; 2] = [80, 443];

/// The list that a rule is for. The same text means fewer ports in an allow rule than in a deny rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    Allow,
    Deny,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Rule {
    pub(crate) host: HostPattern,
    pub(crate) ports: Ports,
    pub(crate) is_private: bool,
    pub(crate) side: Side,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum HostPattern {
    /// `*`
    Everything,
    /// `example.com`
    Name(HostName),
    /// `*.example.com`, without the `*.`.
    Below(HostName),
    Network(Network),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Ports {
    Every,
    /// `WEB_PORTS`, because the rule names none. What is spoken there must say which name it is for.
    Web,
    /// Sorted, each once.
    Listed(Vec<u16>),
}

/// A rule that is refused. The text says what to write instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    #[error("the rule is empty: write a host such as example.com, or * for every public address")]
    Empty,
    #[error("the rule is longer than {MAX_RULE_BYTES} bytes")]
    TooLong,
    #[error("the rule contains a space or a control character: write one host in each rule")]
    Space,
    #[error("this is a URL, and a rule is for a host{}", .host.as_deref().map(|host| format!(": write {host}")).unwrap_or_default())]
    Url { host: Option<String> },
    #[error(
        "a * stands for whole labels at the beginning: write *.example.com for all names below it, or * for everything"
    )]
    Wildcard,
    #[error("a port is a number from 1 to 65535: write example.com:443")]
    Port,
    #[error("a rule in text form has one port: write a rule for each port, or give host and ports apart")]
    SeveralPorts,
    #[error("the host contains a port: write it under ports")]
    PortInHost,
    #[error("a rule has at most {MAX_PORTS} ports")]
    TooManyPorts,
    #[error("write an IPv6 address with a port as [2001:db8::1]:443, a network as [2001:db8::]/32:443")]
    Brackets,
    #[error("the last part can be a port or a part of the address: write {with_port} or {without_port}")]
    Ambiguous { with_port: String, without_port: String },
    #[error(transparent)]
    Name(#[from] NameError),
    #[error(transparent)]
    Network(#[from] NetworkError),
    #[error("{network} has only {class} addresses, which no rule can allow")]
    NeverAllowed { network: Network, class: AddressClass },
    #[error(
        "private is for a name: a rule for a network allows its private addresses already, and * is for public ones"
    )]
    PrivateNetwork,
    #[error("private is for allow rules: a deny rule covers private addresses already")]
    PrivateDeny,
}

impl Rule {
    /// Reads a rule in text form, such as `example.com:22`.
    pub fn parse(text: &str, side: Side) -> Result<Self, RuleError> {
        let (host, port) = crate::rule_text::read(text)?;
        Self::new(host, port.as_slice(), false, side)
    }

    /// Makes a rule from a host without a port and a list of ports. No ports mean the same as in `parse`. A private rule allows
    /// its name at private addresses and at those of this host.
    pub fn from_parts(host: &str, ports: &[u16], is_private: bool, side: Side) -> Result<Self, RuleError> {
        let (host, None) = crate::rule_text::read(host)? else { return Err(RuleError::PortInHost) };
        Self::new(host, ports, is_private, side)
    }

    /// Allows every public address.
    pub(crate) fn everything() -> Self {
        Self { host: HostPattern::Everything, ports: Ports::Every, is_private: false, side: Side::Allow }
    }

    fn new(host: HostPattern, ports: &[u16], is_private: bool, side: Side) -> Result<Self, RuleError> {
        match (&host, side) {
            (_, Side::Deny) if is_private => return Err(RuleError::PrivateDeny),
            (HostPattern::Network(_) | HostPattern::Everything, _) if is_private => {
                return Err(RuleError::PrivateNetwork);
            }
            // In a denylist such a network is superfluous, but it is not a mistake.
            (HostPattern::Network(network), Side::Allow) => {
                if let Some(class) = address::is_never_allowed(network) {
                    return Err(RuleError::NeverAllowed { network: *network, class });
                }
            }
            _ => {}
        }
        let ports = match (ports, &host, side) {
            ([], HostPattern::Everything, _) | ([], _, Side::Deny) => Ports::Every,
            ([], _, Side::Allow) => Ports::Web,
            _ => Ports::listed(ports)?,
        };
        Ok(Self { host, ports, is_private, side })
    }

    pub fn side(&self) -> Side {
        self.side
    }

    pub(crate) fn is_deny(&self) -> bool {
        self.side == Side::Deny
    }

    /// The host without ports: a name, `*.` and a name, a network, or `*`.
    pub fn host(&self) -> String {
        Self {
            ports: if self.side == Side::Deny { Ports::Every } else { Ports::Web },
            is_private: false,
            ..self.clone()
        }
        .to_string()
    }

    /// The ports that the rule lists. Empty if it lists none.
    pub fn listed_ports(&self) -> &[u16] {
        match &self.ports {
            Ports::Listed(ports) => ports,
            Ports::Every | Ports::Web => &[],
        }
    }

    /// Whether the rule is for names that may have private addresses.
    pub fn is_private(&self) -> bool {
        self.is_private
    }

    /// Whether this rule can allow an address that is not public. A caller may reserve such rules for administrators.
    ///
    /// A network of public addresses can contain one of this host: the rule does not know them.
    pub fn may_reach_private(&self) -> bool {
        let has_private = matches!(&self.host, HostPattern::Network(network) if address::has_private(network));
        self.side == Side::Allow && (self.is_private || has_private)
    }

    pub(crate) fn matches_name(&self, name: &HostName) -> bool {
        match &self.host {
            HostPattern::Everything => true,
            HostPattern::Name(host) => host == name,
            HostPattern::Below(parent) => name.is_below(parent),
            HostPattern::Network(_) => false,
        }
    }

    /// Whether a deny rule is about this address. An IPv4 address is denied inside of an IPv6 address too.
    pub(crate) fn denies_address(&self, address: IpAddr) -> bool {
        match &self.host {
            HostPattern::Everything => true,
            HostPattern::Network(network) => {
                network.contains(address) || carried(address).is_some_and(|inner| network.contains(inner.into()))
            }
            HostPattern::Name(_) | HostPattern::Below(_) => false,
        }
    }
}

impl Ports {
    /// Ports that it contains: all of them, or the usual ones of every port.
    pub(crate) fn examples(&self) -> Vec<u16> {
        match self {
            Self::Every | Self::Web => WEB_PORTS.to_vec(),
            Self::Listed(ports) => ports.clone(),
        }
    }

    fn listed(ports: &[u16]) -> Result<Self, RuleError> {
        let mut ports = ports.to_vec();
        ports.sort_unstable();
        ports.dedup();
        match ports.first() {
            Some(0) => Err(RuleError::Port),
            _ if ports.len() > MAX_PORTS => Err(RuleError::TooManyPorts),
            _ => Ok(Self::Listed(ports)),
        }
    }

    pub(crate) fn contains(&self, port: u16) -> bool {
        match self {
            Self::Every => true,
            Self::Web => WEB_PORTS.contains(&port),
            Self::Listed(ports) => ports.binary_search(&port).is_ok(),
        }
    }
}
