//! Use cases for the network of sessions: read and change what a session may reach, and read what was decided.

use std::sync::Arc;

use shared_protocol::SessionId;
use shared_protocol::api::{
    NetworkDecision, NetworkRule, NetworkRules, NetworkSpec, NetworkView, PackagesView, RegistryProblem,
    RegistryVariable, RegistryView, SetNetworkRequest,
};
use tokio::sync::watch;

use super::Caller;
use super::access::Access;
use crate::network::{Network, SessionNetwork, SessionPolicy};
use crate::owner::{Creator, NetworkMaximum};
use crate::session::{Registry, SessionError, Update};

pub struct Networks {
    access: Access,
    registry: Registry,
    network: Network,
}

impl Networks {
    pub(super) fn new(access: Access, registry: Registry, network: Network) -> Self {
        Self { access, registry, network }
    }

    pub fn get(&self, caller: &Caller, id: &SessionId) -> Result<NetworkView, SessionError> {
        Ok(self.access.session(caller, id)?.network().view())
    }

    /// Changes what a session may reach. Connections that the new policy forbids are cut at once.
    pub async fn set(
        &self,
        caller: &Caller,
        id: &SessionId,
        request: SetNetworkRequest,
    ) -> Result<NetworkView, SessionError> {
        let SetNetworkRequest { network: asked, inject } = request;
        let session = self.access.session(caller, id)?;
        self.registry.check_network(&session, &asked)?;
        if inject.as_ref().is_some_and(|inject| !inject.is_empty()) && session.facts().spec.inject.is_none() {
            let message = "the programs in this sandbox do not trust the daemon: create the session with `inject`, which may be an \
                           empty list, to inject headers later";
            return Err(SessionError::Conflict(message.into()));
        }
        let policy = self.network.compile(&asked, &caller.creator()).await?;
        let policy = match &inject {
            Some(inject) => self.network.with_injections(policy, inject, &session.facts().spec.owner)?,
            // They stay, also if their hosts cannot be reached any more: taking the network away must always work.
            None => SessionPolicy { injections: session.network().injections(), ..policy },
        };
        let inject = inject.filter(|_| session.facts().spec.inject.is_some());
        session.update(Update { network: Some(policy), inject, ..Update::default() }).await?;
        Ok(session.network().view())
    }

    /// Adds hosts to what a session may reach, if the operator lets agents do that. Private addresses are never part of it.
    pub async fn request(
        &self,
        caller: &Caller,
        id: &SessionId,
        hosts: Vec<NetworkRule>,
    ) -> Result<NetworkView, SessionError> {
        let session = self.access.session(caller, id)?;
        let Some(most) = self.network.requests() else {
            let message = "agents may not open the network by themselves here (network.requests in the daemon's configuration); ask a \
                           person to allow it with `cove network set`";
            return Err(SessionError::Forbidden(message.to_owned()));
        };
        let asked = NetworkRules { allow: hosts, ..NetworkRules::default() };
        let network_maximum = NetworkMaximum::Key(most.clone());
        let agent = Creator { may_reach_private: false, network_maximum, ..caller.creator() };
        self.network.compile(&NetworkSpec::Rules(asked.clone()), &agent).await?;
        let now = session.network().view().network;
        let request = SetNetworkRequest { network: added(now, asked.allow), inject: None };
        self.set(caller, id, request).await
    }

    /// The last decisions about a session's network.
    pub fn log(&self, caller: &Caller, id: &SessionId) -> Result<Vec<NetworkDecision>, SessionError> {
        Ok(self.access.session(caller, id)?.network().decisions_after(0))
    }

    /// The decisions about a session's network, as they are made. This does not count as activity.
    pub fn follow(&self, caller: &Caller, id: &SessionId, after: u64) -> Result<DecisionStream, SessionError> {
        let session = self.access.session(caller, id)?;
        let network = session.network().clone();
        let last = network.follow();
        Ok(DecisionStream { ended: Box::pin(session.over()), network, last, after })
    }

    /// What the package managers of this host have said about their registries.
    pub async fn packages(&self, caller: &Caller, refresh: Refresh) -> Result<PackagesView, SessionError> {
        self.access.admin(caller, "the list of registries")?;
        let packages = self.network.packages();
        let detected = match refresh {
            Refresh::Now => {
                packages.find_out().await.map_err(|error| SessionError::Internal(SessionError::chain(&error)))?
            }
            Refresh::IfUnknown => {
                packages.find_out_once().await;
                packages.detected().unwrap_or_default()
            }
        };
        let found = detected.found.into_iter().map(|source| RegistryView {
            tool: source.tool,
            host: source.host,
            ports: source.ports,
            because: source.because,
            is_private: source.is_private,
        });
        let problems = detected.problems.into_iter();
        let problems = problems.map(|problem| RegistryProblem { tool: problem.tool, message: problem.message });
        let variables = detected.variables.into_iter();
        let variables = variables.map(|one| RegistryVariable { tool: one.tool, name: one.name, value: one.value });
        Ok(PackagesView { found: found.collect(), variables: variables.collect(), problems: problems.collect() })
    }
}

/// A network with more rules.
fn added(network: NetworkSpec, more: Vec<NetworkRule>) -> NetworkSpec {
    let mut rules = match network {
        NetworkSpec::Preset(name) if name == NetworkSpec::NONE => NetworkRules::default(),
        NetworkSpec::Preset(name) => NetworkRules { presets: vec![name], ..NetworkRules::default() },
        NetworkSpec::Rules(rules) => rules,
    };
    rules.allow.extend(more.into_iter().filter(|rule| !rules.allow.contains(rule)).collect::<Vec<_>>());
    NetworkSpec::Rules(rules)
}

/// Whether the package managers are asked again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refresh {
    Now,
    IfUnknown,
}

/// Decisions as they are made, until the session is over.
pub struct DecisionStream {
    network: Arc<SessionNetwork>,
    last: watch::Receiver<u64>,
    /// The number of the last decision that was returned.
    after: u64,
    ended: std::pin::Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl DecisionStream {
    /// The next decisions; `None` when the session is over. A reader that is too slow misses the oldest ones, which their numbers
    /// show.
    pub async fn next(&mut self) -> Option<Vec<NetworkDecision>> {
        loop {
            self.last.borrow_and_update();
            let decisions = self.network.decisions_after(self.after);
            if let Some(last) = decisions.last() {
                self.after = last.sequence;
                return Some(decisions);
            }
            tokio::select! {
                biased;
                changed = self.last.changed() => changed.ok()?,
                () = &mut self.ended => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_added_to_what_a_session_has() {
        let rule = |text: &str| NetworkRule::Text(text.to_owned());
        let rules = |presets: &[&str], allow: &[&str]| {
            NetworkSpec::Rules(NetworkRules {
                presets: presets.iter().map(|name| (*name).to_owned()).collect(),
                allow: allow.iter().map(|text| rule(text)).collect(),
                deny: Vec::new(),
            })
        };
        let more = || vec![rule("b.example.com")];
        assert_eq!(added(NetworkSpec::preset("none"), more()), rules(&[], &["b.example.com"]));
        assert_eq!(added(NetworkSpec::preset("packages"), more()), rules(&["packages"], &["b.example.com"]));
        let twice = added(added(rules(&[], &["a.example.com"]), more()), more());
        assert_eq!(twice, rules(&[], &["a.example.com", "b.example.com"]));
    }
}
