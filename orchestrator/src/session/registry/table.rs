//! The table of all sessions that the daemon knows: the live ones, their places, the tombstones, and the idempotency keys of
//! both.
//!
//! It is a plain value under the registry's lock; nothing here waits. A key is kept as long as its session is known, so the
//! number of keys is bounded by the sessions and tombstones.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use serde_json::json;
use shared_protocol::api::{SessionStatus, SessionView};
use shared_protocol::{KeyName, SessionId, SessionName};
use tokio::time::Instant;

use super::admission::{Admission, Demand, Limits, Refusal};
use crate::owner::{Creator, OwnerUsage};
use crate::session::{Phase, SessionError, SessionFilter, SessionHandle};
use crate::store::StoredKey;

/// The most ended sessions that clients can still ask for.
pub const MAX_TOMBSTONES: usize = 4096;
pub const TOMBSTONE_AGE: Duration = Duration::from_secs(3600);

#[derive(Debug)]
pub struct Table {
    /// The sessions and pooled sandboxes that have not ended.
    live: HashMap<SessionId, Entry>,
    tombstones: HashMap<SessionId, Entry>,
    /// The tombstones in the order in which they ended.
    order: VecDeque<(Instant, SessionId)>,
    /// The idempotency keys. Each owner has keys of its own, so nobody meets the key of another.
    keys: HashMap<(KeyName, String), Keyed>,
    admission: Admission,
    /// Pooled sandboxes that are being removed, while sessions already have their places.
    evicted: HashSet<SessionId>,
    /// The daemon is stopping and admits no more sessions.
    is_closed: bool,
}

/// A session in the table, with its place and its idempotency key.
#[derive(Debug, Clone)]
pub struct Entry {
    handle: SessionHandle,
    demand: Demand,
    key: Option<StoredKey>,
    /// The owner whose limits the session counts for. A pooled sandbox counts for nobody.
    owner: Option<KeyName>,
}

impl Entry {
    pub fn session(handle: SessionHandle, demand: Demand, key: Option<StoredKey>) -> Self {
        let owner = Some(handle.facts().spec.owner.clone());
        Self { handle, demand, key, owner }
    }

    pub fn pooled(handle: SessionHandle, demand: Demand) -> Self {
        Self { handle, demand, key: None, owner: None }
    }
}

/// The session that an idempotency key created.
#[derive(Debug, Clone)]
struct Keyed {
    /// The fingerprint of the request that came with the key.
    fingerprint: u64,
    id: SessionId,
}

pub enum KeyLookup {
    New,
    Same(SessionHandle),
    OtherRequest,
}

impl Table {
    pub fn new(limits: Limits) -> Self {
        Self {
            live: HashMap::new(),
            tombstones: HashMap::new(),
            order: VecDeque::new(),
            keys: HashMap::new(),
            admission: Admission::new(limits),
            evicted: HashSet::new(),
            is_closed: false,
        }
    }

    pub fn knows(&self, id: &SessionId) -> bool {
        self.live.contains_key(id) || self.tombstones.contains_key(id)
    }

    /// Refuses a name that a session of the same owner has. A session that is being removed gives its name up.
    pub fn refuse_taken_name(&self, owner: &KeyName, name: Option<&SessionName>) -> Result<(), SessionError> {
        let Some(name) = name else { return Ok(()) };
        let has_it = |handle: &&SessionHandle| {
            let spec = &handle.facts().spec;
            spec.owner == *owner
                && spec.name.as_ref() == Some(name)
                && handle.phase().status() != SessionStatus::Destroying
        };
        match self.live().find(has_it) {
            Some(handle) => {
                let id = handle.id();
                Err(SessionError::Conflict(format!(
                    "session {id} has the name {name}: take another name, or destroy that session first"
                )))
            }
            None => Ok(()),
        }
    }

    pub fn look_up_key(&mut self, owner: &KeyName, key: &str, fingerprint: u64) -> KeyLookup {
        self.prune();
        let Some(keyed) = self.keys.get(&(owner.clone(), key.to_owned())) else { return KeyLookup::New };
        if keyed.fingerprint != fingerprint {
            return KeyLookup::OtherRequest;
        }
        self.get(&keyed.id.clone()).map_or(KeyLookup::New, KeyLookup::Same)
    }

    pub fn admit(&mut self, demand: &Demand, creator: Option<&Creator>) -> Result<(), Refusal> {
        self.admission.admit(demand, creator)
    }

    /// Whether the key of a creator has room for a pooled sandbox. This changes nothing.
    pub fn check_share(&self, demand: &Demand, creator: &Creator) -> Result<(), Refusal> {
        self.admission.check_share(demand, creator)
    }

    /// Counts a pooled sandbox for the creator that claims it.
    pub fn assign(&mut self, demand: &Demand, creator: &Creator) -> Result<(), Refusal> {
        self.admission.assign(demand, creator)
    }

    pub fn usage_of(&self, owner: &KeyName) -> OwnerUsage {
        self.admission.usage_of(owner)
    }

    /// A copy of the admission state, to try a change on.
    pub fn admission(&self) -> Admission {
        self.admission.clone()
    }

    /// Frees the place of a pooled sandbox before its removal is complete.
    pub fn evict(&mut self, id: &SessionId) {
        if let Some(entry) = self.live.get(id)
            && self.evicted.insert(id.clone())
        {
            self.admission.release(&entry.demand, entry.owner.as_ref());
        }
    }

    pub fn is_evicted(&self, id: &SessionId) -> bool {
        self.evicted.contains(id)
    }

