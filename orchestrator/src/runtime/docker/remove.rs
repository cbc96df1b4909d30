//! Removes a container and everything that was made for it. A missing part is no error.

use bollard::query_parameters::{RemoveContainerOptionsBuilder, WaitContainerOptionsBuilder};
use futures_util::StreamExt as _;
use shared_protocol::SessionId;

use super::kernel::Kernel;
use super::tags::Holder;
use super::{Inner, engine};
use crate::failpoint;
use crate::runtime::{RuntimeError, files};

/// The file in the directory of a sandbox that says that it has a name of its own for its image.
const HAS_IMAGE: &str = "has-image";

impl Inner {
    pub(super) async fn remove(&self, id: &SessionId) -> Result<(), RuntimeError> {
        self.remove_container(id).await?;
        failpoint::at("docker.destroy.container").map_err(|e| RuntimeError::failed("removing the container", e))?;
        let directory = self.directory(id);
        // Most sessions have no name for their image. Whatever is left without a directory may have one.
        if !directory.exists() || directory.join(HAS_IMAGE).exists() {
            self.release_image(Holder::Session(id)).await?;
            failpoint::at("docker.restore.released").map_err(|e| RuntimeError::failed("removing the image", e))?;
        }
        let removed = tokio::task::spawn_blocking(move || files::remove_directory(&directory)).await;
        removed
            .unwrap_or_else(|error| Err(std::io::Error::other(error)))
            .and_then(|()| failpoint::at("docker.destroy.directory"))
            .map_err(|error| RuntimeError::failed("removing the sandbox's directory", error))
    }

    /// Notes that the sandbox has a name for its image, before it gets it.
    pub(super) fn note_image(&self, id: &SessionId) -> std::io::Result<()> {
        std::fs::File::create(self.directory(id).join(HAS_IMAGE)).map(drop)
    }

    /// Removes the container, and keeps the sandbox's directory.
    pub(super) async fn remove_container(&self, id: &SessionId) -> Result<(), RuntimeError> {
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
        Ok(())
    }
}
