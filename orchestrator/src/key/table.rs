//! The keys of a daemon, in memory and in the store.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::SystemTime;

use sha2::{Digest as _, Sha256};
use shared_protocol::KeyName;
use shared_protocol::api::{KeyRole, NetworkSpec};
use subtle::{Choice, ConstantTimeEq as _};
use tokio::sync::watch;

use super::KeyError;
use crate::owner::OwnerLimits;
use crate::store::{KeyRow, Store, StoreError, Write};

/// The most keys beside the first one. Each request is compared with all of them.
pub const MAX_KEYS: usize = 256;
/// What every new secret begins with, so that people and scanners recognise it.
const SECRET_PREFIX: &str = "cove_";
const SECRET_BYTES: usize = 32;

type Hash = [u8; 32];

/// What is known of a key except its secret.
#[derive(Debug)]
pub struct KeyFacts {
    pub name: KeyName,
    pub role: KeyRole,
    pub limits: OwnerLimits,
    /// The most that its sessions may reach, in place of the daemon's maximum.
    pub max_network: Option<NetworkSpec>,
    /// `None` for the first key.
    pub created_at: Option<SystemTime>,
    /// Becomes true when the key is removed.
    removed: watch::Sender<bool>,
}

impl KeyFacts {
    pub fn new(spec: KeySpec, created_at: Option<SystemTime>) -> Self {
        let KeySpec { name, role, limits, max_network } = spec;
        Self { name, role, limits, max_network, created_at, removed: watch::Sender::new(false) }
    }

    /// Waits until the key is removed.
    pub async fn removed(&self) {
        // The sender lives as long as `self`, so this cannot fail.
        let _ = self.removed.subscribe().wait_for(|removed| *removed).await;
    }
}

/// A key that is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeySpec {
    pub name: KeyName,
    pub role: KeyRole,
    pub limits: OwnerLimits,
    pub max_network: Option<NetworkSpec>,
}

impl KeySpec {
    /// A key without limits of its own.
    pub fn plain(name: KeyName, role: KeyRole) -> Self {
        Self { name, role, limits: OwnerLimits::default(), max_network: None }
    }
}

/// The secret of a new key. It is shown to the caller once, and never logged.
pub struct Secret(String);

impl Secret {
    fn new() -> Result<Self, KeyError> {
        let mut random = [0; SECRET_BYTES];
        getrandom::fill(&mut random).map_err(|e| KeyError::Failed(format!("no random bytes for a key: {e}")))?;
        let digits = random.iter().map(|byte| format!("{byte:02x}"));
        Ok(Self(std::iter::once(SECRET_PREFIX.to_owned()).chain(digits).collect()))
    }

    pub fn into_string(self) -> String {
        self.0
    }
}

struct Known {
    hash: Hash,
    facts: Arc<KeyFacts>,
}

/// All keys of a daemon. Cheap to clone.
#[derive(Clone)]
pub struct KeyTable(Arc<Inner>);

struct Inner {
    first: Known,
    /// The other keys. The lock is never held over an await.
    others: RwLock<BTreeMap<KeyName, Known>>,
    store: Store,
}

fn spec_of(row: &KeyRow) -> KeySpec {
    let KeyRow { name, role, limits, max_network, .. } = row.clone();
    KeySpec { name, role, limits, max_network }
}

fn hash(secret: &[u8]) -> Hash {
    Sha256::digest(secret).into()
}

impl KeyTable {
    /// The keys of the store, and the first key with the secret that the configuration or the data directory has.
    pub fn open(first_secret: &str, store: Store) -> Self {
        let known = |row: &KeyRow| {
            let facts = KeyFacts::new(spec_of(row), Some(row.created_at));
            (row.name.clone(), Known { hash: row.hash, facts: Arc::new(facts) })
        };
        let others = store.keys_at_open().iter().map(known).collect();
        let facts = KeyFacts::new(KeySpec::plain(KeyName::first(), KeyRole::Admin), None);
        let first = Known { hash: hash(first_secret.as_bytes()), facts: Arc::new(facts) };
        Self(Arc::new(Inner { first, others: RwLock::new(others), store }))
    }

    fn others(&self) -> RwLockReadGuard<'_, BTreeMap<KeyName, Known>> {
        self.0.others.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn others_mut(&self) -> RwLockWriteGuard<'_, BTreeMap<KeyName, Known>> {
        self.0.others.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The key with this secret. All keys are compared, whichever matches.
    pub fn identify(&self, secret: &[u8]) -> Option<Arc<KeyFacts>> {
        let (given, others) = (hash(secret), self.others());
        let mut found = None;
        for known in std::iter::once(&self.0.first).chain(others.values()) {
            let is_it: Choice = known.hash.ct_eq(&given);
            if bool::from(is_it) {
                found = Some(&known.facts);
            }
        }
        found.cloned()
    }

    /// The first key, then the others by name.
    pub fn list(&self) -> Vec<Arc<KeyFacts>> {
        std::iter::once(&self.0.first).chain(self.others().values()).map(|known| known.facts.clone()).collect()
    }

