//! A container of an earlier daemon, found again by its name: it is watched and reached as if it had been made by this one.
//!
//! **Invariant:** it is in the table of live ones before it is looked at, so that no end is missed in between.

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
        let address = RunnerAddress::Unix(self.socket(id));
        let ended = self.live.insert(id, self.socket(id));
        match self.find_and_ask(id, &address).await {
            Ok(()) => Ok(Sandbox { address, ended }),
            Err(error) => {
                self.live.remove(id);
                Err(error)
            }
        }
    }

    /// One look and one question: hundreds may be taken over at once, and the engine is what takes long.
    async fn find_and_ask(&self, id: &SessionId, address: &RunnerAddress) -> Result<(), RuntimeError> {
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
        if state.paused == Some(true) {
            self.resume(id).await?;
        }
        let runner = RunnerClient::new(address.clone());
        match tokio::time::timeout(ANSWER_TIMEOUT, runner.health()).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(RuntimeError::failed("asking the runner", error)),
            Err(elapsed) => Err(RuntimeError::failed("asking the runner", elapsed)),
        }
    }
}
