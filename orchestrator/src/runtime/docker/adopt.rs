//! Takes over a container that an earlier daemon made. Afterwards it is treated like a container of this daemon.
//!
//! **Invariant:** the container is in the table of running ones before it is inspected, so that no end is missed in between.

use std::collections::BTreeMap;
use std::time::Duration;

use shared_protocol::SessionId;

use super::Inner;
use super::kept::SandboxRecord;
use super::request::{DATA_DIR_LABEL, SESSION_LABEL};
use crate::runner_client::RunnerClient;
use crate::runtime::{RunnerAddress, RuntimeError, Sandbox};

/// The longest wait for an answer of a running runner. A runner that is starting gets more time.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// What an earlier daemon gave the container.
struct Found {
    has_engine_network: bool,
    /// Whether its runner has a port for programs that use a proxy.
    has_proxy: bool,
}

impl Inner {
    pub(super) async fn adopt(&self, id: &SessionId) -> Result<Sandbox, RuntimeError> {
        let address = RunnerAddress::Unix(self.socket(id));
        let record = SandboxRecord::read(&self.directory(id));
        let record = record.map_err(|e| RuntimeError::failed("reading the sandbox's record", e))?;
        let ended = self.running.insert(id, self.socket(id), record.and_then(|record| record.container));
        match self.find_and_ask(id, &address).await {
            Ok(found) => {
                let network =
                    if found.has_engine_network { None } else { self.open_network(id, found.has_proxy).await };
                Ok(Sandbox { address, ended, network, start_dir: None, state: None, newer_variables: BTreeMap::new() })
            }
            Err(error) => {
                self.running.remove(id);
                Err(error)
            }
        }
    }

    /// Asks the engine once and the runner once: hundreds of containers may be adopted at the same time, and the engine is slow.
    async fn find_and_ask(&self, id: &SessionId, address: &RunnerAddress) -> Result<Found, RuntimeError> {
        let made = self.docker.inspect_container(&self.name(id), None).await;
        let made = made.map_err(|error| self.gone_or(id, "inspecting the container", error))?;
        let mode = made.host_config.and_then(|host| host.network_mode);
        let has_engine_network = mode.is_some_and(|mode| mode != "none");
        let labels = made.config.and_then(|config| config.labels).unwrap_or_default();
        let has = |label: &str, value: &str| labels.get(label).is_some_and(|found| found == value);
        if !has(DATA_DIR_LABEL, &self.instance) || !has(SESSION_LABEL, id.as_str()) {
            // The container has a name of this daemon, but a daemon with another data directory made it.
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
            Ok(Ok(health)) => {
                if health.copies_disk {
                    // A daemon that died during a snapshot or a stop has left its processes held.
                    self.release(id).await?;
                    self.forget_kept(id).await?;
                }
                Ok(Found { has_engine_network, has_proxy: health.network_proxy })
            }
            Ok(Err(error)) => Err(RuntimeError::failed("asking the runner", error)),
            Err(elapsed) => Err(RuntimeError::failed("asking the runner", elapsed)),
        }
    }
}
