//! Use cases for the network of sessions: read and change what a session may reach, and read what was decided.

use std::sync::Arc;

use shared_protocol::SessionId;
use shared_protocol::api::{
    NetworkDecision, NetworkView, PackagesView, RegistryProblem, RegistryVariable, RegistryView, SetNetworkRequest,
};
use tokio::sync::watch;

use super::Caller;
use super::access::Access;
use crate::network::{Network, SessionNetwork, SessionPolicy};
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
