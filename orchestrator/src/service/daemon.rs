//! Use cases of the daemon itself: its images, its pools, its readiness and its metrics.

use std::time::Duration;

use shared_protocol::RuntimeName;
use shared_protocol::api::{ImageView, PoolView};

use super::access::Access;
use super::{Caller, Role};
use crate::metrics::Metrics;
use crate::session::{Registry, SessionError};

/// The time in which a runtime must answer; otherwise the daemon is not ready.
const READY_TIMEOUT: Duration = Duration::from_secs(2);

pub struct Daemon {
    access: Access,
    registry: Registry,
    metrics: Metrics,
}

impl Daemon {
    pub(super) fn new(access: Access, registry: Registry, metrics: Metrics) -> Self {
        Self { access, registry, metrics }
    }

    /// The images that a session can be created from.
    pub async fn images(&self, _caller: &Caller) -> Vec<ImageView> {
        self.registry.images().await
    }

    /// The pools. They tell what others create, so only an admin sees them.
    pub fn pools(&self, caller: &Caller) -> Result<Vec<PoolView>, SessionError> {
        self.access.admin(caller, "listing pools")?;
        Ok(self.registry.pools())
    }

    /// Sets how many sandboxes of an image wait in its pool; 0 closes the pool.
    pub async fn set_pool(
        &self,
        caller: &Caller,
        image: &str,
        runtime: Option<&RuntimeName>,
        size: u64,
    ) -> Result<PoolView, SessionError> {
        self.access.admin(caller, "changing a pool")?;
        self.registry.set_pool(image, runtime, size).await
    }

    /// Checks that every runtime answers and that the store can be written. The error says what is wrong; for a user it says
    /// only that something is, because the reason names parts of the host.
    pub async fn ready(&self, caller: &Caller) -> Result<(), String> {
        self.registry.ready(READY_TIMEOUT).await.map_err(|reason| match caller.role() {
            Role::Admin => reason,
            Role::User => "the daemon's log says why".to_owned(),
        })
    }

    /// The metrics as OpenMetrics text. They count the sessions of all.
    pub fn metrics(&self, caller: &Caller) -> Result<String, SessionError> {
        self.access.admin(caller, "reading metrics")?;
        let text = self.metrics.encode(&self.registry.counts());
        text.map_err(|error| SessionError::Internal(format!("metrics: {error}")))
    }
}
