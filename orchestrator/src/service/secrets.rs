//! Use cases for secrets: set, list, remove. No answer contains a value.

use shared_protocol::SecretName;
use shared_protocol::api::{SecretView, SetSecretRequest};

use super::{Caller, Role};
use crate::secret::{SecretError, SecretFacts, SecretTable, SecretValue, read_hosts};
use crate::session::show_wall;

pub struct Secrets {
    table: SecretTable,
}

impl Secrets {
    pub(super) fn new(table: SecretTable) -> Self {
        Self { table }
    }

    /// The secrets of the caller; for an admin, those of everybody.
    pub fn list(&self, caller: &Caller) -> Vec<SecretView> {
        let of = match caller.role() {
            Role::Admin => None,
            Role::User => Some(caller.name()),
        };
        self.table.list(of).into_iter().map(view).collect()
    }

    /// Stores a secret of the caller, or replaces it.
    pub async fn set(
        &self,
        caller: &Caller,
        name: &SecretName,
        request: SetSecretRequest,
    ) -> Result<SecretView, SecretError> {
        let SetSecretRequest { value, hosts } = request;
        let (value, hosts) = (SecretValue::new(value.0)?, read_hosts(&hosts)?);
        Ok(view(self.table.set(caller.name(), name, value, hosts).await?))
    }

    /// Removes a secret of the caller.
    pub async fn remove(&self, caller: &Caller, name: &SecretName) -> Result<(), SecretError> {
        self.table.remove(caller.name(), name).await
    }
}

fn view(facts: SecretFacts) -> SecretView {
    SecretView {
        name: facts.name,
        owner: facts.owner,
        hosts: facts.hosts.iter().map(ToString::to_string).collect(),
        updated_at: show_wall(facts.updated_at),
    }
}
