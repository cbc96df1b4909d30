//! The class of an address: public, or one of the kinds that lead back to this host, to its cloud or to its neighbours.
//!
//! An IPv6 address can carry an IPv4 address (mapped, NAT64, 6to4, …), and a router on the way takes it out again. Such an
//! address is at least as restricted as the one that it carries.
//!
//! A NAT64 prefix that a network chose for itself looks like any public address, so it is not known here: an operator who has one
//! adds a deny rule for the private part of it.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::network::Network;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AddressClass {
    Public,
    Private,
    /// Including the unspecified addresses: the kernel connects `0.0.0.0` to this host.
    Loopback,
    LinkLocal,
    /// Where a cloud hands out credentials to whoever asks from inside a machine.
    Metadata,
    /// Including broadcast and reserved addresses.
    Multicast,
}

impl AddressClass {
    /// Whether no rule can allow addresses of this class.
    pub fn is_never_allowed(self) -> bool {
        !matches!(self, Self::Public | Self::Private)
    }
}

impl fmt::Display for AddressClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Public => "public",
            Self::Private => "private",
            Self::Loopback => "loopback",
            Self::LinkLocal => "link-local",
            Self::Metadata => "metadata",
            Self::Multicast => "multicast or reserved",
        })
    }
}

use AddressClass::{LinkLocal, Loopback, Metadata, Multicast, Private, Public};

/// The first range that contains an address has its class. Ranges that are never allowed come first.
const RANGES: &[(Network, AddressClass)] = &[
    // Metadata services: AWS, Google, Azure and most others; Azure's host agent; Alibaba; Oracle's first one.
    (Network::v4([169, 254, 169, 254], 32), Metadata),
    (Network::v4([168, 63, 129, 16], 32), Metadata),
    (Network::v4([100, 100, 100, 200], 32), Metadata),
    (Network::v4([192, 0, 0, 192], 32), Metadata),
    // The same over IPv6: AWS, credentials of pods on EKS, Google, Oracle, Scaleway.
    (Network::v6([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254], 128), Metadata),
    (Network::v6([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23], 128), Metadata),
    (Network::v6([0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254], 128), Metadata),
    (Network::v6([0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe], 128), Metadata),
    (Network::v6([0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42], 128), Metadata),
    (Network::v4([0, 0, 0, 0], 8), Loopback),
    (Network::v4([127, 0, 0, 0], 8), Loopback),
    (Network::v6([0, 0, 0, 0, 0, 0, 0, 0], 127), Loopback),
    (Network::v4([169, 254, 0, 0], 16), LinkLocal),
    (Network::v6([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10), LinkLocal),
    // Multicast (224/4), reserved (240/4) and broadcast.
    (Network::v4([224, 0, 0, 0], 3), Multicast),
    (Network::v6([0xff00, 0, 0, 0, 0, 0, 0, 0], 8), Multicast),
    (Network::v4([10, 0, 0, 0], 8), Private),
    (Network::v4([172, 16, 0, 0], 12), Private),
    (Network::v4([192, 168, 0, 0], 16), Private),
    // Carrier-grade NAT, which VPNs use too; protocol assignments; benchmarks.
    (Network::v4([100, 64, 0, 0], 10), Private),
    (Network::v4([192, 0, 0, 0], 24), Private),
    (Network::v4([198, 18, 0, 0], 15), Private),
    // Teredo, and the IPv6 range for benchmarks.
    (Network::v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 32), Private),
    (Network::v6([0x2001, 2, 0, 0, 0, 0, 0, 0], 48), Private),
    (NAT64, Public),
    (COMPATIBLE, Public),
    (Network::v4([0, 0, 0, 0], 0), Public),
    // Global unicast. The rest of IPv6 is private (fc00::/7, fec0::/10, 64:ff9b:1::/48) or not given to anybody.
    (Network::v6([0x2000, 0, 0, 0, 0, 0, 0, 0], 3), Public),
    (Network::v6([0, 0, 0, 0, 0, 0, 0, 0], 0), Private),
];

