//! All secrets, in memory. One task at a time changes them, so that memory and files agree.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::SystemTime;

use network_policy::HostName;
use shared_protocol::{KeyName, SecretName};

use super::{Secret, SecretError, SecretFacts, SecretValue, file};
use crate::disk::DiskThreads;

/// The most secrets of one owner.
pub const MAX_SECRETS: usize = 256;

/// Cheap to clone.
#[derive(Debug, Clone)]
pub struct SecretTable(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    directory: PathBuf,
    disk: DiskThreads,
    known: RwLock<BTreeMap<(KeyName, SecretName), Arc<Secret>>>,
    /// Held while a secret is changed.
    changing: tokio::sync::Mutex<()>,
}

impl SecretTable {
    /// Reads the secrets of earlier daemons.
    pub fn open(data_dir: &Path) -> std::io::Result<Self> {
        let directory = data_dir.join("secrets");
        let read = file::read_all(&directory)?;
        let known = read.into_iter().map(|(owner, name, secret)| ((owner, name), Arc::new(secret))).collect();
        let (disk, changing) = (DiskThreads::default(), tokio::sync::Mutex::default());
        Ok(Self(Arc::new(Inner { directory, disk, known: RwLock::new(known), changing })))
    }

    /// A table that cannot keep anything.
    #[cfg(any(test, fuzzing))]
    pub fn empty(data_dir: &Path) -> Self {
        let (directory, changing) = (data_dir.join("secrets"), tokio::sync::Mutex::default());
        Self(Arc::new(Inner { directory, disk: DiskThreads::default(), known: RwLock::default(), changing }))
    }

    /// The secret with this name, of this owner.
    pub fn get(&self, owner: &KeyName, name: &SecretName) -> Option<Arc<Secret>> {
        let known = self.0.known.read().unwrap_or_else(PoisonError::into_inner);
        known.get(&(owner.clone(), name.clone())).cloned()
    }

    /// The secrets of one owner, or of all.
    pub fn list(&self, of: Option<&KeyName>) -> Vec<SecretFacts> {
        let known = self.0.known.read().unwrap_or_else(PoisonError::into_inner);
        let wanted = known.iter().filter(|((owner, _), _)| of.is_none_or(|of| of == owner));
        wanted.map(|((owner, name), secret)| facts(owner, name, secret)).collect()
    }

    /// Stores a secret, or replaces it. The next request that is sent has the new value.
    pub async fn set(
        &self,
        owner: &KeyName,
        name: &SecretName,
        value: SecretValue,
        hosts: Vec<HostName>,
    ) -> Result<SecretFacts, SecretError> {
        let _changing = self.0.changing.lock().await;
        if self.get(owner, name).is_none() && self.list(Some(owner)).len() >= MAX_SECRETS {
            return Err(SecretError::Full);
        }
        let secret = Secret { value, hosts, updated_at: SystemTime::now() };
        let facts = facts(owner, name, &secret);
        let (directory, written, value) = (self.0.directory.clone(), facts.clone(), secret.value.clone());
        let writing = self.0.disk.run(move || file::write(&directory, &written, &value)).await;
        let failed = |cause: String| SecretError::Failed(cause);
        writing.map_err(|error| failed(error.to_string()))?.map_err(|error| failed(error.to_string()))?;
        let mut known = self.0.known.write().unwrap_or_else(PoisonError::into_inner);
        known.insert((owner.clone(), name.clone()), Arc::new(secret));
        Ok(facts)
    }

    /// Removes a secret. No request is sent with it from now on.
    pub async fn remove(&self, owner: &KeyName, name: &SecretName) -> Result<(), SecretError> {
        let _changing = self.0.changing.lock().await;
        let key = (owner.clone(), name.clone());
        let removed = self.0.known.write().unwrap_or_else(PoisonError::into_inner).remove(&key);
        let (directory, (owner, name)) = (self.0.directory.clone(), key);
        let told = name.clone();
        let removing = self.0.disk.run(move || file::remove(&directory, &owner, &name)).await;
        let cause = match removing {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(error) => Some(error.to_string()),
        };
        match (cause, removed) {
            (Some(cause), _) => Err(SecretError::StillStored { name: told, cause }),
            (None, None) => Err(SecretError::NotFound(told)),
            (None, Some(_)) => Ok(()),
        }
    }
}

fn facts(owner: &KeyName, name: &SecretName, secret: &Secret) -> SecretFacts {
    let (owner, name) = (owner.clone(), name.clone());
    SecretFacts { owner, name, hosts: secret.hosts.clone(), updated_at: secret.updated_at }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> SecretValue {
        SecretValue::new(text.into()).unwrap()
    }

    #[tokio::test]
    async fn a_secret_is_its_owners_and_outlives_the_daemon() {
        let folder = tempfile::tempdir().unwrap();
        let table = SecretTable::open(folder.path()).unwrap();
        let (alice, bob) = (KeyName::new("alice").unwrap(), KeyName::new("bob").unwrap());
        let name = SecretName::new("token").unwrap();
        table.set(&alice, &name, value("first"), Vec::new()).await.unwrap();
        table.set(&alice, &name, value("second"), Vec::new()).await.unwrap();
        assert!(table.get(&bob, &name).is_none() && table.list(Some(&bob)).is_empty());
        assert_eq!(table.remove(&bob, &name).await, Err(SecretError::NotFound(name.clone())));
        assert_eq!((table.list(None).len(), table.list(Some(&alice)).len()), (1, 1));
        let again = SecretTable::open(folder.path()).unwrap();
        assert_eq!(again.get(&alice, &name).unwrap().value, value("second"));
        again.remove(&alice, &name).await.unwrap();
        assert!(again.get(&alice, &name).is_none());
        assert!(SecretTable::open(folder.path()).unwrap().list(None).is_empty());
    }

    #[tokio::test]
    async fn an_owner_has_a_bounded_number_and_can_still_replace_one() {
        let folder = tempfile::tempdir().unwrap();
        let table = SecretTable::open(folder.path()).unwrap();
        let owner = KeyName::new("alice").unwrap();
        let name = |number: usize| SecretName::new(format!("s{number}")).unwrap();
        {
            let mut known = table.0.known.write().unwrap();
            let secret = Secret { value: value("x"), hosts: Vec::new(), updated_at: SystemTime::UNIX_EPOCH };
            known.extend((0..MAX_SECRETS).map(|number| ((owner.clone(), name(number)), Arc::new(secret.clone()))));
        }
        let refused = table.set(&owner, &name(MAX_SECRETS), value("y"), Vec::new()).await;
        assert_eq!(refused, Err(SecretError::Full));
        table.set(&owner, &name(0), value("y"), Vec::new()).await.unwrap();
        assert_eq!(table.get(&owner, &name(0)).unwrap().value, value("y"));
    }
}
