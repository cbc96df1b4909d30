//! The use cases of the daemon: they define what an exec, a file call or a create means. The fronts (today `api`) call them.
//!
//! ```text
//!  front: takes a request apart ──▶ a checked value (ExecSpec, SandboxPath, …) ──▶ one use case ──▶ a domain value | an error
//! ```
//!
//! **Check first, touch later.** A use case takes values that only a pure check can make (`ExecSpec::for_reply`,
//! `SandboxPath::new`, …), and begins its activity in the session itself. So an invalid request never wakes a paused session
//! and never renews its lifetime. An [`Activity`](crate::session::Activity) does not leave this module.
//!
//! **The caller** of a use case is a [`Caller`]. Only `access` decides what a caller may touch.
//!
//! **Invariant:** nothing here knows a transport: no request, no header, no status code. `tests/tests/layers` checks it.

mod access;
mod caller;
pub mod commands;
mod daemon;
mod error;
pub mod files;
mod images;
mod in_sandbox;
mod keys;
mod network;
pub mod output;
pub mod ports;
mod secrets;
mod sessions;
pub mod shells;
mod snapshots;
pub mod tools;
pub mod workspaces;

use std::sync::Arc;

use shared_protocol::api::WorkspaceView;

pub use access::WorkspaceAddress;
pub use caller::{Caller, Role};
pub use commands::Commands;
pub use daemon::Daemon;
pub use error::{CallError, ImagesError, InvalidRequest, KeysError};
pub use files::Files;
pub use images::{Images, PullEvent, PullStream};
pub use keys::Keys;
pub use network::{DecisionStream, Networks, Refresh};
pub use ports::Ports;
pub use secrets::Secrets;
pub use sessions::{CreateEvent, CreateStream, Creation, Sessions};
pub use shells::Shells;
pub use snapshots::Snapshots;
pub use tools::Tools;

pub use crate::secret::SecretError;
pub use crate::session::{SessionError, SessionFilter};

use crate::config::ExecConfig;
use crate::image::Puller;
use crate::key::KeyTable;
use crate::metrics::Metrics;
use crate::network::Network;
use crate::session::Registry;
use access::Access;
use workspaces::Workspaces;

/// The parts that a service is made of.
pub struct ServiceParts {
    pub registry: Registry,
    pub keys: KeyTable,
    pub workspaces: Workspaces,
    pub network: Network,
    pub metrics: Metrics,
    pub exec: ExecConfig,
    pub puller: Puller,
    /// The key that links to ports are signed with.
    pub link_key: ports::LinkKey,
}

/// All use cases, by area. Cheap to clone.
#[derive(Clone)]
pub struct Service(Arc<Areas>);

struct Areas {
    sessions: Sessions,
    snapshots: Snapshots,
    commands: Commands,
    shells: Shells,
    files: Files,
    ports: Ports,
    daemon: Daemon,
    images: Arc<Images>,
    keys: Keys,
    networks: Networks,
    secrets: Secrets,
    tools: Tools,
    workspaces: Workspaces,
    access: Access,
}

impl Service {
    pub fn new(parts: ServiceParts) -> Self {
        let ServiceParts { registry, keys, workspaces, network, metrics, exec, puller, link_key } = parts;
        let access = Access::new(registry.clone(), workspaces.clone());
        let images = Arc::new(Images::new(access.clone(), registry.clone(), puller));
        Self(Arc::new(Areas {
            sessions: Sessions::new(access.clone(), registry.clone(), images.clone()),
            snapshots: Snapshots::new(access.clone(), registry.clone()),
            tools: Tools::new(
                access.clone(),
                Commands::new(access.clone(), registry.clone(), metrics.clone(), exec.clone()),
                Shells::new(access.clone(), metrics.clone()),
            ),
            images,
            commands: Commands::new(access.clone(), registry.clone(), metrics.clone(), exec),
            shells: Shells::new(access.clone(), metrics.clone()),
            files: Files::new(access.clone(), metrics.clone()),
            ports: Ports::new(access.clone(), metrics.clone(), link_key),
            keys: Keys::new(access.clone(), keys, registry.clone(), network.clone()),
            secrets: Secrets::new(network.secrets().clone()),
            networks: Networks::new(access.clone(), registry.clone(), network),
            daemon: Daemon::new(access.clone(), registry, metrics),
            workspaces,
            access,
        }))
    }

    pub fn sessions(&self) -> &Sessions {
        &self.0.sessions
    }

    pub fn snapshots(&self) -> &Snapshots {
        &self.0.snapshots
    }

    pub fn commands(&self) -> &Commands {
        &self.0.commands
    }

    pub fn shells(&self) -> &Shells {
        &self.0.shells
    }

    pub fn files(&self) -> &Files {
        &self.0.files
    }

    pub fn ports(&self) -> &Ports {
        &self.0.ports
    }

    pub fn daemon(&self) -> &Daemon {
        &self.0.daemon
    }

    pub fn images(&self) -> &Images {
        &self.0.images
    }

    pub fn networks(&self) -> &Networks {
        &self.0.networks
    }

    pub fn secrets(&self) -> &Secrets {
        &self.0.secrets
    }

    pub fn tools(&self) -> &Tools {
        &self.0.tools
    }

    pub fn keys(&self) -> &Keys {
        &self.0.keys
    }

    /// Lists the workspaces that a caller may see.
    pub async fn list_workspaces(&self, caller: &Caller) -> Result<Vec<WorkspaceView>, SessionError> {
        self.0.workspaces.list(self.0.access.workspaces_of(caller)).await
    }

    /// Makes an empty workspace. One that exists stays as it is.
    pub async fn create_workspace(&self, caller: &Caller, address: &WorkspaceAddress) -> Result<(), SessionError> {
        let name = self.0.access.workspace(caller, address)?;
        self.0.workspaces.create(&name).await
    }

    /// Deletes a workspace. If sessions use it, this is refused, or with `force` the sessions are destroyed.
    pub async fn delete_workspace(
        &self,
        caller: &Caller,
        address: &WorkspaceAddress,
        force: bool,
    ) -> Result<(), SessionError> {
        let name = self.0.access.workspace(caller, address)?;
        self.0.workspaces.delete(&name, force).await
    }
}
