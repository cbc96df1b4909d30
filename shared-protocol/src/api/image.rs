//! Images: the root file systems from which sessions are created.

use serde::{Deserialize, Serialize};

use crate::RuntimeName;

/// An image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct ImageView {
    /// The name to give as `image` in a create.
    pub name: String,
    /// The runtime that has this image.
    pub runtime: RuntimeName,
    /// Where the image comes from: `host` for the host's own system, otherwise an imported root file system or a container image.
    pub source: String,
    /// Whether a create without `image` uses this one.
    pub default: bool,
}
