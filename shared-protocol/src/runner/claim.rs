//! The claim: what a runner in a pooled sandbox is told when the sandbox goes to a session.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The most bytes of names and values together: half of what Linux gives one program for its arguments and environment.
pub const MAX_ENV_BYTES: usize = 1 << 20;

/// The most bytes of one variable, its name included: Linux refuses a longer string.
pub const MAX_ENV_VALUE_BYTES: usize = 120 << 10;

/// What the runner of a pooled sandbox learns when a session claims the sandbox.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ClaimRequest {
    /// Environment variables for every shell and run from now on, as if the sandbox had started with them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
}
