//! Which addresses are private: those that a company's mirror has, and that a sandbox reaches only by a rule that says so.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Where a host is, seen from this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// At least one address is public, or the name does not resolve here.
    Public,
    /// All addresses are private.
    Private,
    /// All addresses are this machine's own or link-local. No rule lets a sandbox reach them.
    Unreachable,
}

/// The place of a host with these addresses.
pub fn place_of(addresses: &[IpAddr]) -> Place {
    match addresses {
        [] => Place::Public,
        all if all.iter().all(is_unreachable) => Place::Unreachable,
        all if all.iter().all(is_private) => Place::Private,
        _ => Place::Public,
    }
}

fn is_private(address: &IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => v4.is_private() || is_shared(v4),
        IpAddr::V6(v6) => v6.is_unique_local(),
    }
}

fn is_unreachable(address: &IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => v4.is_loopback() || v4.is_link_local() || v4.is_unspecified(),
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unspecified() || is_link_local(v6),
    }
}

/// 100.64.0.0/10, the addresses of carriers and of overlay networks.
fn is_shared(address: Ipv4Addr) -> bool {
    let [first, second, ..] = address.octets();
    first == 100 && second & 0b1100_0000 == 64
}

fn is_link_local(address: Ipv6Addr) -> bool {
    address.segments()[0] & 0xffc0 == 0xfe80
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(addresses: &[&str]) -> Place {
        place_of(&addresses.iter().map(|a| a.parse().unwrap()).collect::<Vec<_>>())
    }

    #[test]
    fn a_host_is_private_only_if_all_its_addresses_are() {
        assert_eq!(place(&["10.0.0.1", "192.168.1.1", "172.16.0.9", "100.64.0.1", "fd00::1"]), Place::Private);
        assert_eq!(place(&["10.0.0.1", "203.0.113.9"]), Place::Public);
        assert_eq!(place(&["100.128.0.1"]), Place::Public);
        assert_eq!(place(&["::ffff:10.0.0.1"]), Place::Private);
        assert_eq!(place(&[]), Place::Public);
    }

    #[test]
    fn loopback_link_local_and_metadata_addresses_are_never_private() {
        for address in ["127.0.0.1", "::1", "169.254.169.254", "fe80::1", "0.0.0.0", "::ffff:127.0.0.1"] {
            assert_eq!(place(&[address]), Place::Unreachable, "{address}");
        }
        assert_eq!(place(&["127.0.0.1", "10.0.0.1"]), Place::Public);
    }
}
