//! The network of one session: its policy now, what its sandbox has resolved, what was decided, and what it has used.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use network_policy::{HostName, Policy, Reason, Rule, Target};
use shared_protocol::api::{
    NetworkDecision, NetworkRule, NetworkRuleParts, NetworkSpec, NetworkVerdict, NetworkView, NetworkWish,
};
use shared_protocol::{KeyName, SecretName, SessionId};
use tokio::sync::{OnceCell, watch};

use super::Network;
use super::copy::Meter;
use super::inject::{Authority, AuthorityError, Injection, Roots};
use super::limits::{Place, SessionMeter};
use super::log::{Entry, NetworkLog};
use super::names::Names;
use super::resolver::{ResolveError, ResolverShare};
use crate::owner::NetworkMaximum;
use crate::secret::Secret;

/// What a session asked for, and the policy that it means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionPolicy {
    pub asked: NetworkSpec,
    /// What limits it, as the store keeps it.
    pub maximum: NetworkMaximum,
    /// What that means now.
    pub max: Option<NetworkSpec>,
    pub policy: Arc<Policy>,
    /// The headers that the daemon adds.
    pub injections: Arc<[Injection]>,
}

/// What programs in a sandbox do to reach something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeenWayOut {
    /// They dial it.
    Dial,
    /// They ask a proxy on this port of the loopback.
    Proxy { port: u16 },
}

#[derive(Debug)]
pub struct SessionNetwork {
    network: Network,
    id: SessionId,
    owner: KeyName,
    authority: OnceCell<Arc<Authority>>,
    policy: watch::Sender<SessionPolicy>,
    names: Mutex<Names>,
    resolver: ResolverShare,
    log: NetworkLog,
    meter: Arc<SessionMeter>,
    /// How programs in the sandbox reach the daemon. Empty if they do not.
    way_out: OnceLock<SeenWayOut>,
}

impl SessionNetwork {
    pub fn new(network: Network, id: SessionId, owner: KeyName, policy: SessionPolicy) -> Self {
        let meter = Arc::new(SessionMeter::new(network.limits()));
        Self {
            network,
            id,
            owner,
            authority: OnceCell::new(),
            policy: watch::Sender::new(policy),
            names: Mutex::default(),
            resolver: ResolverShare::default(),
            log: NetworkLog::default(),
            meter,
            way_out: OnceLock::new(),
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

    /// The headers that are injected.
    pub fn injections(&self) -> Arc<[Injection]> {
        self.policy.borrow().injections.clone()
    }

    /// Whether headers are injected into connections to this port of some host.
    pub(super) fn injects_at(&self, port: u16) -> bool {
        self.policy.borrow().injections.iter().any(|injection| injection.port == port)
    }

    pub(super) fn injections_for(&self, host: &HostName, port: u16) -> Vec<Injection> {
        let policy = self.policy.borrow();
        let wanted = policy.injections.iter().filter(|one| one.port == port && one.host == *host);
        wanted.cloned().collect()
    }

    /// A secret of the session's owner, as it is now.
    pub(super) fn secret(&self, name: &SecretName) -> Option<Arc<Secret>> {
        self.network.secrets().get(&self.owner, name)
    }

    pub(super) fn roots(&self) -> &Roots {
        self.network.roots()
    }

    /// Makes the certificate authority that the session's sandbox trusts, before the sandbox exists.
    pub async fn make_authority(&self) -> Result<Arc<Authority>, AuthorityError> {
        self.network.authorities().make(&self.id).await
    }

    /// The certificate authority that the session's sandbox trusts.
    pub(super) async fn authority(&self) -> Result<Arc<Authority>, AuthorityError> {
        self.authority.get_or_try_init(|| self.network.authorities().load(&self.id)).await.cloned()
    }

    /// Forgets the authority of a sandbox that is gone.
    pub async fn remove_authority(&self) {
        if let Err(error) = self.network.authorities().remove(&self.id).await {
            tracing::warn!(session_id = %self.id, %error, "the session's certificate authority is left to the next start");
        }
    }

    /// Replaces the policy. Connections that the new one forbids are cut. `learn` begins a new list of what was used.
    pub fn set_policy(&self, policy: SessionPolicy) {
        if policy.asked.is_learn() {
            self.log.forget_used();
        }
        self.policy.send_replace(policy);
    }

    pub(super) fn watch_policy(&self) -> PolicyWatch {
        PolicyWatch(self.policy.subscribe())
    }

    /// Records how programs in the sandbox reach the daemon.
    pub fn set_way_out(&self, way_out: SeenWayOut) {
        // A sandbox has one way all its life.
        let _ = self.way_out.set(way_out);
    }

    pub fn view(&self) -> NetworkView {
        let SessionPolicy { asked, policy, max, injections, .. } = self.policy.borrow().clone();
        let (bytes_sent, bytes_received) = self.meter.bytes();
        NetworkView {
            network: asked,
            max,
            allow: policy.allow().iter().map(shown).collect(),
            deny: policy.deny().iter().map(shown).collect(),
            inject: injections.iter().map(|injection| injection.asked.clone()).collect(),
            is_open: self.way_out.get().is_some(),
            proxy: match self.way_out.get() {
                Some(SeenWayOut::Proxy { port }) => Some(format!("http://127.0.0.1:{port}")),
                Some(SeenWayOut::Dial) | None => None,
            },
            used: self.log.used(),
            connections: u64::try_from(self.meter.connections().taken()).unwrap_or(u64::MAX),
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

    pub(super) fn note_used(&self, rule: &str) {
        self.log.note_used(rule);
    }

    /// Records that this daemon took the session over: what was decided before is not known any more, and the connections that were
    /// open are cut. A session that reaches nothing had none.
    pub fn note_restart(&self) {
        if self.policy().allow().is_empty() {
            return;
        }
        self.log.add(Entry {
            wish: NetworkWish::Connect,
            host: None,
            address: None,
            port: None,
            verdict: NetworkVerdict::Cut,
            reason: Some(Reason::DaemonRestarted.as_str()),
            rule: String::new(),
            is_guess: false,
            injected: false,
            bytes: None,
        });
    }

    pub(super) fn names_of(&self, address: IpAddr) -> Vec<HostName> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner).of(address)
    }

    pub(super) fn add_name(&self, name: &HostName, address: IpAddr) {
        self.names.lock().unwrap_or_else(PoisonError::into_inner).add(name, address);
    }

    /// The addresses of a name, unless it is an alias of one that the policy denies. `port` is the one to connect to, if it is known.
    pub(super) async fn resolve(&self, name: &HostName, port: Option<u16>) -> Result<Arc<[IpAddr]>, ResolveError> {
        let found = self.network.resolver().resolve(name, &self.resolver).await?;
        if let Some(other) = &found.alias_of {
            self.policy().may_be_alias(name, other, port).map_err(ResolveError::Denied)?;
        }
        Ok(found.addresses)
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

    /// Takes a place for one connection, until the value is dropped. If all of the session or all of the daemon are taken, it says so.
    pub(super) fn enter(&self) -> Result<(Place, Place), Reason> {
        let of_session = Place::take(self.meter.connections()).ok_or(Reason::ConnectionLimit)?;
        let of_daemon = Place::take(self.network.connections()).ok_or(Reason::DaemonConnectionLimit)?;
        self.network.metrics().network_connected();
        Ok((of_session, of_daemon))
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
