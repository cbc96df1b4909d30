//! `Network`, a range of addresses such as `203.0.113.0/24`. A single address is a range of one.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::address::canonical;

/// How many bits of an IPv6 address come before the IPv4 address that it maps.
const MAPPED_BITS: u8 = 96;

/// All addresses that begin with the same `prefix` bits. The other bits of `address` are zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Network {
    address: IpAddr,
    prefix: u8,
}

/// An address and a prefix length that are not a network.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NetworkError {
    #[error("a prefix length of this network is a number from 0 to {most}")]
    Prefix { most: u8 },
    #[error(
        "bits after the prefix are set: write {meant} for the network, or leave out the prefix for the address alone"
    )]
    HostBits { meant: Network },
}

impl Network {
    /// A network of addresses of the same kind: a range of mapped IPv4 addresses becomes one of IPv4 addresses.
    pub fn new(address: IpAddr, prefix: u8) -> Result<Self, NetworkError> {
        let most = bits_of(address);
        if prefix > most {
            return Err(NetworkError::Prefix { most });
        }
        let (canonical, prefix) = match canonical(address) {
            v4 @ IpAddr::V4(_) if address.is_ipv6() && prefix >= MAPPED_BITS => (v4, prefix - MAPPED_BITS),
            _ => (address, prefix),
        };
        let meant = Self { address: masked(canonical, prefix), prefix };
        if meant.address == canonical { Ok(meant) } else { Err(NetworkError::HostBits { meant }) }
    }

    pub fn of_one(address: IpAddr) -> Self {
        let address = canonical(address);
        Self { address, prefix: bits_of(address) }
    }

    pub(crate) const fn v4(address: [u8; 4], prefix: u8) -> Self {
        let [a, b, c, d] = address;
        Self { address: IpAddr::V4(Ipv4Addr::new(a, b, c, d)), prefix }
    }

    pub(crate) const fn v6(address: [u16; 8], prefix: u8) -> Self {
        let [a, b, c, d, e, f, g, h] = address;
        Self { address: IpAddr::V6(Ipv6Addr::new(a, b, c, d, e, f, g, h)), prefix }
    }

    /// The first address.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    pub fn prefix(&self) -> u8 {
        self.prefix
    }

    pub fn contains(&self, address: IpAddr) -> bool {
        let address = canonical(address);
        self.address.is_ipv4() == address.is_ipv4() && masked(address, self.prefix) == self.address
    }

    pub fn covers(&self, other: &Network) -> bool {
        self.prefix <= other.prefix && self.contains(other.address)
    }

    pub fn overlaps(&self, other: &Network) -> bool {
        self.covers(other) || other.covers(self)
    }

    pub(crate) fn is_of_one(&self) -> bool {
        self.prefix == bits_of(self.address)
    }
}

/// In brackets if it is IPv6, and without the prefix if it is a single address: a port can follow.
impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            IpAddr::V4(address) => write!(f, "{address}")?,
            IpAddr::V6(address) => write!(f, "[{address}]")?,
        }
        if self.is_of_one() { Ok(()) } else { write!(f, "/{}", self.prefix) }
    }
}

fn bits_of(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn masked(address: IpAddr, prefix: u8) -> IpAddr {
    let prefix = u32::from(prefix);
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(u32::BITS.saturating_sub(prefix)).unwrap_or(0);
            Ipv4Addr::from_bits(address.to_bits() & mask).into()
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(u128::BITS.saturating_sub(prefix)).unwrap_or(0);
            Ipv6Addr::from_bits(address.to_bits() & mask).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn network(text: &str, prefix: u8) -> Network {
        Network::new(ip(text), prefix).unwrap()
    }

    #[test]
    fn a_network_contains_the_addresses_that_begin_like_it() {
        let net = network("203.0.113.0", 25);
        assert!(net.contains(ip("203.0.113.127")) && net.contains(ip("::ffff:203.0.113.0")));
        assert!(!net.contains(ip("203.0.113.128")) && !net.contains(ip("::203.0.113.0")));
        assert!(network("0.0.0.0", 0).contains(ip("255.255.255.255")));
        assert!(!network("0.0.0.0", 0).contains(ip("::")));
        assert!(network("::", 0).contains(ip("ffff::")));
        assert!(!network("::", 0).contains(ip("::ffff:203.0.113.7")), "a mapped address is an IPv4 address");
        assert!(network("2001:db8::1", 128).contains(ip("2001:db8::1")));
    }

    #[test]
    fn set_host_bits_are_an_error_that_names_the_network() {
        let error = Network::new(ip("203.0.113.7"), 24).unwrap_err();
        assert!(error.to_string().contains("203.0.113.0/24"), "{error}");
        assert_eq!(Network::new(ip("203.0.113.7"), 33), Err(NetworkError::Prefix { most: 32 }));
        assert_eq!(Network::new(ip("::ffff:203.0.113.0"), 120), Ok(network("203.0.113.0", 24)));
        assert!(Network::new(ip("::ffff:203.0.113.0"), 90).is_err());
    }

    #[test]
    fn networks_cover_and_overlap() {
        let (wide, narrow, other) = (network("10.0.0.0", 8), network("10.1.0.0", 16), network("11.0.0.0", 8));
        assert!(wide.covers(&narrow) && !narrow.covers(&wide) && wide.covers(&wide));
        assert!(narrow.overlaps(&wide) && wide.overlaps(&narrow) && !wide.overlaps(&other));
    }
}
