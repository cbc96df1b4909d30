//! Ends a connection that is not allowed or reaches nothing, and writes what became of a connection to the log.

use std::time::Duration;

use network_policy::{Denial, Reason, Spoken};
use network_wire::{NotConnected, denied_page};
use shared_protocol::api::{NetworkVerdict, NetworkWish};
use tokio::time::timeout;

use super::super::inspector::Inspector;
use super::super::log::Entry;
use super::super::stream::Stream;
use super::{Connection, HTTPS_PORT, spoken_name, used_rule};

/// How long a connection that is denied may take to show that it speaks plain HTTP, and so can be told why.
const PAGE_PATIENCE: Duration = Duration::from_millis(300);

/// Why a connection was not opened.
pub(super) enum Refusal {
    Denied(Denial),
    /// The name must not be resolved.
    NameDenied(Denial),
    /// It was allowed, and there is no connection.
    Failed(NotReached),
    /// The program has gone.
    Gone,
}

/// Why nothing answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NotReached {
    Unreachable,
    Refused,
    TimedOut,
}

impl From<Denial> for Refusal {
    fn from(denial: Denial) -> Self {
        Self::Denied(denial)
    }
}

impl Connection {
    /// Ends a connection that is not allowed. A program that speaks plain HTTP is told why.
    pub(super) async fn refuse(self, denial: Denial, inspector: &Inspector, first: Vec<u8>) {
        let told = network_wire::Denial {
            code: denial.reason.as_str(),
            sentence: &denial.reason.to_string(),
            wanted_rule: if denial.reason.can_be_allowed() { &denial.wanted } else { "" },
        };
        if let Some(request) = self.request.as_ref().filter(|request| !request.is_answered()) {
            return self.say(&request.not_connected(&NotConnected::Denied(told))).await;
        }
        let is_http = match &self.spoken {
            Some(spoken) => matches!(spoken, Spoken::Http(_)),
            None if self.port == HTTPS_PORT || inspector.holds_bytes() || !first.is_empty() => false,
            None => timeout(PAGE_PATIENCE, self.speaks_http()).await.unwrap_or(false),
        };
        if is_http {
            return self.say(&denied_page(&told)).await;
        }
        self.program.reset();
    }

    /// Ends a connection to something that does not answer. The client of a proxy is told why.
    pub(super) async fn fail(&self, why: NotReached) {
        let why = match why {
            NotReached::Unreachable => NotConnected::Unreachable,
            NotReached::Refused => NotConnected::ConnectionRefused,
            NotReached::TimedOut => NotConnected::TimedOut,
        };
        match self.request.as_ref().filter(|request| !request.is_answered()) {
            Some(request) => self.say(&request.not_connected(&why)).await,
            None => self.program.reset(),
        }
    }

    /// Says the last words to the program.
    async fn say(&self, words: &[u8]) {
        last_words(&self.program, words).await;
    }

    async fn speaks_http(&self) -> bool {
        let (mut inspector, mut is_http) = (Inspector::new(), false);
        let mut judge = |spoken: &Spoken| {
            is_http = matches!(spoken, Spoken::Http(_));
            Ok(())
        };
        while let Ok(bytes) = self.program.read().await {
            if bytes.is_empty() || inspector.take(bytes, &mut judge).map_or(true, |passed| !passed.is_empty()) {
                break;
            }
        }
        is_http
    }

    pub(super) fn deny(&self, denial: &Denial) {
        let mut entry = self.entry(NetworkVerdict::Denied, Some(denial.reason), None);
        if !denial.wanted.is_empty() {
            entry.rule.clone_from(&denial.wanted);
        }
        self.session.note(entry);
    }

    pub(super) fn note(&self, verdict: NetworkVerdict, reason: Option<Reason>, bytes: Option<(u64, u64)>) {
        self.session.note(self.entry(verdict, reason, bytes));
    }

    pub(super) fn entry(&self, verdict: NetworkVerdict, reason: Option<Reason>, bytes: Option<(u64, u64)>) -> Entry {
        let spoken = self.spoken.as_ref().and_then(spoken_name);
        let host = spoken.or_else(|| self.names.first());
        let rule = used_rule(host, self.address, self.port);
        // A connection that is over says no more.
        let is_guess = spoken.is_none() && self.names.len() > 1 && bytes.is_none();
        Entry {
            wish: NetworkWish::Connect,
            host: host.map(ToString::to_string),
            address: (!self.address.is_unspecified()).then(|| self.address.to_string()),
            port: Some(self.port),
            verdict,
            reason: reason.map(Reason::as_str),
            rule,
            is_guess,
            injected: self.is_injected,
            bytes,
        }
    }
}

/// Ends a connection with these words. A reset would take them away from a program that has not read them yet.
pub async fn last_words(program: &Stream, words: &[u8]) {
    let saying = async {
        if program.write_all(words).await.is_ok() && program.end().await.is_ok() {
            program.drain().await;
        }
    };
    let _ = timeout(PAGE_PATIENCE, saying).await;
}
