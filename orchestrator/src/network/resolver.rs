//! Resolves names with the host's own resolver, so that `/etc/hosts` and a company's name servers count.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use network_policy::{Denial, HostName};
use tokio::sync::Semaphore;

use crate::sys::name_service::{self, NotFound};

/// How long an answer is kept, here and by programs in the sandbox. The host's resolver does not tell how long it is valid.
pub const TTL: Duration = Duration::from_secs(30);
const TIMEOUT: Duration = Duration::from_secs(10);
/// The most names that are resolved at the same time, for all sessions. Each takes a thread.
const MAX_AT_ONCE: usize = 64;
/// The most names of one session that are resolved at the same time, so that one session with names that take long does not hold
/// up all others.
const MAX_OF_ONE_SESSION: usize = 8;
const MAX_CACHED: usize = 4096;
/// The most addresses of one name.
const MAX_ADDRESSES: usize = 32;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    #[error("the name does not exist")]
    NoSuchName,
    #[error("the name could not be resolved")]
    Failed,
    /// It is an alias of a name that a deny rule is about.
    #[error("{0}")]
    Denied(Denial),
}

/// What a name stands for.
#[derive(Debug, Clone)]
pub struct Resolved {
    pub addresses: Arc<[IpAddr]>,
    /// The name at the end of its aliases, if it is an alias. The names between are not known.
    pub alias_of: Option<HostName>,
}

#[derive(Debug)]
pub struct Resolver {
    cache: Mutex<HashMap<HostName, (Instant, Resolved)>>,
    permits: Arc<Semaphore>,
}

impl Default for Resolver {
    fn default() -> Self {
        Self { cache: Mutex::default(), permits: Arc::new(Semaphore::new(MAX_AT_ONCE)) }
    }
}

/// The part of the resolver that one session may use at the same time.
#[derive(Debug, Clone)]
pub struct ResolverShare(Arc<Semaphore>);

impl Default for ResolverShare {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MAX_OF_ONE_SESSION)))
    }
}

impl Resolver {
    /// What a name stands for. The addresses are without those of a family that this host cannot send to.
    pub async fn resolve(&self, name: &HostName, share: &ResolverShare) -> Result<Resolved, ResolveError> {
        if let Some(known) = self.cached(name) {
            return Ok(known);
        }
        let looking = async {
            let own = share.0.clone().acquire_owned().await.ok()?;
            let common = self.permits.clone().acquire_owned().await.ok()?;
            let name = name.clone();
            // The permits are held until the thread is free again, which can be long after nobody waits for it.
            let look_up = move || {
                let found = name_service::look_up(name.as_str());
                drop((own, common));
                found
            };
            tokio::task::spawn_blocking(look_up).await.ok()
        };
        let found = match tokio::time::timeout(TIMEOUT, looking).await {
            Ok(Some(Ok(found))) => found,
            Ok(Some(Err(NotFound::NoSuchName))) => return Err(ResolveError::NoSuchName),
            _ => return Err(ResolveError::Failed),
        };
        let mut addresses: Vec<IpAddr> = Vec::new();
        for address in found.addresses.into_iter().map(network_policy::canonical) {
            if !addresses.contains(&address) && addresses.len() < MAX_ADDRESSES && has_route(address) {
                addresses.push(address);
            }
        }
        // What is no name that a rule could be about denies nothing.
        let canonical = found.canonical.and_then(|canonical| HostName::from_bytes(&canonical).ok());
        let resolved =
            Resolved { addresses: addresses.into(), alias_of: canonical.filter(|canonical| canonical != name) };
        self.keep(name, &resolved);
        Ok(resolved)
    }

    fn cached(&self, name: &HostName) -> Option<Resolved> {
        let cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        cache.get(name).filter(|(at, _)| at.elapsed() < TTL).map(|(_, resolved)| resolved.clone())
    }

    fn keep(&self, name: &HostName, resolved: &Resolved) {
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if cache.len() >= MAX_CACHED {
            cache.retain(|_, (at, _)| at.elapsed() < TTL);
        }
        if cache.len() >= MAX_CACHED {
            cache.clear();
        }
        cache.insert(name.clone(), (Instant::now(), resolved.clone()));
    }
}

/// Whether this host has a route to the address. Connecting a UDP socket finds out, and sends nothing.
fn has_route(address: IpAddr) -> bool {
    let any: SocketAddr = match address {
        IpAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
        IpAddr::V6(_) => ([0_u16; 8], 0).into(),
    };
    UdpSocket::bind(any).and_then(|socket| socket.connect((address, 443))).is_ok()
}
