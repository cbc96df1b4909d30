//! The network of containers. A container has no interface but loopback; the daemon opens the way out of its network namespace as
//! it does for sandboxes of the `local` runtime, if it may: it must be root, and the container must use the host's kernel. Whatever name
//! server the engine writes into the container, none or one of the host's, its queries reach the daemon. If it may not, the runner has
//! a port for programs that use a proxy, and hands their connections over.
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
use crate::runtime::{Purpose, RuntimeError, SandboxSpec, WayOut, netns};
use crate::sys::pidfd;

/// The port of the proxy, one of those that are Cove's own. Clients refuse to talk to some of the others.
const PROXY_PORT: u16 = 8;

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
        Ok(())
    }

    /// The port of the loopback that the runner of a new container opens for programs that use a proxy.
    pub(super) fn proxy_port(&self, spec: &SandboxSpec) -> Option<u16> {
        let is_carried = spec.purpose == Purpose::Session && self.engine_network(&spec.session.network).is_none();
        (is_carried && !self.can_open_network()).then_some(PROXY_PORT)
    }

    /// Opens the way out of a running container that has no network of the engine. `has_proxy` says whether its runner has a port
    /// for it.
    pub(super) async fn open_network(&self, id: &SessionId, has_proxy: bool) -> Option<WayOut> {
        if !self.can_open_network() {
            if !has_proxy {
                tracing::warn!(session_id = %id, "the sandbox has no way to the network: its runner was started without one");
            }
            return has_proxy.then_some(WayOut::Proxy { port: PROXY_PORT });
        }
        let opened = match self.runner_process(id) {
            Ok(process) => netns::open_by_thread(process).await,
            Err(error) => Err(error),
        };
        opened
            .inspect_err(|error| tracing::warn!(session_id = %id, %error, "the sandbox has no way to the network"))
            .map(WayOut::Sockets)
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
