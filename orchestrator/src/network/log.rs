//! The last decisions about one session's network, and what it was denied and has used. Everything is bounded.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use network_policy::Reason;
use shared_protocol::api::{NetworkDecision, NetworkVerdict, NetworkWish};
use tokio::sync::watch;

/// The most decisions that are kept.
pub const MAX_DECISIONS: usize = 1000;
/// The most denied targets that are remembered, and the most of them in one reply.
const MAX_DENIED: usize = 256;
pub const MAX_DENIED_SHOWN: usize = 32;
/// The most used targets that are remembered.
const MAX_USED: usize = 4096;

/// A decision before it has its number and its time.
#[derive(Debug, Clone)]
pub struct Entry {
    pub wish: NetworkWish,
    pub host: Option<String>,
    pub address: Option<String>,
    pub port: Option<u16>,
    pub verdict: NetworkVerdict,
    pub reason: Option<&'static str>,
    /// The rule that would allow it, or that allows what was used.
    pub rule: String,
    /// Whether the host is only one of several names of the address, and the program has not said which one it means.
    pub is_guess: bool,
    /// Whether the daemon added headers.
    pub injected: bool,
    /// How many bytes were sent and received, for a connection that has closed.
    pub bytes: Option<(u64, u64)>,
}

impl Entry {
    /// Whether this tells that something was reached. What is cut after it was open was reached, too.
    fn is_used(&self) -> bool {
        let was_open = self.verdict == NetworkVerdict::Allowed || self.bytes.is_some();
        self.wish == NetworkWish::Connect && was_open && !self.is_guess
    }
}

#[derive(Debug)]
pub struct NetworkLog {
    state: Mutex<LogState>,
    /// The number of the last decision.
    last: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct LogState {
    decisions: VecDeque<NetworkDecision>,
    made: u64,
    /// Denied targets, as rules that would allow them, with the number of the last denial.
    denied: BTreeMap<String, u64>,
    /// What was reached, as rules that allow it.
    used: BTreeSet<String>,
}

impl Default for NetworkLog {
    fn default() -> Self {
        Self { state: Mutex::default(), last: watch::Sender::new(0) }
    }
}

impl NetworkLog {
    fn state(&self) -> MutexGuard<'_, LogState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn add(&self, entry: Entry) {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut state = self.state();
        state.made += 1;
        let sequence = state.made;
        // For what was not understood no rule can be named, and nobody should ask for what the operator forbids.
        let is_askable = !entry.rule.is_empty() && entry.reason != Some(Reason::AboveMaximum.as_str());
        match entry.verdict {
            NetworkVerdict::Denied if !is_askable => {}
            NetworkVerdict::Denied => state.note_denied(&entry.rule, sequence),
            NetworkVerdict::Allowed | NetworkVerdict::Cut if entry.is_used() => state.note_used(&entry.rule),
            NetworkVerdict::Allowed | NetworkVerdict::Failed | NetworkVerdict::Cut => {}
        }
        let is_denied = entry.verdict == NetworkVerdict::Denied && is_askable;
        state.decisions.push_back(NetworkDecision {
            sequence,
            timestamp: u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
            wish: entry.wish,
            host: entry.host,
            address: entry.address,
            port: entry.port,
            verdict: entry.verdict,
            reason: entry.reason.map(str::to_owned),
            wanted: is_denied.then_some(entry.rule),
            injected: entry.injected,
            bytes_sent: entry.bytes.map(|(sent, _)| sent),
            bytes_received: entry.bytes.map(|(_, received)| received),
        });
        if state.decisions.len() > MAX_DECISIONS {
            state.decisions.pop_front();
        }
        drop(state);
        self.last.send_replace(sequence);
    }

    /// The decisions after the one with this number.
    pub fn after(&self, sequence: u64) -> Vec<NetworkDecision> {
        self.state().decisions.iter().filter(|decision| decision.sequence > sequence).cloned().collect()
    }

    /// The number of the last decision, now and whenever it changes.
    pub fn follow(&self) -> watch::Receiver<u64> {
        self.last.subscribe()
    }

    pub fn last_sequence(&self) -> u64 {
        *self.last.borrow()
    }

