//! The caller of a request. Whoever authenticates a request makes the `Caller`; the service trusts it.

use std::sync::Arc;

use shared_protocol::KeyName;
pub use shared_protocol::api::KeyRole as Role;

use crate::key::KeyFacts;
#[cfg(any(test, fuzzing))]
use crate::key::KeySpec;
use crate::owner::{Creator, NetworkMaximum};

/// The API key of a request: its name, its role and its limits. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Caller(Arc<KeyFacts>);

impl Caller {
    pub(super) fn new(key: Arc<KeyFacts>) -> Self {
        Self(key)
    }

    pub fn name(&self) -> &KeyName {
        &self.0.name
    }

    pub fn role(&self) -> Role {
        self.0.role
    }

    /// Whether the caller may see and touch what this owner has.
    pub(super) fn may_touch(&self, owner: &KeyName) -> bool {
        match self.role() {
            Role::Admin => true,
            Role::User => *owner == self.0.name,
        }
    }

    /// The caller as the creator of a session.
    pub(super) fn creator(&self) -> Creator {
        let is_admin = self.role() == Role::Admin;
        let network_maximum = match &self.0.max_network {
            Some(most) => NetworkMaximum::Key(most.clone()),
            None if is_admin => NetworkMaximum::Unlimited,
            None => NetworkMaximum::Daemon,
        };
        Creator {
            owner: self.0.name.clone(),
            limits: self.0.limits,
            sees_totals: is_admin,
            may_reach_private: is_admin,
            network_maximum,
        }
    }

    /// Waits until the caller's key is removed.
    pub async fn removed(&self) {
        self.0.removed().await;
    }

    /// A caller with a key that no table has.
    #[cfg(any(test, fuzzing))]
    pub fn of(name: &str, role: Role) -> Self {
        let name = KeyName::new(name).expect("a name for a test");
        Self(Arc::new(KeyFacts::new(KeySpec::plain(name, role), None)))
    }
}
