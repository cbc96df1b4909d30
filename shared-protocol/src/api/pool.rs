//! Pools: sandboxes that are started before anybody asks for them.

use serde::{Deserialize, Serialize};

use crate::RuntimeName;

/// The size of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SetPoolRequest {
    /// How many sandboxes to keep ready. 0 removes the pool.
    #[cfg_attr(any(test, feature = "schema"), schemars(range(min = 0, max = 1000)))]
    pub size: u64,
    /// The runtime that makes the sandboxes. The default is the daemon's default runtime.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime: Option<RuntimeName>,
}

/// A pool and how it is used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct PoolView {
    /// The image of the pool's sandboxes.
    pub image: String,
    /// The runtime that makes them.
    pub runtime: RuntimeName,
    /// How many sandboxes the pool keeps ready.
    pub size: usize,
    /// How many are ready now.
    pub idle: usize,
    /// How many are being started.
    pub starting: usize,
    /// How many creates got a sandbox from the pool, since the pool was made.
    pub hits: u64,
    /// How many creates the pool could have served but had no sandbox ready for, since the pool was made.
    pub misses: u64,
    /// Why the last start of a sandbox for the pool failed; absent once a start works again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}