    /// What was denied after the decision with this number, as rules that would allow it.
    pub fn denied_after(&self, sequence: u64) -> Vec<String> {
        let state = self.state();
        let later = state.denied.iter().filter(|(_, last)| **last > sequence);
        later.take(MAX_DENIED_SHOWN).map(|(rule, _)| rule.clone()).collect()
    }

    pub fn used(&self) -> Vec<String> {
        self.state().used.iter().cloned().collect()
    }

    /// Records that something was used, when it becomes known after the decision.
    pub fn note_used(&self, rule: &str) {
        self.state().note_used(rule);
    }

    /// Begins a new list of what was used.
    pub fn forget_used(&self) {
        self.state().used.clear();
    }
}

impl LogState {
    fn note_denied(&mut self, rule: &str, sequence: u64) {
        if let Some(last) = self.denied.get_mut(rule) {
            *last = sequence;
            return;
        }
        if self.denied.len() >= MAX_DENIED {
            let oldest = self.denied.iter().min_by_key(|(_, last)| **last).map(|(rule, _)| rule.clone());
            if let Some(oldest) = oldest {
                self.denied.remove(&oldest);
            }
        }
        self.denied.insert(rule.to_owned(), sequence);
    }

    fn note_used(&mut self, rule: &str) {
        if self.used.len() < MAX_USED && !self.used.contains(rule) {
            self.used.insert(rule.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(verdict: NetworkVerdict, rule: &str) -> Entry {
        Entry {
            wish: NetworkWish::Connect,
            host: Some("example.com".into()),
            address: None,
            port: Some(443),
            verdict,
            reason: None,
            rule: rule.into(),
            is_guess: false,
            injected: false,
            bytes: None,
        }
    }

    #[test]
    fn what_was_denied_is_told_to_those_who_asked_before() {
        let log = NetworkLog::default();
        log.add(entry(NetworkVerdict::Denied, "a.example.com"));
        let before = log.last_sequence();
        assert!(log.denied_after(before).is_empty());
        log.add(entry(NetworkVerdict::Allowed, "b.example.com"));
        log.add(entry(NetworkVerdict::Denied, "c.example.com"));
        log.add(entry(NetworkVerdict::Denied, "a.example.com"));
        assert_eq!(log.denied_after(before), ["a.example.com", "c.example.com"]);
        assert_eq!(log.used(), ["b.example.com"]);
        assert_eq!(log.after(before).len(), 3);
    }

    #[test]
    fn a_guess_is_not_what_was_used_until_the_connection_is_over() {
        let log = NetworkLog::default();
        log.add(Entry { is_guess: true, ..entry(NetworkVerdict::Allowed, "guess.example.com") });
        assert!(log.used().is_empty());
        log.note_used("spoken.example.com");
        log.add(Entry { bytes: Some((1, 2)), ..entry(NetworkVerdict::Cut, "open.example.com") });
        log.add(entry(NetworkVerdict::Cut, "never-open.example.com"));
        assert_eq!(log.used(), ["open.example.com", "spoken.example.com"]);
        log.forget_used();
        assert!(log.used().is_empty());
    }

    #[test]
    fn what_the_operator_forbids_is_in_the_log_and_nobody_is_told_to_ask_for_it() {
        let log = NetworkLog::default();
        let reason = Some(Reason::AboveMaximum.as_str());
        log.add(Entry { reason, ..entry(NetworkVerdict::Denied, "a.example.com") });
        assert!(log.denied_after(0).is_empty());
        let [decision] = &log.after(0)[..] else { panic!("one decision") };
        assert_eq!((decision.reason.as_deref(), &decision.wanted), (Some("above_maximum"), &None));
    }

    #[test]
    fn a_flood_of_decisions_takes_bounded_memory() {
        let log = NetworkLog::default();
        for number in 0..5 * MAX_DECISIONS {
            log.add(entry(NetworkVerdict::Denied, &format!("n{number}.example.com")));
            log.add(entry(NetworkVerdict::Allowed, &format!("n{number}.example.com")));
        }
        let state = log.state();
        assert_eq!(
            (state.decisions.len(), state.denied.len(), state.used.len()),
            (MAX_DECISIONS, MAX_DENIED, MAX_USED)
        );
        drop(state);
        assert_eq!(log.denied_after(0).len(), MAX_DENIED_SHOWN);
    }
}