const NAT64: Network = Network::v6([0x64, 0xff9b, 0, 0, 0, 0, 0, 0], 96);
const COMPATIBLE: Network = Network::v6([0, 0, 0, 0, 0, 0, 0, 0], 96);

/// Ranges of IPv6 addresses that carry an IPv4 address, and the bit where it begins.
const CARRIERS: &[(Network, u8)] = &[
    (NAT64, 96),
    (COMPATIBLE, 96),
    // NAT64 of one network. It may also use a shorter prefix; this is the common one.
    (Network::v6([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48), 96),
    // Translated (SIIT).
    (Network::v6([0, 0, 0, 0, 0xffff, 0, 0, 0], 96), 96),
    // 6to4.
    (Network::v6([0x2002, 0, 0, 0, 0, 0, 0, 0], 16), 16),
];

/// The one form of an address: a mapped IPv4 address (`::ffff:203.0.113.7`) becomes an IPv4 address.
pub fn canonical(address: IpAddr) -> IpAddr {
    address.to_canonical()
}

pub fn classify(address: IpAddr) -> AddressClass {
    let address = canonical(address);
    let own = own_class(address);
    match carried(address).map(|inner| own_class(inner.into())) {
        Some(inner) if inner != Public && !own.is_never_allowed() => inner,
        _ => own,
    }
}

/// The IPv4 address that an IPv6 address carries, except for a mapped one. A caller that compares addresses, with those of this
/// host for example, compares this one too.
pub fn carried(address: IpAddr) -> Option<Ipv4Addr> {
    let IpAddr::V6(v6) = canonical(address) else { return None };
    let start = CARRIERS.iter().find(|(range, _)| range.contains(address)).map(|&(_, start)| start);
    start.or(is_isatap(v6).then_some(96)).map(|start| ipv4_at(v6, start))
}

/// Whether no rule can allow any address of this network.
pub(crate) fn is_never_allowed(network: &Network) -> Option<AddressClass> {
    let class_of = |network: &Network| {
        RANGES.iter().find(|(range, class)| class.is_never_allowed() && range.covers(network)).map(|&(_, class)| class)
    };
    class_of(network).or_else(|| class_of(&carried_network(network)?))
}

/// Whether some address of this network may be other than public. Ranges in which only few are count as a whole.
pub(crate) fn has_private(network: &Network) -> bool {
    let network = &carried_network(network).unwrap_or(*network);
    let is_carrier = CARRIERS.iter().any(|(range, _)| range.overlaps(network));
    is_carrier
        || RANGES.iter().any(|(range, class)| *class == Private && range.prefix() > 0 && range.overlaps(network))
        || !RANGES.iter().any(|(range, class)| *class == Public && range.covers(network))
}

/// The IPv4 network that an IPv6 network carries, if all of its addresses carry one of the same kind.
fn carried_network(network: &Network) -> Option<Network> {
    let IpAddr::V6(address) = network.address() else { return None };
    let &(_, start) = CARRIERS.iter().find(|(range, start)| range.covers(network) && *start <= network.prefix())?;
    Network::new(ipv4_at(address, start).into(), (network.prefix() - start).min(32)).ok()
}

fn own_class(address: IpAddr) -> AddressClass {
    // The last ranges contain every address.
    RANGES.iter().find(|(range, _)| range.contains(address)).map_or(Private, |&(_, class)| class)
}

/// An interface identifier `0:5efe:a.b.c.d` or `200:5efe:a.b.c.d`, below any prefix.
fn is_isatap(address: Ipv6Addr) -> bool {
    matches!(address.segments(), [_, _, _, _, 0 | 0x200, 0x5efe, _, _])
}

fn ipv4_at(address: Ipv6Addr, start: u8) -> Ipv4Addr {
    let [.., a, b, c, d] = (address.to_bits() >> (96 - u32::from(start))).to_be_bytes();
    Ipv4Addr::new(a, b, c, d)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_the_class_of_the_table() {
        for (class, addresses) in [
            (
                Public,
                "1.1.1.1 8.8.8.8 100.63.255.255 100.128.0.0 172.15.255.255 172.32.0.0 192.0.1.0 192.0.2.1 198.51.100.1 203.0.113.7 \
                 223.255.255.255 168.63.129.15 2001:db8::1 2606:4700::1111 2001:1::1 ::ffff:8.8.8.8 64:ff9b::8.8.8.8 2002:808:808::1 \
                 ::8.8.8.8 2606::5efe:8.8.8.8 2606::5eff:127.0.0.1",
            ),
            (
                Loopback,
                "127.0.0.1 127.255.255.255 0.0.0.0 0.1.2.3 ::1 :: ::ffff:127.0.0.1 ::127.0.0.1 64:ff9b::127.0.0.1 64:ff9b:1::127.0.0.1 \
                 2002:7f00:1:: 2606::5efe:127.0.0.1 2606::200:5efe:7f00:1 fd00::5efe:127.0.0.1 ::ffff:0:127.0.0.1",
            ),
            (
                LinkLocal,
                "169.254.0.1 169.254.170.2 fe80::1 febf::1 fe80::5efe:127.0.0.1 ::ffff:169.254.1.1 2002:a9fe:1::",
            ),
            (
                Metadata,
                "169.254.169.254 168.63.129.16 100.100.100.200 192.0.0.192 fd00:ec2::254 fd20:ce::254 ::ffff:169.254.169.254 \
                 ::169.254.169.254 64:ff9b::a9fe:a9fe 2002:a9fe:a9fe::1 64:ff9b:1:2::a9fe:a9fe",
            ),
            (
                Private,
                "10.0.0.1 172.16.0.1 172.31.255.255 192.168.1.1 100.64.0.1 100.127.255.255 192.0.0.1 198.18.0.1 198.19.255.255 fc00::1 \
                 fdff::1 fec0::1 2001::1 2001:0:1::5 2001:2::1 64:ff9b::10.0.0.1 64:ff9b:1::8.8.8.8 2002:a00:1:: ::10.0.0.1 4000::1 100::1 \
                 ::ffff:192.168.0.1 fd00:ec2::253",
            ),
            (Multicast, "224.0.0.1 239.255.255.255 240.0.0.1 255.255.255.255 ff02::1 ff0e::1 64:ff9b::224.0.0.1"),
        ] {
            for text in addresses.split_whitespace() {
                assert_eq!(classify(text.parse().unwrap()), class, "{text}");
            }
        }
    }

    #[test]
    fn a_network_is_never_allowed_if_none_of_its_addresses_is() {
        for (address, prefix, is_never) in [
            ("127.0.0.0", 8, true),
            ("127.1.0.0", 16, true),
            ("126.0.0.0", 7, false),
            ("169.254.169.254", 32, true),
            ("224.0.0.0", 3, true),
            ("192.0.0.0", 3, false),
            ("::", 127, true),
            ("::", 96, false),
            ("fe80::", 64, true),
            ("64:ff9b::7f00:0", 104, true),
            ("64:ff9b::", 96, false),
            ("2002:7f00::", 24, true),
            ("2002:7f00:1:2::", 64, true),
            ("0.0.0.0", 0, false),
            ("10.0.0.0", 8, false),
        ] {
            let network = Network::new(address.parse().unwrap(), prefix).unwrap();
            assert_eq!(is_never_allowed(&network).is_some(), is_never, "{network}");
        }
    }

    #[test]
    fn a_network_has_private_addresses_if_it_overlaps_such_a_range() {
        for (address, prefix, has) in [
            ("10.0.0.0", 24, true),
            ("0.0.0.0", 0, true),
            ("203.0.113.0", 24, false),
            ("192.0.0.0", 16, true),
            ("2001:db8::", 32, false),
            ("2000::", 3, true),
            ("::", 0, true),
            ("fd00::", 8, true),
            ("2002::", 16, true),
            ("2002:a00::", 24, true),
            ("64:ff9b::808:0", 112, false),
        ] {
            let network = Network::new(address.parse().unwrap(), prefix).unwrap();
            assert_eq!(has_private(&network), has, "{network}");
        }
    }
}
