//! The network of one session: its policy now, what its sandbox has resolved, what was decided, and what it has used.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use network_policy::{HostName, Policy, Rule, Target};
use shared_protocol::SessionId;
use shared_protocol::api::{NetworkDecision, NetworkRule, NetworkRuleParts, NetworkSpec, NetworkVerdict, NetworkView};
use tokio::sync::watch;

use super::Network;
use super::copy::Meter;
use super::limits::SessionMeter;
use super::log::{Entry, NetworkLog};
use super::names::Names;
use super::resolver::{ResolveError, ResolverShare};

/// What a session asked for, and the policy that it means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionPolicy {
    pub asked: NetworkSpec,
    pub policy: Arc<Policy>,
}

impl SessionPolicy {
    pub fn none() -> Self {
        Self { asked: NetworkSpec::default(), policy: Arc::new(Policy::none()) }
    }
}

#[derive(Debug)]
pub struct SessionNetwork {
    network: Network,
    id: SessionId,
    policy: watch::Sender<SessionPolicy>,
    names: Mutex<Names>,
    resolver: ResolverShare,
    log: NetworkLog,
    meter: Arc<SessionMeter>,
    is_open: AtomicBool,
}

impl SessionNetwork {
    pub fn new(network: Network, id: SessionId, policy: SessionPolicy) -> Self {
        let meter = Arc::new(SessionMeter::new(network.limits()));
        Self {
            network,
            id,
            policy: watch::Sender::new(policy),
            names: Mutex::default(),
            resolver: ResolverShare::default(),
            log: NetworkLog::default(),
            meter,
            is_open: AtomicBool::new(false),
        }
    }

    pub fn id(&self) -> &SessionId {
        &self.id
    }

    pub fn asked(&self) -> NetworkSpec {
        self.policy.borrow().asked.clone()
    }

    pub fn policy(&self) -> Arc<Policy> {
        self.policy.borrow().policy.clone()
    }

    /// Replaces the policy. Connections that the new one forbids are cut.
    pub fn set_policy(&self, policy: SessionPolicy) {
        self.policy.send_replace(policy);
    }

    pub(super) fn watch_policy(&self) -> PolicyWatch {
        PolicyWatch(self.policy.subscribe())
    }

    /// Records that programs in the sandbox have a way to the daemon.
    pub fn set_open(&self) {
        self.is_open.store(true, Ordering::Relaxed);
    }

    pub fn view(&self) -> NetworkView {
        let SessionPolicy { asked, policy } = self.policy.borrow().clone();
        let (bytes_sent, bytes_received) = self.meter.bytes();
        NetworkView {
            network: asked,
            allow: policy.allow().iter().map(shown).collect(),
            deny: policy.deny().iter().map(shown).collect(),
            is_open: self.is_open.load(Ordering::Relaxed),
            used: self.log.used(),
            connections: u64::try_from(self.meter.connections()).unwrap_or(u64::MAX),
            bytes_sent,
            bytes_received,
        }
    }

    /// The decisions after the one with this number.
    pub fn decisions_after(&self, sequence: u64) -> Vec<NetworkDecision> {
        self.log.after(sequence)
    }

    /// The number of the last decision, now and whenever it changes.
    pub fn follow(&self) -> watch::Receiver<u64> {
        self.log.follow()
    }

    pub fn last_decision(&self) -> u64 {
        self.log.last_sequence()
    }

    /// What was denied after the decision with this number, as rules that would allow it.
    pub fn denied_after(&self, sequence: u64) -> Vec<String> {
        self.log.denied_after(sequence)
    }

    pub(super) fn note(&self, entry: Entry) {
        if let Some((sent, received)) = entry.bytes {
            self.network.metrics().network_bytes(sent.saturating_add(received));
        }
        if entry.verdict == NetworkVerdict::Denied
            && let Some(reason) = entry.reason
        {
            self.network.metrics().network_denied(reason);
        }
        self.log.add(entry);
    }

    pub(super) fn names_of(&self, address: IpAddr) -> Vec<HostName> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner).of(address)
    }

    pub(super) fn add_name(&self, name: &HostName, address: IpAddr) {
        self.names.lock().unwrap_or_else(PoisonError::into_inner).add(name, address);
    }

    pub(super) async fn resolve(&self, name: &HostName) -> Result<Arc<[IpAddr]>, ResolveError> {
        self.network.resolver().resolve(name, &self.resolver).await
    }

    pub(super) fn target<'a>(&self, names: &'a [HostName], address: IpAddr, port: u16) -> Target<'a> {
        let host = self.network.own_host();
        let is_own_host = host.has(address);
        Target { names, address, port, is_own_host, is_daemon: is_own_host && host.is_daemon_port(port) }
    }

    pub(super) fn meter(&self) -> Meter {
        Meter::new(self.meter.clone())
    }

    /// Whether the session has used up its traffic.
    pub(super) fn is_used_up(&self) -> bool {
        self.meter.is_used_up()
    }

    /// Takes a place for one connection, until the value is dropped. `None` if all are taken.
    pub(super) fn enter(self: &Arc<Self>) -> Option<Place> {
        self.meter.enter().then(|| {
            self.network.metrics().network_connected();
            Place(self.meter.clone())
        })
    }
}

/// A rule as clients write it: as text, if a text says all of it.
fn shown(rule: &Rule) -> NetworkRule {
    let text = rule.to_string();
    if Rule::parse(&text, rule.side()).as_ref() == Ok(rule) {
        return NetworkRule::Text(text);
    }
    let ports = rule.listed_ports().to_vec();
    NetworkRule::Parts(NetworkRuleParts { host: rule.host(), ports, private: rule.is_private() })
}

/// The place of one open connection.
#[derive(Debug)]
pub struct Place(Arc<SessionMeter>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// The policy of a session, now and whenever it changes.
#[derive(Debug, Clone)]
pub struct PolicyWatch(watch::Receiver<SessionPolicy>);

impl PolicyWatch {
    pub fn current(&mut self) -> Arc<Policy> {
        self.0.borrow_and_update().policy.clone()
    }

    /// Waits for another policy. Pending for ever if the session is gone.
    pub async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending().await
        }
    }
}
