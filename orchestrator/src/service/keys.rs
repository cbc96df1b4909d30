//! Use cases for API keys: create, list, remove, and tell whose a secret is.

use std::sync::Arc;
use std::time::SystemTime;

use shared_protocol::KeyName;
use shared_protocol::api::{CreateKeyRequest, KeyView, NewKeyView};

use super::Caller;
use super::access::Access;
use super::error::KeysError;
use crate::key::{KeyFacts, KeySpec, KeyTable};
use crate::network::Network;
use crate::owner::OwnerLimits;
use crate::session::{Registry, SessionError, show_wall};

#[derive(Clone)]
pub struct Keys {
    access: Access,
    table: KeyTable,
    registry: Registry,
    network: Network,
}

impl Keys {
    pub(super) fn new(access: Access, table: KeyTable, registry: Registry, network: Network) -> Self {
        Self { access, table, registry, network }
    }

    /// The caller with this secret.
    pub fn identify(&self, secret: &[u8]) -> Option<Caller> {
        self.table.identify(secret).map(Caller::new)
    }

    pub fn list(&self, caller: &Caller) -> Result<Vec<KeyView>, KeysError> {
        self.access.admin(caller, "listing keys")?;
        Ok(self.table.list().iter().map(|facts| self.view(facts)).collect())
    }

    pub async fn create(&self, caller: &Caller, request: CreateKeyRequest) -> Result<NewKeyView, KeysError> {
        self.access.admin(caller, "creating a key")?;
        let CreateKeyRequest { name, role, max_sessions, max_memory_mb, max_network } = request;
        if let Some(max) = &max_network {
            self.network.check_maximum(max).map_err(SessionError::from)?;
        }
        let spec = KeySpec { name, role, limits: OwnerLimits { max_sessions, max_memory_mb }, max_network };
        let (secret, facts) = self.table.add(spec, SystemTime::now()).await?;
        Ok(NewKeyView { secret: secret.into_string(), key: self.view(&facts) })
    }

    /// Removes a key. What it owns stays, and belongs to the next key with that name.
    pub async fn remove(&self, caller: &Caller, name: &KeyName) -> Result<(), KeysError> {
        self.access.admin(caller, "removing a key")?;
        Ok(self.table.remove(name).await?)
    }

    fn view(&self, facts: &Arc<KeyFacts>) -> KeyView {
        let usage = self.registry.usage_of(&facts.name);
        KeyView {
            name: facts.name.clone(),
            role: facts.role,
            max_sessions: facts.limits.max_sessions,
            max_memory_mb: facts.limits.max_memory_mb,
            max_network: facts.max_network.clone(),
            sessions: usage.sessions,
            memory_mb: usage.memory_mb,
            created_at: facts.created_at.map(show_wall),
        }
    }
}
