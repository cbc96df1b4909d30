//! What a runner that was started ahead is told when it becomes somebody's.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Names and values together: half of what Linux gives one program for its arguments and its environment.
pub const MAX_ENV_BYTES: usize = 1 << 20;

/// Linux takes no single string that is longer, its name and NUL included.
pub const MAX_ENV_VALUE_BYTES: usize = 120 << 10;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ClaimRequest {
    /// Variables of every shell and run from now on, as if the sandbox had begun with them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
}
