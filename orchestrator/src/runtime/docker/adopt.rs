//! A container of an earlier daemon, found again by its name: it is watched and reached as if it had been made by this one.
//!
//! **Invariant:** it is in the table of live ones before it is looked at for the last time, so that no end is missed in between.

use std::time::Duration;

use shared_protocol::SessionId;

use super::Inner;
use super::body::{DATA_DIR_LABEL, SESSION_LABEL};
use crate::runner_client::RunnerClient;
use crate::runtime::{RunnerAddress, RuntimeError, Sandbox};

/// For a runner that has been there for long; less than for one that starts.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

impl Inner {
    pub(super) async fn adopt(&self, id: &SessionId) -> Result<Sandbox, RuntimeError> {
        let made = self.docker.inspect_container(&self.name(id), None).await;
        let made = made.map_err(|error| self.gone_or(id, "looking at the container", error))?;
        let labels = made.config.and_then(|config| config.labels).unwrap_or_default();
        let has = |label: &str, value: &str| labels.get(label).is_some_and(|found| found == value);
        if !has(DATA_DIR_LABEL, &self.instance) || !has(SESSION_LABEL, id.as_str()) {
            // Whoever made it, it was not us.
            return Err(RuntimeError::Gone(id.clone()));
        }
        let state = made.state.unwrap_or_default();
        if state.running != Some(true) {
            return Err(RuntimeError::Gone(id.clone()));
        }
        let address = RunnerAddress::Unix(self.socket(id));
        let ended = self.live.insert(id, self.socket(id));
        match self.wake_and_ask(id, &address, state.paused == Some(true)).await {
            Ok(()) => Ok(Sandbox { address, ended }),
            Err(error) => {
                self.live.remove(id);
                Err(error)
            }
        }
    }

    async fn wake_and_ask(&self, id: &SessionId, address: &RunnerAddress, paused: bool) -> Result<(), RuntimeError> {
        if paused {
            self.resume(id).await?;
        }
        // It may have ended before it was in the table, when nobody was told.
        if self.pid(id).await.is_none() {
            return Err(RuntimeError::Gone(id.clone()));
        }
        let runner = RunnerClient::new(address.clone());
        match tokio::time::timeout(ANSWER_TIMEOUT, runner.health()).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(RuntimeError::failed("asking the runner", error)),
            Err(elapsed) => Err(RuntimeError::failed("asking the runner", elapsed)),
        }
    }
}
