//! Which names one sandbox has resolved to which addresses. Pure.
//!
//! A program dials an address; a rule is about a name. This table leads back from one to the other. It is bounded: the addresses
//! that were not used for the longest time are forgotten first.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use network_policy::HostName;

/// The most addresses that are remembered for one sandbox.
const MAX_ADDRESSES: usize = 4096;
/// The most names of one address. Each connection to it is checked with all of them.
const MAX_NAMES: usize = 16;

#[derive(Debug, Default)]
pub struct Names {
    by_address: HashMap<IpAddr, Entry>,
    /// The addresses by their last use.
    by_use: BTreeMap<u64, IpAddr>,
    uses: u64,
}

#[derive(Debug)]
struct Entry {
    /// The latest name is first.
    names: Vec<HostName>,
    last_use: u64,
}

impl Names {
    /// Records that the sandbox was told this address of the name.
    pub fn add(&mut self, name: &HostName, address: IpAddr) {
        let mut names = self.take(address);
        names.retain(|known| known != name);
        names.insert(0, name.clone());
        names.truncate(MAX_NAMES);
        self.put(address, names);
        if self.by_address.len() > MAX_ADDRESSES
            && let Some((_, oldest)) = self.by_use.pop_first()
        {
            self.by_address.remove(&oldest);
        }
    }

    /// The names of an address, the latest first.
    pub fn of(&mut self, address: IpAddr) -> Vec<HostName> {
        let names = self.take(address);
        if !names.is_empty() {
            self.put(address, names.clone());
        }
        names
    }

    fn take(&mut self, address: IpAddr) -> Vec<HostName> {
        let Some(entry) = self.by_address.remove(&address) else { return Vec::new() };
        self.by_use.remove(&entry.last_use);
        entry.names
    }

    fn put(&mut self, address: IpAddr, names: Vec<HostName>) {
        self.uses += 1;
        self.by_use.insert(self.uses, address);
        self.by_address.insert(address, Entry { names, last_use: self.uses });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn name(text: &str) -> HostName {
        HostName::parse(text).unwrap()
    }

    #[test]
    fn an_address_has_the_names_that_were_resolved_to_it_the_latest_first() {
        let (mut names, address) = (Names::default(), IpAddr::from([203, 0, 113, 7]));
        assert!(names.of(address).is_empty());
        for text in ["a.example.com", "b.example.com", "a.example.com"] {
            names.add(&name(text), address);
        }
        assert_eq!(names.of(address), [name("a.example.com"), name("b.example.com")]);
        for number in 0..100 {
            names.add(&name(&format!("n{number}.example.com")), address);
        }
        assert_eq!(names.of(address).len(), MAX_NAMES);
    }

    #[test]
    fn the_addresses_that_are_used_least_are_forgotten_first() {
        let mut names = Names::default();
        let address = |number: u32| IpAddr::from(Ipv4Addr::from(number));
        names.add(&name("kept.example.com"), address(0));
        for number in 1..u32::try_from(3 * MAX_ADDRESSES).unwrap() {
            names.add(&name("x.example.com"), address(number));
            assert_eq!(names.of(address(0)).len(), 1);
        }
        assert_eq!((names.by_address.len(), names.by_use.len()), (MAX_ADDRESSES, MAX_ADDRESSES));
        assert!(names.of(address(1)).is_empty());
    }
}
