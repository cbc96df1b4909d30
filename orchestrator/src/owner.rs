//! Owners: for whom a session is created, and whose a workspace is. Values that keys, sessions, workspaces and the service share.

use serde::{Deserialize, Serialize};
use shared_protocol::api::NetworkSpec;
use shared_protocol::{KeyName, WorkspaceId};

/// The limits of one key, in addition to those of the daemon. `None` means that only the daemon's apply.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OwnerLimits {
    pub max_sessions: Option<u64>,
    pub max_memory_mb: Option<u64>,
}

/// The most that a session may reach, by the key that chose its network. The store keeps it with the session, so that it holds
/// after a restart too.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NetworkMaximum {
    /// The daemon's maximum, as its configuration is now.
    #[default]
    Daemon,
    /// The maximum of the key.
    Key(NetworkSpec),
    /// No maximum.
    Unlimited,
}

impl NetworkMaximum {
    pub fn is_daemons(&self) -> bool {
        *self == Self::Daemon
    }
}

/// The caller of a create, as the registry knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Creator {
    /// The name of the key, which becomes the owner of the session.
    pub owner: KeyName,
    pub limits: OwnerLimits,
    /// Whether a refusal may say how much of the daemon is in use: that is the number of other owners' sessions.
    pub sees_totals: bool,
    /// Whether the session may have network rules that reach private addresses.
    pub may_reach_private: bool,
    pub network_maximum: NetworkMaximum,
}

impl Creator {
    /// The holder of the first key, who has no limits but the daemon's.
    pub fn first() -> Self {
        Self {
            owner: KeyName::first(),
            limits: OwnerLimits::default(),
            sees_totals: true,
            may_reach_private: true,
            network_maximum: NetworkMaximum::Unlimited,
        }
    }
}

/// What the sessions of one owner have of the limits now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OwnerUsage {
    pub sessions: u64,
    pub memory_mb: u64,
}

/// A workspace of one owner. Each owner has names of its own, so nobody can find out which names others use.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WorkspaceName {
    pub owner: KeyName,
    pub id: WorkspaceId,
}
