//! Resolves names with the host's own resolver, so that `/etc/hosts` and a company's name servers count.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use network_policy::HostName;
use tokio::sync::Semaphore;

/// How long an answer is kept, here and by programs in the sandbox. The host's resolver does not tell how long it is valid.
pub const TTL: Duration = Duration::from_secs(30);
const TIMEOUT: Duration = Duration::from_secs(10);
/// The most names that are resolved at the same time, for all sessions. Each takes a thread.
const MAX_AT_ONCE: usize = 64;
const MAX_CACHED: usize = 4096;
/// The most addresses of one name.
const MAX_ADDRESSES: usize = 32;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    #[error("the name does not exist")]
    NoSuchName,
    #[error("the name could not be resolved")]
    Failed,
}

type Addresses = Arc<[IpAddr]>;

#[derive(Debug)]
pub struct Resolver {
    cache: Mutex<HashMap<HostName, (Instant, Addresses)>>,
    permits: Semaphore,
}

impl Default for Resolver {
    fn default() -> Self {
        Self { cache: Mutex::default(), permits: Semaphore::new(MAX_AT_ONCE) }
    }
}

impl Resolver {
    /// The addresses of a name, without those of a family that this host cannot send to.
    pub async fn resolve(&self, name: &HostName) -> Result<Addresses, ResolveError> {
        if let Some(known) = self.cached(name) {
            return Ok(known);
        }
        let looking = async {
            let _permit = self.permits.acquire().await.ok()?;
            Some(tokio::net::lookup_host((name.as_str(), 0)).await)
        };
        let found = match tokio::time::timeout(TIMEOUT, looking).await {
            Ok(Some(Ok(found))) => found,
            Ok(Some(Err(error))) if is_no_such_name(&error) => return Err(ResolveError::NoSuchName),
            _ => return Err(ResolveError::Failed),
        };
        let mut addresses: Vec<IpAddr> = Vec::new();
        for address in found.map(|found| network_policy::canonical(found.ip())) {
            if !addresses.contains(&address) && addresses.len() < MAX_ADDRESSES && has_route(address) {
                addresses.push(address);
            }
        }
        let addresses: Addresses = addresses.into();
        self.keep(name, &addresses);
        Ok(addresses)
    }

    fn cached(&self, name: &HostName) -> Option<Addresses> {
        let cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        cache.get(name).filter(|(at, _)| at.elapsed() < TTL).map(|(_, addresses)| addresses.clone())
    }

    fn keep(&self, name: &HostName, addresses: &Addresses) {
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if cache.len() >= MAX_CACHED {
            cache.retain(|_, (at, _)| at.elapsed() < TTL);
        }
        if cache.len() >= MAX_CACHED {
            cache.clear();
        }
        cache.insert(name.clone(), (Instant::now(), addresses.clone()));
    }
}

/// Whether the host's resolver says that the name does not exist, and not that it could not ask. There is no code for it in the
/// error, only the text: of glibc, or of musl.
fn is_no_such_name(error: &std::io::Error) -> bool {
    let text = error.to_string();
    ["not known", "does not resolve", "No address associated", "no data"].iter().any(|part| text.contains(part))
}

/// Whether this host has a route to the address. Connecting a UDP socket finds out, and sends nothing.
fn has_route(address: IpAddr) -> bool {
    let any: SocketAddr = match address {
        IpAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
        IpAddr::V6(_) => ([0_u16; 8], 0).into(),
    };
    UdpSocket::bind(any).and_then(|socket| socket.connect((address, 443))).is_ok()
}
