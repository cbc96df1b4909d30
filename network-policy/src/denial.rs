//! `Denial`, why something was not allowed and which rule would allow it.

use std::fmt;

/// What was not allowed. It reaches API clients: the codes are stable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{wanted}: {reason}")]
pub struct Denial {
    pub reason: Reason,
    /// The text of a rule that would allow it, if any rule can: `example.com:8443`, `203.0.113.7:5432`.
    pub wanted: String,
}

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident $code:literal $sentence:literal)*) => {
        /// Why something was denied. The carrier uses the last ones for what it finds out itself.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Reason {
            $($(#[$doc])* $name,)*
        }

        impl Reason {
            pub const ALL: &[Reason] = &[$(Reason::$name,)*];

            /// The stable code, in snake case.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $code,)*
                }
            }

            fn sentence(self) -> &'static str {
                match self {
                    $(Self::$name => $sentence,)*
                }
            }
        }
    };
}

reasons! {
    NameNotAllowed "name_not_allowed" "no rule allows this name"
    AddressNotAllowed "address_not_allowed" "no rule allows this address"
    PortNotAllowed "port_not_allowed" "a rule allows this host, but not this port"
    DeniedByRule "denied_by_rule" "a deny rule forbids it"
    /// The session's own rules may allow it.
    AboveMaximum "above_maximum" "the operator's maximum for this session does not allow it"
    PrivateAddress "private_address" "this address is private, and no rule names it or is marked private"
    LoopbackAddress "loopback_address" "loopback addresses are never allowed"
    LinkLocalAddress "link_local_address" "link-local addresses are never allowed"
    MetadataAddress "metadata_address" "cloud metadata services are never allowed"
    MulticastAddress "multicast_address" "multicast, broadcast and reserved addresses are never allowed"
    /// An address of this host, or the daemon itself.
    OwnAddress "own_address" "this address belongs to the host that runs the sandbox"
    ServerNameNotAllowed "server_name_not_allowed" "no rule allows the server name in the TLS handshake"
    ServerNameMissing "server_name_missing" "the TLS handshake names no server, and the rule is for a name"
    HostNotAllowed "host_not_allowed" "no rule allows the Host of the HTTP request"
    HostMissing "host_missing" "the HTTP request names no Host, and the rule is for a name"
    ProtocolNotAllowed "protocol_not_allowed" "only TLS and HTTP are allowed here, because the rule names no port"
    /// The carrier resolved the spoken name, and the address that was dialled is not among its addresses.
    UnknownName "unknown_name" "the address is not one of this name's addresses"
    ConnectionLimit "connection_limit" "the sandbox has too many connections"
    DaemonConnectionLimit "daemon_connection_limit" "all sandboxes together have too many connections"
    ByteLimit "byte_limit" "the sandbox has used up its traffic"
    Unreachable "unreachable" "the address cannot be reached from the host"
    PolicyChanged "policy_changed" "the network policy changed, and no longer allows this connection"
    DaemonRestarted "daemon_restarted" "the daemon was started again, which cut the connections that were open"
    NotUnderstood "not_understood" "the first bytes of the connection are malformed"
}

impl Reason {
    /// Whether some rule can allow what was denied. If not, `Denial::wanted` only says what it was.
    pub fn can_be_allowed(self) -> bool {
        matches!(
            self,
            Self::NameNotAllowed
                | Self::AddressNotAllowed
                | Self::PortNotAllowed
                | Self::PrivateAddress
                | Self::ServerNameNotAllowed
                | Self::ServerNameMissing
                | Self::HostNotAllowed
                | Self::HostMissing
                | Self::ProtocolNotAllowed
        )
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.sentence())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_and_in_snake_case() {
        let mut codes: Vec<&str> = Reason::ALL.iter().map(|reason| reason.as_str()).collect();
        assert!(codes.iter().all(|code| code.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')));
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), Reason::ALL.len());
        assert_eq!(codes.len(), 24);
    }

    #[test]
    fn a_denial_reads_as_a_sentence() {
        let denial = Denial { reason: Reason::PortNotAllowed, wanted: "example.com:22".to_owned() };
        assert_eq!(denial.to_string(), "example.com:22: a rule allows this host, but not this port");
    }
}
