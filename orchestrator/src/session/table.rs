//! All sessions the daemon knows: the live ones, their places, the tombstones, and the idempotency keys of both.
//!
//! A plain value under the registry's lock; nothing here waits. A key is kept as long as its session is known, so that the
//! keys are bounded by the sessions and the tombstones.

use std::collections::{HashMap, VecDeque};
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

    /// Takes one out whose sandbox is gone. One that never ran is forgotten at once.
    pub fn bury(&mut self, id: &SessionId, keep: bool) {
        let Some(entry) = self.live.remove(id) else { return };
        self.admission.release(&entry.ask);
        if keep {
            self.order.push_back((Instant::now(), id.clone()));
            self.buried.insert(id.clone(), entry);
        } else if let Some(key) = &entry.key {
            self.keys.remove(key);
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
                self.keys.remove(&key);
            }
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
