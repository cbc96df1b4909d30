//! All sessions the daemon knows: the live ones, their places, the tombstones, and the idempotency keys of both.
//!
//! A plain value under the registry's lock; nothing here waits. A key is kept as long as its session is known, so that the
//! keys are bounded by the sessions and the tombstones.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use shared_protocol::SessionId;
use shared_protocol::api::SessionView;
use tokio::time::Instant;

use super::admission::{Admission, Ask, Limits, Refusal};
use super::{SessionFilter, SessionHandle};

/// Sessions that are over and can still be asked for.
pub const MAX_TOMBSTONES: usize = 4096;
pub const TOMBSTONE_AGE: Duration = Duration::from_secs(3600);

#[derive(Debug)]
pub struct Table {
    live: HashMap<SessionId, Entry>,
    buried: HashMap<SessionId, Entry>,
    order: VecDeque<(Instant, SessionId)>,
    keys: HashMap<String, Keyed>,
    admission: Admission,
    /// Members of pools that are on their way out, and whose places others have by now.
    given_up: HashSet<SessionId>,
    /// The daemon stops: no more.
    pub closed: bool,
}

#[derive(Debug, Clone)]
pub struct Entry {
    pub handle: SessionHandle,
    pub ask: Ask,
    pub key: Option<String>,
}

/// What an idempotency key stands for.
#[derive(Debug, Clone)]
struct Keyed {
    /// Of the request it came with.
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
            buried: HashMap::new(),
            order: VecDeque::new(),
            keys: HashMap::new(),
            admission: Admission::new(limits),
            given_up: HashSet::new(),
            closed: false,
        }
    }

    pub fn knows(&self, id: &SessionId) -> bool {
        self.live.contains_key(id) || self.buried.contains_key(id)
    }

    pub fn look_up_key(&mut self, key: &str, fingerprint: u64) -> KeyLookup {
        self.prune();
        let Some(keyed) = self.keys.get(key) else { return KeyLookup::New };
        if keyed.fingerprint != fingerprint {
            return KeyLookup::OtherRequest;
        }
        self.get(&keyed.id.clone()).map_or(KeyLookup::New, KeyLookup::Same)
    }

    pub fn admit(&mut self, ask: &Ask) -> Result<(), Refusal> {
        self.admission.admit(ask)
    }

    /// What is in use, to try something out on.
    pub fn admission(&self) -> Admission {
        self.admission.clone()
    }

    /// Frees the place of a member before its sandbox is gone.
    pub fn give_up(&mut self, id: &SessionId) {
        if let Some(entry) = self.live.get(id)
            && self.given_up.insert(id.clone())
        {
            self.admission.release(&entry.ask);
        }
    }

    pub fn is_given_up(&self, id: &SessionId) -> bool {
        self.given_up.contains(id)
    }

    pub fn release(&mut self, ask: &Ask) {
        self.admission.release(ask);
    }

    /// Adds one that was admitted.
    pub fn insert(&mut self, entry: Entry, fingerprint: u64) {
        let id = entry.handle.id().clone();
        if let Some(key) = &entry.key {
            self.keys.insert(key.clone(), Keyed { fingerprint, id: id.clone() });
        }
        self.live.insert(id, entry);
    }

    /// Adds one of an earlier daemon, which has its place whatever the limits say now.
    pub fn restore(&mut self, entry: Entry, fingerprint: u64) {
        self.admission.restore(&entry.ask);
        self.insert(entry, fingerprint);
    }

    /// Adds a tombstone of an earlier daemon. In the order in which they ended.
    pub fn restore_buried(&mut self, entry: Entry, fingerprint: u64, since: Instant) {
        let id = entry.handle.id().clone();
        if let Some(key) = &entry.key {
            self.keys.insert(key.clone(), Keyed { fingerprint, id: id.clone() });
        }
        self.order.push_back((since, id.clone()));
        self.buried.insert(id, entry);
        self.prune();
    }

    /// Takes one out whose sandbox is gone. One that never ran is forgotten at once.
    pub fn bury(&mut self, id: &SessionId, keep: bool) {
        let Some(entry) = self.live.remove(id) else { return };
        if !self.given_up.remove(id) {
            self.admission.release(&entry.ask);
        }
        if keep {
            self.order.push_back((Instant::now(), id.clone()));
            self.buried.insert(id.clone(), entry);
        } else if let Some(key) = entry.key {
            self.free_key(&key, id);
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
            if let Some(key) = self.buried.remove(&id).and_then(|entry| entry.key) {
                self.free_key(&key, &id);
            }
        }
    }

    /// Unless it is another session's by now.
    fn free_key(&mut self, key: &str, id: &SessionId) {
        if self.keys.get(key).is_some_and(|keyed| keyed.id == *id) {
            self.keys.remove(key);
        }
    }

    pub fn get(&mut self, id: &SessionId) -> Option<SessionHandle> {
        self.prune();
        self.live.get(id).or_else(|| self.buried.get(id)).map(|entry| entry.handle.clone())
    }

    pub fn buried(&self, id: &SessionId) -> Option<SessionHandle> {
        self.buried.get(id).map(|entry| entry.handle.clone())
    }

    pub fn live(&self) -> impl Iterator<Item = &SessionHandle> {
        self.live.values().map(|entry| &entry.handle)
    }

    pub fn in_use(&self) -> u64 {
        self.admission.in_use()
    }

    /// Oldest first.
    pub fn list(&mut self, filter: &SessionFilter) -> Vec<SessionView> {
        self.prune();
        let known = self.live.values().chain(self.buried.values());
        let mut found: Vec<(Instant, SessionView)> = known
            .filter(|entry| filter.wants_status(entry.handle.phase().status()))
            .map(|entry| (entry.handle.facts().created, entry.handle.view()))
            .filter(|(_, view)| filter.wants(view))
            .collect();
        found.sort_by(|(a, x), (b, y)| a.cmp(b).then_with(|| x.id.cmp(&y.id)));
        found.into_iter().map(|(_, view)| view).collect()
    }
}
