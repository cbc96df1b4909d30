//! API keys: who may use the daemon, in which role, and with which limits.

use serde::{Deserialize, Serialize};

use super::NetworkSpec;
use crate::KeyName;

/// What a key may do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum KeyRole {
    /// Sees and touches everything, and manages keys, pools and the daemon.
    Admin,
    /// Sees and touches only its own sessions and workspaces.
    #[default]
    User,
}

impl KeyRole {
    pub const ALL: [Self; 2] = [Self::Admin, Self::User];

    /// The name that the wire uses.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::User => "user",
        }
    }
}

impl std::str::FromStr for KeyRole {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|role| role.as_str() == text);
        found.ok_or_else(|| format!("{text:?} is not a role: use admin or user"))
    }
}

/// A key to create.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CreateKeyRequest {
    /// The name of the key. Sessions and workspaces that are created with the key have it as their `owner`.
    pub name: KeyName,
    /// What the key may do. The default is `user`.
    #[serde(default)]
    pub role: KeyRole,
    /// How many sessions the key may have at a time. Without it, only the daemon's own limits apply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_sessions: Option<u64>,
    /// How much memory all sessions of the key may have together, in MiB. Without it, only the daemon's own limits apply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_memory_mb: Option<u64>,
    /// The most that sessions of the key may reach, as a preset or rules. It replaces the daemon's maximum. Without it, a key with the
    /// role `user` has the daemon's maximum, and one with the role `admin` has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_network: Option<NetworkSpec>,
}

/// A key, without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct KeyView {
    /// The name of the key.
    pub name: KeyName,
    /// What the key may do.
    pub role: KeyRole,
    /// How many sessions the key may have at a time; absent if only the daemon's own limits apply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_sessions: Option<u64>,
    /// How much memory all sessions of the key may have together, in MiB; absent if only the daemon's own limits apply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_memory_mb: Option<u64>,
    /// The most that sessions of the key may reach; absent if it has no maximum of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_network: Option<NetworkSpec>,
    /// How many sessions the key has now.
    pub sessions: u64,
    /// The memory limits of these sessions together, in MiB.
    pub memory_mb: u64,
    /// When the key was created: RFC 3339 in UTC with milliseconds. Absent for the first key, which the daemon's configuration
    /// or its data directory has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<String>,
}

/// All keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct KeyList {
    /// The keys: the first key, then the others by name.
    pub keys: Vec<KeyView>,
}

/// A new key with its secret. The daemon stores only a hash of the secret, so this is the only answer that contains it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct NewKeyView {
    /// The secret to send as `Authorization: Bearer SECRET`.
    pub secret: String,
    /// The key.
    pub key: KeyView,
}
