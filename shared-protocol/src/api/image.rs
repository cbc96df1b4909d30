//! What a session can be created from.

use serde::{Deserialize, Serialize};

use crate::RuntimeName;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct ImageView {
    pub name: String,
    pub runtime: RuntimeName,
    /// What the name stands for: `host`, or an imported root file system.
    pub source: String,
    /// Whether it is what a create without `image` gets.
    pub default: bool,
}
