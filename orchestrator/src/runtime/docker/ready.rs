//! Waiting for a runner's socket to be there, told by the kernel and not by looking again and again.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::runner_client::RunnerClient;

pub struct SocketWatch {
    inotify: Inotify,
    readable: AsyncFd<OwnedFd>,
}

impl SocketWatch {
    /// Before whoever makes the socket is started.
    pub fn new(directory: &Path) -> io::Result<Self> {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
        // A socket is made, then listened on, then given its mode and owner: the last of these comes when it accepts.
        inotify.add_watch(directory, AddWatchFlags::IN_CREATE | AddWatchFlags::IN_ATTRIB)?;
        let readable = crate::sys::pidfd::register(inotify.as_fd().try_clone_to_owned()?, Interest::READABLE)?;
        Ok(Self { inotify, readable })
    }

    /// Returns once the runner answers. Never, if it never does.
    pub async fn answered(&self, runner: &RunnerClient) -> io::Result<()> {
        loop {
            if runner.health().await.is_ok() {
                return Ok(());
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
