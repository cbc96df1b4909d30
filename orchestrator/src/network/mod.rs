//! What sessions reach over the network.
//!
//! A sandbox has no network interface. Its programs reach two sockets that the daemon holds (`runtime::netns`), and the daemon
//! alone decides, resolves and dials:
//!
//! ```text
//!  program ─▶ gateway ─▶ connection ─▶ policy: may it? ─▶ dial ─▶ copy both ways, with limits
//!                 ├────▶ proxy ─────▶ connection: the same, for a name or an address that the program asks for
//!                 └────▶ dns ────────▶ policy: may it? ─▶ the host's resolver ─▶ names: which address has which name
//! ```
//!
//! Where the daemon cannot enter the sandbox's network namespace, programs reach the proxy instead, on a port of the loopback from
//! which the runner hands their connections over.
//!
//! `session` is what one session has: its policy, its names, its log and its meter. `presets` makes policies from what clients
//! ask for, and `packages` finds out which registries this host uses. `inspector` looks at what programs say, so that a
//! connection to an allowed name cannot be used for another one; `inject` adds headers that the sandbox never sees.
//!
//! **Invariant:** an address is checked by the policy right before it is dialled, and no other is dialled.

mod chunked;
mod connection;
mod copy;
mod dns;
mod gateway;
mod inject;
mod inspector;
mod limits;
mod log;
mod names;
mod own_host;
mod packages;
mod presets;
mod proxy;
mod resolver;
mod session;
mod stream;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use network_policy::Policy;
use shared_protocol::KeyName;
use shared_protocol::api::{InjectionSpec, NetworkSpec};

pub use gateway::Gateway;
pub use inject::{Authorities, Authority, AuthorityError, InjectError};
pub use limits::{DEFAULT_CONNECTIONS, NetworkLimits, total_connections};
pub use packages::{DetectError, Packages};
pub use presets::{Asker, NetworkError, OperatorRules, OwnPresets, of_rules};
pub use session::{SeenWayOut, SessionNetwork, SessionPolicy};

use self::inject::Roots;
use self::limits::Places;
use self::own_host::OwnHost;
use self::presets::AboveMaximum;
use self::resolver::Resolver;
use crate::metrics::Metrics;
use crate::owner::{Creator, NetworkMaximum};
use crate::secret::SecretTable;

/// What all sessions share. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Network(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    resolver: Resolver,
    own_host: OwnHost,
    limits: NetworkLimits,
    /// The connections of all sessions.
    connections: Arc<Places>,
    operator: OperatorRules,
    default: NetworkSpec,
    packages: Packages,
    secrets: SecretTable,
    authorities: Authorities,
    roots: Roots,
    metrics: Metrics,
}

/// The settings of the network.
#[derive(Debug, Clone)]
pub struct NetworkParts {
    pub limits: NetworkLimits,
    /// The most connections of all sessions together.
    pub total_connections: usize,
    pub operator: OperatorRules,
    /// What a session gets that asks for nothing.
    pub default: NetworkSpec,
    /// The ports on which the daemon listens.
    pub daemon_ports: Vec<u16>,
    pub secrets: SecretTable,
    /// Certificate authorities that the daemon trusts in addition to the host's.
    pub extra_ca_file: Option<PathBuf>,
    pub metrics: Metrics,
}

impl Network {
    /// Reads what is known of this host's registries from the data directory.
    pub fn new(data_dir: &Path, parts: NetworkParts) -> Self {
        Self::with(data_dir, Packages::open(data_dir), parts)
    }

    fn with(data_dir: &Path, packages: Packages, parts: NetworkParts) -> Self {
        Self(Arc::new(Shared {
            resolver: Resolver::default(),
            own_host: OwnHost::new(parts.daemon_ports),
            limits: parts.limits,
            connections: Places::new(parts.total_connections),
            operator: parts.operator,
            default: parts.default,
            packages,
            secrets: parts.secrets,
            authorities: Authorities::new(data_dir),
            roots: Roots::new(parts.extra_ca_file),
            metrics: parts.metrics,
        }))
    }

    /// A network of its own, on a host without package managers.
    #[cfg(any(test, fuzzing))]
    pub fn for_test() -> Self {
        let nowhere = Path::new("/nonexistent");
        let parts = NetworkParts {
            limits: NetworkLimits::default(),
            total_connections: usize::MAX,
            operator: OperatorRules::default(),
            default: NetworkSpec::default(),
            daemon_ports: Vec::new(),
            secrets: SecretTable::empty(nowhere),
            extra_ca_file: None,
            metrics: Metrics::new(),
        };
        Self::with(nowhere, Packages::of_nobody(), parts)
    }

    pub fn default_spec(&self) -> &NetworkSpec {
        &self.0.default
    }

    /// What agents may open by themselves.
    pub fn requests(&self) -> Option<&NetworkSpec> {
        self.0.operator.requests.as_ref()
    }

