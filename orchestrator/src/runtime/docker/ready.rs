//! Waits for a runner's socket to accept connections. It does not poll: inotify reports each change of the socket's directory.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use shared_protocol::runner::HealthView;
use tokio::io::unix::AsyncFd;

use crate::runner_client::RunnerClient;

pub struct SocketWatch {
    inotify: Inotify,
    readable: AsyncFd<OwnedFd>,
}

impl SocketWatch {
    /// Begins to watch. Call this before the container is started, so that no change is missed.
    pub fn new(directory: &Path) -> io::Result<Self> {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
        // The runner creates the socket, listens, and then sets mode and owner. So the last event comes when it accepts
        // connections.
        inotify.add_watch(directory, AddWatchFlags::IN_CREATE | AddWatchFlags::IN_ATTRIB)?;
        let readable = crate::sys::async_fd::register_readable(inotify.as_fd().try_clone_to_owned()?)?;
        Ok(Self { inotify, readable })
    }

    /// Returns the runner's first answer. If the runner never answers, this never returns.
    pub async fn answered(&self, runner: &RunnerClient) -> io::Result<HealthView> {
        loop {
            if let Ok(health) = runner.health().await {
                return Ok(health);
            }
            let mut ready = self.readable.readable().await?;
            match self.inotify.read_events() {
                Ok(_) => {}
                Err(Errno::EAGAIN) => ready.clear_ready(),
                Err(error) => return Err(error.into()),
            }
        }
    }
}
