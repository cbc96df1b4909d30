//! What sessions reach over the network.
//!
//! A sandbox has no network interface. Its programs reach two sockets that the daemon holds (`runtime::netns`), and the daemon
//! alone decides, resolves and dials:
//!
//! ```text
//!  program ─▶ gateway ─▶ connection ─▶ policy: may it? ─▶ dial ─▶ copy both ways, with limits
//!                 └────▶ dns ────────▶ policy: may it? ─▶ the host's resolver ─▶ names: which address has which name
//! ```
//!
//! `session` is what one session has: its policy, its names, its log and its meter. `presets` makes policies from what clients
//! ask for, and `packages` finds out which registries this host uses. `inspector` looks at what programs say, so that a
//! connection to an allowed name cannot be used for another one.
//!
//! **Invariant:** an address is checked by the policy right before it is dialled, and no other is dialled.

mod chunked;
mod connection;
mod copy;
mod dns;
mod gateway;
mod inspector;
mod limits;
mod log;
mod names;
mod own_host;
mod packages;
mod presets;
mod resolver;
mod session;

use std::path::Path;
use std::sync::Arc;

use network_policy::Policy;
use shared_protocol::api::NetworkSpec;

pub use gateway::Gateway;
pub use limits::{DEFAULT_CONNECTIONS, NetworkLimits};
pub use packages::{DetectError, Packages};
pub use presets::{Asker, NetworkError, OwnPresets, of_rules};
pub use session::{SessionNetwork, SessionPolicy};

use self::own_host::OwnHost;
use self::resolver::Resolver;
use crate::metrics::Metrics;

/// What all sessions share. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Network(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    resolver: Resolver,
    own_host: OwnHost,
    limits: NetworkLimits,
    presets: OwnPresets,
    default: NetworkSpec,
    packages: Packages,
    metrics: Metrics,
}

/// The settings of the network.
#[derive(Debug, Clone)]
pub struct NetworkParts {
    pub limits: NetworkLimits,
    pub presets: OwnPresets,
    /// What a session gets that asks for nothing.
    pub default: NetworkSpec,
    /// The ports on which the daemon listens.
    pub daemon_ports: Vec<u16>,
    pub metrics: Metrics,
}

impl Network {
    /// Reads what is known of this host's registries from the data directory.
    pub fn new(data_dir: &Path, parts: NetworkParts) -> Self {
        Self::with(Packages::open(data_dir), parts)
    }

    fn with(packages: Packages, parts: NetworkParts) -> Self {
        Self(Arc::new(Shared {
            resolver: Resolver::default(),
            own_host: OwnHost::new(parts.daemon_ports),
            limits: parts.limits,
            presets: parts.presets,
            default: parts.default,
            packages,
            metrics: parts.metrics,
        }))
    }

    /// A network of its own, on a host without package managers.
    #[cfg(any(test, fuzzing))]
    pub fn for_test() -> Self {
        let parts = NetworkParts {
            limits: NetworkLimits::default(),
            presets: OwnPresets::new(),
            default: NetworkSpec::default(),
            daemon_ports: Vec::new(),
            metrics: Metrics::new(),
        };
        Self::with(Packages::of_nobody(), parts)
    }

    pub fn default_spec(&self) -> &NetworkSpec {
        &self.0.default
    }

    pub fn packages(&self) -> &Packages {
        &self.0.packages
    }

    /// Makes the policy of a session. `packages` may have to be found out first, which takes seconds.
    pub async fn compile(&self, asked: &NetworkSpec, asker: Asker) -> Result<SessionPolicy, NetworkError> {
        let is_packages = matches!(asked, NetworkSpec::Preset(name) if name == NetworkSpec::PACKAGES);
        if is_packages && !self.0.presets.contains_key(NetworkSpec::PACKAGES) {
            self.0.packages.find_out_once().await;
        }
        self.compile_known(asked, asker)
    }

    /// Makes the policy of a session from what is known now.
    pub fn compile_known(&self, asked: &NetworkSpec, asker: Asker) -> Result<SessionPolicy, NetworkError> {
        let packages = self.0.packages.policy();
        presets::compile(asked, asker, &self.0.presets, packages.as_ref())
    }

    /// The policy of a session of an earlier daemon. If it means nothing any more, the session reaches nothing.
    pub fn recall(&self, asked: &NetworkSpec) -> SessionPolicy {
        self.compile_known(asked, Asker::Trusted).unwrap_or_else(|error| {
            tracing::warn!(%error, "the network of a session is not known any more: it reaches nothing");
            SessionPolicy { asked: asked.clone(), policy: Arc::new(Policy::none()) }
        })
    }

    fn limits(&self) -> NetworkLimits {
        self.0.limits
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
