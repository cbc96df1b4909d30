//! Removes a container and everything that was made for it. A missing part is no error.

use bollard::query_parameters::{RemoveContainerOptionsBuilder, WaitContainerOptionsBuilder};
use futures_util::StreamExt as _;
use shared_protocol::SessionId;

use super::kernel::Kernel;
use super::{Inner, engine};
use crate::failpoint;
use crate::runtime::RuntimeError;

impl Inner {
    pub(super) async fn remove(&self, id: &SessionId) -> Result<(), RuntimeError> {
        // From here on the container's end is not reported.
        self.running.remove(id);
        let name = self.name(id);
        if self.kernel == Kernel::Gvisor {
            // A paused gVisor does not react to KILL: the engine would wait for ten seconds and give up. For a container
            // that is not paused this call fails, which does not matter.
            let _ = self.docker.unpause_container(&name).await;
        }
        let options = RemoveContainerOptionsBuilder::new().force(true).v(true).build();
        match self.docker.remove_container(&name, Some(options)).await {
            Ok(()) => {}
            Err(error) if engine::is_missing(&error) => {}
            Err(error) if engine::is_conflict(&error) => {
                // Another client of the engine is removing it.
                let options = WaitContainerOptionsBuilder::new().condition("removed").build();
                let mut removed = std::pin::pin!(self.docker.wait_container(&name, Some(options)));
                let _ = removed.next().await;
                if self.docker.inspect_container(&name, None).await.is_ok() {
                    return Err(engine::failed("removing the container", error));
                }
            }
            Err(error) => return Err(engine::failed("removing the container", error)),
        }
        failpoint::at("docker.destroy.container").map_err(|e| RuntimeError::failed("removing the container", e))?;
        let directory = self.directory(id);
        let removed = tokio::task::spawn_blocking(move || std::fs::remove_dir_all(directory)).await;
        match removed.unwrap_or_else(|error| Err(std::io::Error::other(error))) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(RuntimeError::failed("removing the sandbox's directory", error))
            }
            _ => failpoint::at("docker.destroy.directory")
                .map_err(|e| RuntimeError::failed("removing the sandbox's directory", e)),
        }
    }
}
