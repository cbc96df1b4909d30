//! Counts what each client has open, so that no client takes everything: connections by where they come from, before anybody
//! knows whose they are, and requests in flight by key.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Where a connection comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Peer {
    Address(IpAddr),
    /// A process of this user, over the Unix socket.
    User(u32),
}

impl Peer {
    /// Its address, unless it came over the Unix socket.
    pub fn address(self) -> Option<IpAddr> {
        match self {
            Self::Address(address) => Some(address),
            Self::User(_) => None,
        }
    }

    /// What counts as one client. A host has a whole IPv6 network of 64 bits, so all addresses of one count together.
    pub fn client(self) -> Self {
        match self {
            Self::Address(IpAddr::V6(address)) => match address.to_ipv4_mapped() {
                Some(address) => Self::Address(address.into()),
                None => Self::Address(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into()),
            },
            other => other,
        }
    }
}

impl std::fmt::Display for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::User(uid) => write!(f, "uid:{uid}"),
        }
    }
}

/// How many of something each client has, up to a limit. Cheap to clone.
#[derive(Debug)]
pub struct PerClient<K>(Arc<Inner<K>>);

#[derive(Debug)]
struct Inner<K> {
    limit: usize,
    counts: Mutex<HashMap<K, usize>>,
}

impl<K> Clone for PerClient<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K: Eq + Hash + Clone> PerClient<K> {
    pub fn new(limit: usize) -> Self {
        Self(Arc::new(Inner { limit, counts: Mutex::default() }))
    }

    pub fn limit(&self) -> usize {
        self.0.limit
    }

    fn counts(&self) -> MutexGuard<'_, HashMap<K, usize>> {
        self.0.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place of the client, until the value is dropped. `None` if the client has all of its places.
    pub fn take(&self, client: K) -> Option<Place<K>> {
        let mut counts = self.counts();
        let count = counts.entry(client.clone()).or_default();
        if *count >= self.0.limit {
            return None;
        }
        *count += 1;
        drop(counts);
        Some(Place { of: self.clone(), client })
    }
}

/// One place that a client has taken.
#[derive(Debug)]
pub struct Place<K: Eq + Hash + Clone> {
    of: PerClient<K>,
    client: K,
}

impl<K: Eq + Hash + Clone> Drop for Place<K> {
    fn drop(&mut self) {
        let mut counts = self.of.counts();
        if let Some(count) = counts.get_mut(&self.client) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                counts.remove(&self.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_has_all_its_places_waits_and_another_does_not() {
        let places = PerClient::new(2);
        let first = places.take("a").unwrap();
        let second = places.take("a").unwrap();
        assert!(places.take("a").is_none());
        let other = places.take("b").unwrap();
        drop(first);
        assert!(places.take("a").is_some());
        drop((second, other));
        assert!(places.counts().is_empty(), "a client without places is forgotten");
    }

    #[test]
    fn addresses_of_one_network_are_one_client() {
        let client = |text: &str| Peer::Address(text.parse().unwrap()).client().to_string();
        assert_eq!(client("2001:db8::1"), client("2001:db8::ffff:1"));
        assert_ne!(client("2001:db8::1"), client("2001:db8:0:1::1"));
        assert_eq!(client("::ffff:192.0.2.7"), client("192.0.2.7"));
        assert_ne!(client("192.0.2.7"), client("192.0.2.8"));
        assert_eq!(Peer::User(7).to_string(), "uid:7");
    }
}
