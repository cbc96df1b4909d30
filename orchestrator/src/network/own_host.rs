//! Which addresses are this host's own, and where the daemon itself listens. Sandboxes must not reach the daemon, and reach other
//! services of the host only by a rule that says so.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long the list of addresses is used before the kernel is asked again.
const MAX_AGE: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub struct OwnHost {
    /// The ports on which the daemon listens.
    daemon_ports: HashSet<u16>,
    addresses: Mutex<Option<(Instant, HashSet<IpAddr>)>>,
}

impl OwnHost {
    pub fn new(daemon_ports: impl IntoIterator<Item = u16>) -> Self {
        Self { daemon_ports: daemon_ports.into_iter().collect(), addresses: Mutex::default() }
    }

    /// Whether an interface of this host has the address. If the kernel does not tell, every address counts as its own.
    pub fn has(&self, address: IpAddr) -> bool {
        let mut known = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        if known.as_ref().is_none_or(|(at, _)| at.elapsed() > MAX_AGE) {
            *known = list().ok().map(|addresses| (Instant::now(), addresses));
        }
        let carried = network_policy::carried(address).map(IpAddr::V4);
        known.as_ref().is_none_or(|(_, addresses)| {
            addresses.contains(&network_policy::canonical(address)) || carried.is_some_and(|v4| addresses.contains(&v4))
        })
    }

    pub fn is_daemon_port(&self, port: u16) -> bool {
        self.daemon_ports.contains(&port)
    }
}

fn list() -> nix::Result<HashSet<IpAddr>> {
    let addresses = nix::ifaddrs::getifaddrs()?.filter_map(|interface| {
        let address = interface.address?;
        let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
        v4.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))
    });
    Ok(addresses.map(network_policy::canonical).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_this_hosts_own_in_every_form() {
        let host = OwnHost::new([8080]);
        for own in ["127.0.0.1", "::ffff:127.0.0.1", "64:ff9b::127.0.0.1"] {
            assert!(host.has(own.parse().unwrap()), "{own}");
        }
        assert!(!host.has("203.0.113.7".parse().unwrap()));
        assert!(host.is_daemon_port(8080) && !host.is_daemon_port(8081));
    }
}
