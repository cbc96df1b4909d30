//! Speaks to the runner of one sandbox.

use crate::runtime::RunnerAddress;

#[derive(Debug, Clone)]
pub struct RunnerClient {
    #[expect(dead_code, reason = "the client's calls come with it")]
    address: RunnerAddress,
}

impl RunnerClient {
    pub fn new(address: RunnerAddress) -> Self {
        Self { address }
    }
}
