//! Ports: links that open a server inside a sandbox in a browser.

use serde::{Deserialize, Serialize};

/// How long a link is good if the request does not say: one hour.
pub const DEFAULT_LINK_SECONDS: u64 = 3600;

/// The longest life of a link: 30 days.
pub const MAX_LINK_SECONDS: u64 = 30 * 24 * 3600;

/// The link to make.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PortUrlRequest {
    /// How long the link is good, in seconds. The default is one hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(any(test, feature = "schema"), schemars(range(min = 1, max = 2_592_000)))]
    pub ttl_seconds: Option<u64>,
}

/// A link to one port of one session. Whoever has it can use that port until it expires.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct PortUrlView {
    /// The address to open, with its token.
    pub url: String,
    /// When the link expires, as RFC 3339 in UTC.
    pub expires_at: String,
}
