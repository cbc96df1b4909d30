//! The network of containers. A container has no interface but loopback; the daemon opens the way out of its network namespace as
//! it does for sandboxes of the `local` runtime, if it may: it must be root, and the container must use the host's kernel. Whatever name
//! server the engine writes into the container, none or one of the host's, its queries reach the daemon.
//!
//! The setting `docker.network` names a network of the engine instead, for the sessions with the network `full`: for those who
//! need UDP.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use shared_protocol::SessionId;
use shared_protocol::api::NetworkSpec;

use super::Inner;
use super::kernel::Kernel;
use crate::runtime::{RuntimeError, SandboxSockets, netns};
use crate::sys::pidfd;

impl Inner {
    /// The network of the engine that a session gets. `None`: it has only loopback, and what the daemon carries.
    pub(super) fn engine_network(&self, network: &NetworkSpec) -> Option<&str> {
        self.config.network.as_deref().filter(|_| network.is_full())
    }

    fn can_open_network(&self) -> bool {
        self.kernel == Kernel::Host && nix::unistd::geteuid().is_root()
    }

    pub(super) fn opens_network(&self, network: &NetworkSpec) -> Result<(), RuntimeError> {
        if self.engine_network(network).is_some() {
            if self.has_network {
                return Ok(());
            }
            let why = "the engine's runtime is set to have no network (--network=none in its runtimeArgs)";
            return Err(RuntimeError::Unsupported(why.into()));
        }
        if self.can_open_network() {
            return Ok(());
        }
        let why = match self.kernel {
            Kernel::Gvisor => "containers with gVisor have their own kernel, and no way to the daemon's network yet",
            Kernel::Host => "only a daemon that runs as root can open the network of containers",
        };
        Err(RuntimeError::Unsupported(format!(
            "{why}: leave network out, or set docker.network to a network of the engine for sessions with network full"
        )))
    }

    /// Opens the way out of a running container.
    pub(super) async fn open_network(&self, id: &SessionId, network: Option<&NetworkSpec>) -> Option<SandboxSockets> {
        if !self.can_open_network() || network.is_some_and(|network| self.engine_network(network).is_some()) {
            return None;
        }
        let opened = match self.runner_process(id) {
            Ok(process) => netns::open_by_thread(process).await,
            Err(error) => Err(error),
        };
        opened
            .inspect_err(|error| tracing::warn!(session_id = %id, %error, "the sandbox has no way to the network"))
            .ok()
    }

    /// The runner's process, as the kernel knows it: the process that listens on the runner's socket. The engine's own number may
    /// be of another pid namespace than the daemon's.
    fn runner_process(&self, id: &SessionId) -> io::Result<OwnedFd> {
        let listener = || -> io::Result<i32> {
            let credentials = getsockopt(&UnixStream::connect(self.socket(id))?, PeerCredentials)?;
            match credentials.pid() {
                0 => Err(io::Error::other("the runner is in a pid namespace that the daemon does not see")),
                pid => Ok(pid),
            }
        };
        let pid = listener()?;
        let process = pidfd::open(pid)?;
        // It listens after the descriptor was opened, so the descriptor is of this process and no later one.
        if listener()? != pid {
            return Err(io::Error::other("the runner has been replaced"));
        }
        Ok(process)
    }
}