    pub fn packages(&self) -> &Packages {
        &self.0.packages
    }

    /// Makes the policy of a session, as its creator may ask for it. `packages` may have to be found out first, which takes seconds.
    pub async fn compile(&self, asked: &NetworkSpec, creator: &Creator) -> Result<SessionPolicy, NetworkError> {
        let maximum = self.0.operator.maximum_of(&creator.network_maximum).filter(|_| !asked.is_none());
        if self.has_packages(asked) || maximum.is_some_and(|maximum| self.has_packages(maximum)) {
            self.0.packages.find_out_once().await;
        }
        self.compile_known(asked, Asker::of(creator), &creator.network_maximum, AboveMaximum::Refused)
    }

    /// The variables that a new session gets with its network: where the registries of this host are, if it may reach them.
    pub fn variables(&self, asked: &NetworkSpec) -> Vec<(String, String)> {
        if self.has_packages(asked) { self.0.packages.variables() } else { Vec::new() }
    }

    /// Whether the registries of this host are part of it. The operator may have a preset with that name instead.
    fn has_packages(&self, asked: &NetworkSpec) -> bool {
        names_packages(asked) && !self.0.operator.presets.contains_key(NetworkSpec::PACKAGES)
    }

    /// Makes the policy of a session from what is known now.
    fn compile_known(
        &self,
        asked: &NetworkSpec,
        asker: Asker,
        maximum: &NetworkMaximum,
        above: AboveMaximum,
    ) -> Result<SessionPolicy, NetworkError> {
        let packages = self.0.packages.policy();
        self.0.operator.compile(asked, asker, maximum, above, packages.as_ref())
    }

    /// Whether the default is more than the daemon's maximum allows. If it is not known yet what they mean, it is not.
    pub fn check_default(&self) -> Result<(), NetworkError> {
        let checked =
            self.compile_known(&self.0.default, Asker::Trusted, &NetworkMaximum::Daemon, AboveMaximum::Refused);
        match checked {
            Err(error @ NetworkError::AboveMaximum { .. }) => Err(error),
            _ => Ok(()),
        }
    }

    /// Checks that a key may have this maximum.
    pub fn check_maximum(&self, maximum: &NetworkSpec) -> Result<(), NetworkError> {
        let unlimited = NetworkMaximum::Unlimited;
        match self.compile_known(maximum, Asker::Trusted, &unlimited, AboveMaximum::Refused) {
            // It is found out when a session needs it.
            Ok(_) | Err(NetworkError::NothingDetected) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The policy of a session that was admitted, by this daemon or an earlier one. The configuration of now counts: what is above
    /// the maximum is not reached, and if the network or its maximum means nothing any more, nothing is.
    pub fn recall(&self, asked: &NetworkSpec, maximum: &NetworkMaximum, inject: &[InjectionSpec]) -> SessionPolicy {
        let known = self.compile_known(asked, Asker::Trusted, maximum, AboveMaximum::Narrowed);
        let policy = known.unwrap_or_else(|error| {
            tracing::warn!(%error, "the network of a session is not known any more: it reaches nothing");
            let max = self.0.operator.maximum_of(maximum).cloned();
            let (asked, maximum, policy) = (asked.clone(), maximum.clone(), Arc::new(Policy::none()));
            SessionPolicy { asked, maximum, max, policy, injections: Arc::default() }
        });
        let injections = inject::read_all(inject).unwrap_or_else(|error| {
            tracing::warn!(%error, "the headers of a session are not known any more: none is injected");
            Vec::new()
        });
        SessionPolicy { injections: injections.into(), ..policy }
    }

    /// Adds the headers that a session of this owner asks for to its policy, if it may have them.
    pub fn with_injections(
        &self,
        policy: SessionPolicy,
        asked: &[InjectionSpec],
        owner: &KeyName,
    ) -> Result<SessionPolicy, InjectError> {
        let injections = inject::check(asked, &policy.policy, &self.0.secrets, owner)?;
        Ok(SessionPolicy { injections: injections.into(), ..policy })
    }

    pub fn secrets(&self) -> &SecretTable {
        &self.0.secrets
    }

    pub fn authorities(&self) -> &Authorities {
        &self.0.authorities
    }

    fn roots(&self) -> &Roots {
        &self.0.roots
    }

    fn limits(&self) -> NetworkLimits {
        self.0.limits
    }

    fn connections(&self) -> &Arc<Places> {
        &self.0.connections
    }

    fn resolver(&self) -> &Resolver {
        &self.0.resolver
    }

    fn own_host(&self) -> &OwnHost {
        &self.0.own_host
    }

    fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }
}

fn names_packages(network: &NetworkSpec) -> bool {
    match network {
        NetworkSpec::Preset(name) => name == NetworkSpec::PACKAGES,
        NetworkSpec::Rules(rules) => rules.presets.iter().any(|name| name == NetworkSpec::PACKAGES),
    }
}
