//! The connections of programs to the network, which the runner hands over where the daemon cannot listen in the sandbox itself.

use shared_protocol::runner::TCP_PROTOCOL;

use super::{Attached, RunnerClient, RunnerError};

impl RunnerClient {
    /// Waits for the next connection of a program. It may never come, so there is no limit of time, and a runner that lets this wait
    /// is not doubted.
    pub async fn accept(&self) -> Result<Attached, RunnerError> {
        self.upgrade(self.0.for_network().await?, "/v1/network/accept", TCP_PROTOCOL).await
    }
}
