//! The text of a rule: reads `host`, `host:port` and their variants, and writes them in canonical form.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::name::HostName;
use crate::network::{Network, NetworkError};
use crate::rule::{HostPattern, MAX_RULE_BYTES, Ports, Rule, RuleError};

/// Reads the host of a rule, and its port if it has one.
pub(crate) fn read(text: &str) -> Result<(HostPattern, Option<u16>), RuleError> {
    if text.is_empty() {
        return Err(RuleError::Empty);
    }
    if text.len() > MAX_RULE_BYTES {
        return Err(RuleError::TooLong);
    }
    if text.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err(RuleError::Space);
    }
    if let Some((_, rest)) = text.split_once("://") {
        return Err(RuleError::Url { host: host_of_url(rest) });
    }
    if let Some(rest) = text.strip_prefix('[') {
        return bracketed(rest);
    }
    if let Some((start, end)) = text.split_once('/') {
        let Ok(address) = start.parse::<IpAddr>() else { return Err(RuleError::Url { host: host_of_url(text) }) };
        let (prefix, port) = with_port(end)?;
        return Ok((network(address, prefix)?, port));
    }
    if let Ok(address) = text.parse::<Ipv6Addr>() {
        return unless_ambiguous(text, address);
    }
    let (host, port) = with_port(text)?;
    Ok((pattern(host)?, port))
}

/// The rest of `[2001:db8::1]`, `[2001:db8::1]:443` or `[2001:db8::]/32:443`, after the first bracket.
fn bracketed(rest: &str) -> Result<(HostPattern, Option<u16>), RuleError> {
    let (address, rest) = rest.split_once(']').ok_or(RuleError::Brackets)?;
    let address = IpAddr::V6(address.parse().map_err(|_| RuleError::Brackets)?);
    let (rest, port) = with_port(rest)?;
    let host = match rest.strip_prefix('/') {
        Some(prefix) => network(address, prefix)?,
        None if rest.is_empty() => HostPattern::Network(Network::of_one(address)),
        None => return Err(RuleError::Brackets),
    };
    Ok((host, port))
}

/// `2001:db8::1:443` is an address, but its author may have meant a port.
fn unless_ambiguous(text: &str, address: Ipv6Addr) -> Result<(HostPattern, Option<u16>), RuleError> {
    if let Some((start, end)) = text.rsplit_once(':')
        && let (Ok(start), Ok(port)) = (start.parse::<Ipv6Addr>(), end.parse::<u16>())
    {
        return Err(RuleError::Ambiguous {
            with_port: format!("[{start}]:{port}"),
            without_port: format!("[{address}]"),
        });
    }
    Ok((HostPattern::Network(Network::of_one(address.into())), None))
}

fn with_port(text: &str) -> Result<(&str, Option<u16>), RuleError> {
    let Some((host, port)) = text.split_once(':') else { return Ok((text, None)) };
    if port.contains(':') {
        return Err(RuleError::Brackets);
    }
    if port.contains([',', '-']) {
        return Err(RuleError::SeveralPorts);
    }
    Ok((host, Some(number(port).filter(|&port| port != 0).ok_or(RuleError::Port)?)))
}

fn network(address: IpAddr, prefix: &str) -> Result<HostPattern, RuleError> {
    let most = if address.is_ipv4() { 32 } else { 128 };
    let prefix = number(prefix).and_then(|prefix| u8::try_from(prefix).ok()).ok_or(NetworkError::Prefix { most })?;
    Ok(HostPattern::Network(Network::new(address, prefix)?))
}

fn pattern(host: &str) -> Result<HostPattern, RuleError> {
    if host == "*" {
        return Ok(HostPattern::Everything);
    }
    if let Ok(address) = host.parse::<Ipv4Addr>() {
        return Ok(HostPattern::Network(Network::of_one(address.into())));
    }
    let (name, below) = host.strip_prefix("*.").map_or((host, false), |parent| (parent, true));
    if name.contains('*') {
        return Err(RuleError::Wildcard);
    }
    let name = HostName::parse(name)?;
    Ok(if below { HostPattern::Below(name) } else { HostPattern::Name(name) })
}

/// Digits only: `parse` alone also takes a plus sign.
fn number(text: &str) -> Option<u16> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok())?
}

/// The host of a URL without its scheme, if it can stand in a rule.
fn host_of_url(rest: &str) -> Option<String> {
    let authority = rest.split(['/', '?', '#', '\\']).next()?;
    let host = authority.rsplit('@').next()?;
    let (pattern, port) = read(host).ok()?;
    Some(port.map_or_else(|| pattern.to_string(), |port| format!("{pattern}:{port}")))
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Everything => f.write_str("*"),
            Self::Name(name) => write!(f, "{name}"),
            Self::Below(name) => write!(f, "*.{name}"),
            Self::Network(network) => write!(f, "{network}"),
        }
    }
}

/// The text of a rule. `Rule::parse` reads it as the same rule, unless the rule has several ports or is private.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.host)?;
        if let Ports::Listed(ports) = &self.ports {
            let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
            write!(f, ":{}", ports.join(","))?;
        }
        if self.is_private { f.write_str(" (private)") } else { Ok(()) }
    }
}

#[cfg(test)]
#[path = "rule_test.rs"]
mod tests;
