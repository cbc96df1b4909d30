//! Pauses and resumes a container. The table of running containers knows which containers this daemon paused.

use shared_protocol::SessionId;

use super::Inner;
use crate::runtime::RuntimeError;

/// How often a pause is tried. runc gives up ("unable to freeze") if processes of the container are started faster than it can stop
/// them, as on a busy host while the container's shell starts. It leaves the container running then.
const MAX_PAUSES: u32 = 3;

impl Inner {
    pub(super) async fn pause(&self, id: &SessionId) -> Result<(), RuntimeError> {
        self.running.set_paused_by_us(id, true);
        let mut tries = 1;
        loop {
            let Err(error) = self.docker.pause_container(&self.name(id)).await else { return Ok(()) };
            match self.is_paused(id).await {
                Some(true) => return Ok(()),
                Some(false) if tries < MAX_PAUSES => tries += 1,
                _ => {
                    self.running.set_paused_by_us(id, false);
                    return Err(self.gone_or(id, "pausing the container", error));
                }
            }
        }
    }

    pub(super) async fn resume(&self, id: &SessionId) -> Result<(), RuntimeError> {
        let resumed = self.docker.unpause_container(&self.name(id)).await;
        self.running.set_paused_by_us(id, false);
        match resumed {
            Err(error) if self.is_paused(id).await != Some(false) => {
                Err(self.gone_or(id, "resuming the container", error))
            }
            _ => Ok(()),
        }
    }

    /// Whether the container is paused. It is asked first, because engines answer differently if the state is already the
    /// wanted one. `None` if the container does not run.
    async fn is_paused(&self, id: &SessionId) -> Option<bool> {
        let state = self.docker.inspect_container(&self.name(id), None).await.ok()?.state?;
        state.paused.filter(|_| state.running == Some(true))
    }
}