    /// Gives back what a stopped session does not need. It keeps its place and its disk. A session that is no longer stopped stays
    /// as it is.
    pub fn park(&mut self, id: &SessionId) {
        if let Some(entry) = self.live.get_mut(id)
            && entry.handle.phase() == Phase::Stopped
        {
            let parked = entry.demand.parked();
            self.admission.release(&entry.demand, entry.owner.as_ref());
            self.admission.restore(&parked, entry.owner.as_ref());
            entry.demand = parked;
        }
    }

    /// Takes the place of a stopped session out of the counts, so that the place of a running one can be asked for.
    pub fn release_parked(&mut self, id: &SessionId, demand: &Demand) -> bool {
        let Some(entry) = self.live.get(id).filter(|entry| entry.demand != *demand) else { return false };
        self.admission.release(&entry.demand, entry.owner.as_ref());
        true
    }

    /// Sets what a session has, which was admitted.
    pub fn set_demand(&mut self, id: &SessionId, demand: Demand) {
        if let Some(entry) = self.live.get_mut(id) {
            entry.demand = demand;
        }
    }

    /// Counts what a session has, whatever the limits are now.
    pub fn restore_demand(&mut self, id: &SessionId, demand: Demand) {
        if let Some(entry) = self.live.get_mut(id) {
            self.admission.restore(&demand, entry.owner.as_ref());
            entry.demand = demand;
        }
    }

    /// Adds an admitted session. It replaces an entry with the same id.
    pub fn insert(&mut self, entry: Entry) {
        let id = self.insert_key(&entry);
        self.live.insert(id, entry);
    }

    /// Adds a session of an earlier daemon, which gets its place whatever the limits are now.
    pub fn restore(&mut self, entry: Entry) {
        self.admission.restore(&entry.demand, entry.owner.as_ref());
        self.insert(entry);
    }

    /// Adds a tombstone of an earlier daemon. Call it in the order in which the sessions ended.
    pub fn restore_tombstone(&mut self, entry: Entry, since: Instant) {
        let id = self.insert_key(&entry);
        self.order.push_back((since, id.clone()));
        self.tombstones.insert(id, entry);
        self.prune();
    }

    fn insert_key(&mut self, entry: &Entry) -> SessionId {
        let id = entry.handle.id().clone();
        if let Some(StoredKey { key, fingerprint }) = &entry.key {
            let owner = entry.handle.facts().spec.owner.clone();
            self.keys.insert((owner, key.clone()), Keyed { fingerprint: *fingerprint, id: id.clone() });
        }
        id
    }

    /// Refuses new sessions from now on. Returns those that have not ended.
    pub fn close(&mut self) -> Vec<SessionHandle> {
        self.is_closed = true;
        self.live().cloned().collect()
    }

    pub fn refuse_if_closed(&self) -> Result<(), SessionError> {
        if !self.is_closed {
            return Ok(());
        }
        let message = "the daemon is stopping".to_owned();
        Err(SessionError::Limit { message, details: json!({ "what": "stopping" }) })
    }

    /// Takes out a session whose sandbox is gone. If `keep` says so, a tombstone stays; a session that never ran is
    /// forgotten at once.
    pub fn retire(&mut self, id: &SessionId, keep: bool) {
        let Some(entry) = self.live.remove(id) else { return };
        if !self.evicted.remove(id) {
            self.admission.release(&entry.demand, entry.owner.as_ref());
        }
        if keep {
            self.order.push_back((Instant::now(), id.clone()));
            self.tombstones.insert(id.clone(), entry);
        } else {
            self.free_key(entry);
        }
        self.prune();
    }

    fn prune(&mut self) {
        let now = Instant::now();
        while let Some((since, _)) = self.order.front() {
            let old = now.saturating_duration_since(*since) >= TOMBSTONE_AGE;
            if !old && self.order.len() <= MAX_TOMBSTONES {
                return;
            }
            let Some((_, id)) = self.order.pop_front() else { return };
            if let Some(entry) = self.tombstones.remove(&id) {
                self.free_key(entry);
            }
        }
    }

    /// Frees the key of a session that is forgotten, unless another session has it by now.
    fn free_key(&mut self, entry: Entry) {
        let Entry { handle, key: Some(StoredKey { key, .. }), .. } = entry else { return };
        let key = (handle.facts().spec.owner.clone(), key);
        if self.keys.get(&key).is_some_and(|keyed| keyed.id == *handle.id()) {
            self.keys.remove(&key);
        }
    }

    pub fn get(&mut self, id: &SessionId) -> Option<SessionHandle> {
        self.prune();
        self.live.get(id).or_else(|| self.tombstones.get(id)).map(|entry| entry.handle.clone())
    }

    pub fn tombstone(&self, id: &SessionId) -> Option<SessionHandle> {
        self.tombstones.get(id).map(|entry| entry.handle.clone())
    }

    pub fn live(&self) -> impl Iterator<Item = &SessionHandle> {
        self.live.values().map(|entry| &entry.handle)
    }

    pub fn in_use(&self) -> u64 {
        self.admission.in_use()
    }

    /// The sessions that match the filter, the oldest first.
    pub fn list(&mut self, filter: &SessionFilter) -> Vec<SessionView> {
        self.prune();
        let known = self.live.values().chain(self.tombstones.values());
        let mut found: Vec<(Instant, SessionView)> = known
            .filter(|entry| filter.wants_status(entry.handle.phase().status()))
            .map(|entry| (entry.handle.facts().created, entry.handle.view()))
            .filter(|(_, view)| filter.wants(view))
            .collect();
        found.sort_by(|(a, x), (b, y)| a.cmp(b).then_with(|| x.id.cmp(&y.id)));
        found.into_iter().map(|(_, view)| view).collect()
    }
}