    /// Makes a key. It works as soon as this returns, and survives a power cut.
    pub async fn add(&self, spec: KeySpec, now: SystemTime) -> Result<(Secret, Arc<KeyFacts>), KeyError> {
        let KeySpec { name, role, limits, max_network } = spec.clone();
        if name.is_first() || self.others().contains_key(&name) {
            return Err(KeyError::Exists(name));
        }
        if self.others().len() >= MAX_KEYS {
            return Err(KeyError::Full(MAX_KEYS));
        }
        let secret = Secret::new()?;
        let hash = hash(secret.0.as_bytes());
        let row = KeyRow { name: name.clone(), hash, role, limits, max_network, created_at: now };
        match self.0.store.write(Write::AddKey(Box::new(row))).await {
            Ok(()) => {}
            Err(StoreError::KeyExists(name)) => return Err(KeyError::Exists(name)),
            Err(error) => return Err(KeyError::Failed(error.to_string())),
        }
        let facts = Arc::new(KeyFacts::new(spec, Some(now)));
        self.others_mut().insert(name, Known { hash, facts: facts.clone() });
        Ok((secret, facts))
    }

    /// Removes a key. From the first moment on, requests with it are refused.
    pub async fn remove(&self, name: &KeyName) -> Result<(), KeyError> {
        if name.is_first() {
            return Err(KeyError::First(name.clone()));
        }
        let known = self.others_mut().remove(name);
        if let Some(known) = &known {
            known.facts.removed.send_replace(true);
        }
        match (self.0.store.write(Write::RemoveKey { name: name.clone() }).await, known) {
            (Ok(()), _) => Ok(()),
            (Err(StoreError::NoKey(name)), None) => Err(KeyError::NotFound(name)),
            // An earlier remove was answered with an error, although it had reached the store.
            (Err(StoreError::NoKey(_)), Some(_)) => Ok(()),
            (Err(error), Some(_)) => Err(KeyError::StillStored { name: name.clone(), cause: error.to_string() }),
            (Err(error), None) => Err(KeyError::Failed(error.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> KeyName {
        KeyName::new(text).unwrap()
    }

    fn spec(text: &str, role: KeyRole) -> KeySpec {
        let limits = OwnerLimits { max_sessions: Some(3), max_memory_mb: None };
        KeySpec { limits, max_network: Some(NetworkSpec::preset("packages")), ..KeySpec::plain(name(text), role) }
    }

    fn who(table: &KeyTable, secret: &str) -> Option<(String, KeyRole)> {
        table.identify(secret.as_bytes()).map(|facts| (facts.name.to_string(), facts.role))
    }

    #[tokio::test]
    async fn a_key_works_at_once_after_a_restart_and_not_after_its_removal() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cove.db");
        let table = KeyTable::open("the-first-key", Store::inline(&path).unwrap().0);
        let (secret, facts) = table.add(spec("alice", KeyRole::User), SystemTime::now()).await.unwrap();
        let secret = secret.into_string();
        assert_eq!((secret.len(), facts.limits.max_sessions), (5 + 64, Some(3)));
        assert_eq!(who(&table, &secret), Some(("alice".into(), KeyRole::User)));
        assert_eq!(who(&table, "the-first-key"), Some(("default".into(), KeyRole::Admin)));
        let (almost, _) = secret.split_at(secret.len() - 1);
        for wrong in ["", almost, "cove_", "the-first-ke", "the-first-key2"] {
            assert_eq!(who(&table, wrong), None, "{wrong}");
        }
        drop(table);
        let stored = std::fs::read(&path).unwrap();
        assert!(!stored.windows(secret.len()).any(|part| part == secret.as_bytes()), "the secret is in the store");

        let table = KeyTable::open("another-first-key", Store::inline(&path).unwrap().0);
        assert_eq!(who(&table, &secret), Some(("alice".into(), KeyRole::User)));
        assert_eq!(who(&table, "the-first-key"), None);
        let facts = table.identify(secret.as_bytes()).unwrap();
        assert_eq!(facts.max_network, Some(NetworkSpec::preset("packages")));
        table.remove(&name("alice")).await.unwrap();
        assert_eq!(who(&table, &secret), None);
        facts.removed().await;
        assert_eq!(table.remove(&name("alice")).await, Err(KeyError::NotFound(name("alice"))));
        drop(table);
        let table = KeyTable::open("another-first-key", Store::inline(&path).unwrap().0);
        assert_eq!((who(&table, &secret), table.list().len()), (None, 1));
    }

    #[tokio::test]
    async fn names_are_used_once_and_the_first_key_stays() {
        let table = KeyTable::open("the-first-key", Store::in_memory());
        let add = |text: &'static str| table.add(spec(text, KeyRole::Admin), SystemTime::now());
        add("alice").await.map(drop).unwrap();
        assert_eq!(add("alice").await.map(drop), Err(KeyError::Exists(name("alice"))));
        assert_eq!(add("default").await.map(drop), Err(KeyError::Exists(name("default"))));
        assert_eq!(table.remove(&name("default")).await, Err(KeyError::First(name("default"))));
        for number in 1..MAX_KEYS {
            table.add(spec(&format!("k{number}"), KeyRole::User), SystemTime::now()).await.map(drop).unwrap();
        }
        assert_eq!(add("one-more").await.map(drop), Err(KeyError::Full(MAX_KEYS)));
    }

    #[tokio::test]
    async fn a_key_that_cannot_be_removed_from_the_store_is_refused_nevertheless() {
        let store = Store::in_memory();
        let table = KeyTable::open("the-first-key", store.clone());
        let (secret, _) = table.add(spec("alice", KeyRole::User), SystemTime::now()).await.unwrap();
        store.refuse_writes(true);
        assert!(matches!(table.add(spec("bob", KeyRole::User), SystemTime::now()).await, Err(KeyError::Failed(_))));
        assert!(matches!(table.remove(&name("alice")).await, Err(KeyError::StillStored { .. })));
        assert_eq!(who(&table, &secret.into_string()), None);
        store.refuse_writes(false);
        table.remove(&name("alice")).await.expect("the second attempt removes it from the store");
    }
}
