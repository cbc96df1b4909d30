//! A host and a port as HTTP and proxies write them: `example.com:8080`, `203.0.113.9`, `[2001:db8::1]:443`.
//!
//! It refuses what programs read in different ways: user names, escapes, and names that end in a number (`127.1`, `0x7f.1`),
//! which some resolvers take for an address.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::Malformed;

/// The longest host name of DNS, as text.
const MAX_HOST_BYTES: usize = 253;
const MAX_PORT_DIGITS: usize = 5;

/// A name as it was sent, or an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostOrAddress {
    /// Letters, digits, `-`, `_` and `.`, in the case that was sent and perhaps with a dot at the end.
    Name(String),
    Address(IpAddr),
}

/// A host, and the port if there is one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authority {
    pub host: HostOrAddress,
    pub port: Option<u16>,
}

impl HostOrAddress {
    /// Reads a name or an address without brackets.
    pub(crate) fn parse(text: &[u8]) -> Result<Self, Malformed> {
        let is_allowed = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        let text = match std::str::from_utf8(text) {
            Ok(text) if text.len() <= MAX_HOST_BYTES && text.bytes().all(|byte| is_allowed(&byte)) => text,
            _ => return Err(Malformed("the host is not a host name")),
        };
        if let Ok(address) = text.parse::<Ipv4Addr>() {
            return Ok(Self::Address(address.into()));
        }
        let labels = text.strip_suffix('.').unwrap_or(text);
        if labels.split('.').any(str::is_empty) {
            return Err(Malformed("the host has an empty part"));
        }
        let last = labels.rsplit('.').next().unwrap_or_default();
        if last.bytes().all(|byte| byte.is_ascii_digit()) || last.starts_with("0x") || last.starts_with("0X") {
            return Err(Malformed("the host ends in a number and is not an address"));
        }
        Ok(Self::Name(text.to_owned()))
    }

    /// Whether both mean the same host: names in any case, with or without the dot at the end.
    pub(crate) fn agrees_with(&self, other: &Self) -> bool {
        let bare = |name: &str| name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        match (self, other) {
            (Self::Name(one), Self::Name(two)) => bare(one) == bare(two),
            (one, two) => one == two,
        }
    }
}

impl Authority {
    pub(crate) fn parse(text: &[u8]) -> Result<Self, Malformed> {
        if let Some(rest) = text.strip_prefix(b"[") {
            let end = rest.iter().position(|&byte| byte == b']').ok_or(Malformed("the host has a [ without a ]"))?;
            let (address, after) = rest.split_at(end);
            let address = std::str::from_utf8(address).ok().and_then(|text| text.parse::<Ipv6Addr>().ok());
            let address = address.ok_or(Malformed("the host in brackets is not an IPv6 address"))?;
            let port = match after {
                b"]" => None,
                [b']', b':', digits @ ..] => Some(port(digits)?),
                _ => return Err(Malformed("there is text after the host")),
            };
            return Ok(Self { host: HostOrAddress::Address(address.into()), port });
        }
        let (host, port) = match text.iter().position(|&byte| byte == b':') {
            Some(colon) => {
                let (host, digits) = text.split_at(colon);
                (host, Some(port(digits.get(1..).unwrap_or_default())?))
            }
            None => (text, None),
        };
        Ok(Self { host: HostOrAddress::parse(host)?, port })
    }
}

fn port(digits: &[u8]) -> Result<u16, Malformed> {
    let is_number = (1..=MAX_PORT_DIGITS).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit);
    let number = std::str::from_utf8(digits).ok().filter(|_| is_number).and_then(|text| text.parse().ok());
    number.filter(|&port| port != 0).ok_or(Malformed("the port is not a number from 1 to 65535"))
}

/// As in a URL: an IPv6 address has brackets.
impl fmt::Display for HostOrAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
            Self::Address(address) => write!(f, "{address}"),
        }
    }
}

impl fmt::Display for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            Some(port) => write!(f, "{}:{port}", self.host),
            None => write!(f, "{}", self.host),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_addresses_and_ports_are_read() {
        for text in [
            "example.com",
            "Example.COM.:8080",
            "localhost:1",
            "203.0.113.9:65535",
            "[2001:db8::1]",
            "[::1]:443",
            "a_b.c",
        ] {
            assert_eq!(Authority::parse(text.as_bytes()).unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_programs_read_in_different_ways_is_refused() {
        let ambiguous = [
            "",
            ".",
            "a..b",
            ".a",
            "127.1",
            "0x7f.0.0.1",
            "1.2.3.0x4",
            "2130706433",
            "1.2.3.4.",
            "user@host",
            "a b",
            "a%2eb",
        ];
        let broken = [
            "a:",
            "a:0",
            "a:65536",
            "a:+1",
            "a:1:2",
            "::1",
            "[::1",
            "[::1]x",
            "[1.2.3.4]",
            "[fe80::1%eth0]",
            "a/b",
            "a\\b",
            "ä.com",
        ];
        for text in ambiguous.into_iter().chain(broken) {
            assert!(Authority::parse(text.as_bytes()).is_err(), "{text}");
        }
        assert!(HostOrAddress::parse("a".repeat(254).as_bytes()).is_err());
    }

    #[test]
    fn names_agree_in_any_case_and_with_a_dot_at_the_end() {
        let host = |text: &str| HostOrAddress::parse(text.as_bytes()).unwrap();
        assert!(host("Example.com.").agrees_with(&host("eXample.COM")));
        assert!(!host("example.com").agrees_with(&host("www.example.com")));
        assert!(!host("203.0.113.9").agrees_with(&host("203.0.113.8")));
    }
}
