//! Pools: sandboxes started ahead.

use serde::{Deserialize, Serialize};

use crate::RuntimeName;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SetPoolRequest {
    /// How many shall wait; 0 ends the pool.
    #[cfg_attr(any(test, feature = "schema"), schemars(range(min = 0, max = 1000)))]
    pub size: u64,
    /// Left out, the daemon's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime: Option<RuntimeName>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct PoolView {
    pub image: String,
    pub runtime: RuntimeName,
    /// How many shall wait.
    pub size: usize,
    /// How many do.
    pub idle: usize,
    /// How many are being started.
    pub starting: usize,
    /// Creates since the pool was made that got a member, and that fitted and found none.
    pub hits: u64,
    pub misses: u64,
    /// Why the last start of a member failed, until one works.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}
