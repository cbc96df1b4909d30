//! The MCP sessions of a daemon: whose they are, how many there may be, and when they end.
//!
//! Each has its own event log and its own worker of the library, so one session's events are never another's. To anybody but the
//! caller that opened it, a session does not exist. An open stream or a running call keeps a session; without any, it ends after
//! [`IDLE_LIMIT`].

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::{Stream, StreamExt as _};
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_server::session::local::{
    LocalSessionManager, LocalSessionManagerError, SessionConfig,
};
use rmcp::transport::streamable_http_server::session::{EventStream, ServerSseMessage, SessionId, SessionManager};
use shared_protocol::KeyName;
use tokio::sync::watch;
use tokio::time::Instant;

use super::events::{EventLog, Log};
use super::sandbox::{End, Sandbox};
use crate::service::Caller;

/// The most MCP sessions of a daemon.
pub const MAX_SESSIONS: usize = 256;
/// The most MCP sessions of one key.
pub const MAX_SESSIONS_PER_CALLER: usize = 64;
/// How long an MCP session may be without a stream and a call.
pub const IDLE_LIMIT: Duration = Duration::from_secs(30 * 60);
/// How long a client that was cut off should wait before it comes back.
const RETRY: Duration = Duration::from_secs(1);

/// Why no MCP session can be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LimitReached {
    #[error("the daemon has {MAX_SESSIONS} MCP sessions, which is its limit; end one with DELETE /mcp")]
    OfDaemon,
    #[error("the API key has {MAX_SESSIONS_PER_CALLER} MCP sessions, which is its limit; end one with DELETE /mcp")]
    OfCaller,
}

/// Whether one more MCP session may be opened. Pure.
fn admit(all: usize, of_caller: usize) -> Result<(), LimitReached> {
    if all >= MAX_SESSIONS {
        Err(LimitReached::OfDaemon)
    } else if of_caller >= MAX_SESSIONS_PER_CALLER {
        Err(LimitReached::OfCaller)
    } else {
        Ok(())
    }
}

/// Who is there: the streams that are open and the calls that run, and when the last one ended.
pub struct Presence {
    held: AtomicUsize,
    last: Mutex<Instant>,
}

impl Default for Presence {
    fn default() -> Self {
        Self { held: AtomicUsize::new(0), last: Mutex::new(Instant::now()) }
    }
}

impl Presence {
    pub fn hold(self: &Arc<Self>) -> Held {
        self.held.fetch_add(1, Ordering::AcqRel);
        Held(self.clone())
    }

    fn touch(&self) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    fn is_idle(&self) -> bool {
        let last = *self.last.lock().unwrap_or_else(PoisonError::into_inner);
        self.held.load(Ordering::Acquire) == 0 && last.elapsed() >= IDLE_LIMIT
    }
}

/// A stream that is open, or a call that runs.
pub struct Held(Arc<Presence>);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.touch();
        self.0.held.fetch_sub(1, Ordering::AcqRel);
    }
}

struct Entry {
    owner: KeyName,
    worker: LocalSessionManager,
    log: Arc<EventLog>,
    sandbox: Arc<Sandbox>,
    presence: Arc<Presence>,
}

pub struct SessionTable {
    entries: Mutex<HashMap<SessionId, Arc<Entry>>>,
    stop: watch::Receiver<bool>,
}

impl SessionTable {
    pub fn new(stop: watch::Receiver<bool>) -> Self {
        Self { entries: Mutex::default(), stop }
    }

    pub fn has(&self, caller: &Caller, id: &str) -> bool {
        self.find(caller, id).is_ok()
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<SessionId, Arc<Entry>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, caller: &Caller, id: &str) -> Result<Arc<Entry>, SessionsError> {
        let entry = self.entries().get(id).cloned().filter(|entry| entry.owner == *caller.name());
        let entry = entry.ok_or(SessionsError::Unknown)?;
        entry.presence.touch();
        Ok(entry)
    }

    fn add(&self, id: SessionId, entry: Entry) -> Result<(), LimitReached> {
        let mut entries = self.entries();
        let of_caller = entries.values().filter(|other| other.owner == entry.owner).count();
        admit(entries.len(), of_caller)?;
        entries.insert(id, Arc::new(entry));
        Ok(())
    }

    /// Ends an MCP session, and its sandbox if it was made for it. A second call does nothing.
    async fn close(&self, id: &SessionId, end: End) {
        let removed = self.entries().remove(id);
        let Some(entry) = removed else { return };
        if end == End::DaemonStops {
            entry.sandbox.leave();
        }
        // The worker may have ended by itself.
        let _ = entry.worker.close_session(id).await;
        entry.log.close();
        entry.sandbox.end(end).await;
    }

    pub async fn close_idle(&self) {
        let idle = |(id, entry): (&SessionId, &Arc<Entry>)| entry.presence.is_idle().then(|| id.clone());
        let idle: Vec<SessionId> = self.entries().iter().filter_map(idle).collect();
        join_all(idle.iter().map(|id| self.close(id, End::Idle))).await;
    }

    pub async fn close_all(&self, end: End) {
        let all: Vec<SessionId> = self.entries().keys().cloned().collect();
        join_all(all.iter().map(|id| self.close(id, end))).await;
    }

    /// Resolves when the daemon stops.
    fn stopped(&self) -> impl Future<Output = ()> + Send + Sync + 'static {
        let mut stop = self.stop.clone();
        async move {
            if stop.wait_for(|stop| *stop).await.is_err() {
                std::future::pending().await
            }
        }
    }
}

/// What the library asks about MCP sessions, on behalf of one request: it knows the request's caller, and what a session that the
/// request opens consists of.
pub struct Opening {
    table: Arc<SessionTable>,
    caller: Caller,
    sandbox: Arc<Sandbox>,
    presence: Arc<Presence>,
    refusal: OnceLock<LimitReached>,
}

impl Opening {
    pub fn new(table: Arc<SessionTable>, caller: Caller, sandbox: Arc<Sandbox>, presence: Arc<Presence>) -> Self {
        Self { table, caller, sandbox, presence, refusal: OnceLock::new() }
    }

    /// Why this request could not open an MCP session.
    pub fn refusal(&self) -> Option<LimitReached> {
        self.refusal.get().copied()
    }

    fn find(&self, id: &SessionId) -> Result<Arc<Entry>, SessionsError> {
        self.table.find(&self.caller, id)
    }
}

#[derive(Debug, thiserror::Error)]
pub enum SessionsError {
    #[error("there is no such MCP session")]
    Unknown,
    #[error(transparent)]
    Limit(#[from] LimitReached),
    #[error(transparent)]
    Worker(#[from] LocalSessionManagerError),
}

/// A stream that keeps its MCP session.
fn held<S>(stream: S, presence: &Arc<Presence>) -> EventStream
where
    S: Stream<Item = ServerSseMessage> + Send + Sync + 'static,
{
    let held = presence.hold();
    Box::pin(stream.map(move |event| {
        let _ = &held;
        event
    }))
}

impl SessionManager for Opening {
    type Error = SessionsError;
    type Transport = <LocalSessionManager as SessionManager>::Transport;

    async fn create_session(&self) -> Result<(SessionId, Self::Transport), SessionsError> {
        let log = EventLog::new();
        let mut worker = LocalSessionManager::default().with_event_store(Arc::new(Log(log.clone())));
        let mut config = SessionConfig::default();
        // `SessionTable::close_idle` ends idle sessions: the worker's own limit would end one whose call takes long.
        config.keep_alive = None;
        config.sse_retry = Some(RETRY);
        worker.session_config = config;
        let (id, transport) = worker.create_session().await?;
        let owner = self.caller.name().clone();
        let (sandbox, presence) = (self.sandbox.clone(), self.presence.clone());
        let added = self.table.add(id.clone(), Entry { owner, worker, log, sandbox, presence });
        added.inspect_err(|limit| {
            let _ = self.refusal.set(*limit);
        })?;
        Ok((id, transport))
    }

    async fn initialize_session(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, SessionsError> {
        Ok(self.find(id)?.worker.initialize_session(id, message).await?)
    }

    async fn has_session(&self, id: &SessionId) -> Result<bool, SessionsError> {
        Ok(self.find(id).is_ok())
    }

    /// The client's DELETE, or the end of a worker.
    async fn close_session(&self, id: &SessionId) -> Result<(), SessionsError> {
        if self.find(id).is_ok() {
            self.table.close(id, End::Client).await;
        }
        Ok(())
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, SessionsError> {
        let entry = self.find(id)?;
        Ok(held(entry.worker.create_stream(id, message).await?, &entry.presence))
    }

    async fn accept_message(&self, id: &SessionId, message: ClientJsonRpcMessage) -> Result<(), SessionsError> {
        Ok(self.find(id)?.worker.accept_message(id, message).await?)
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, SessionsError> {
        let entry = self.find(id)?;
        let stream = entry.worker.create_standalone_stream(id).await?;
        // It has no end of its own, and would hold up the daemon's stop.
        Ok(held(stream.take_until(Box::pin(self.table.stopped())), &entry.presence))
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, SessionsError> {
        let entry = self.find(id)?;
        Ok(held(entry.worker.resume(id, last_event_id).await?, &entry.presence))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_limits_for_a_key_and_for_the_daemon() {
        assert_eq!(admit(MAX_SESSIONS - 1, MAX_SESSIONS_PER_CALLER - 1), Ok(()));
        assert_eq!(admit(MAX_SESSIONS, 0), Err(LimitReached::OfDaemon));
        assert_eq!(admit(MAX_SESSIONS_PER_CALLER, MAX_SESSIONS_PER_CALLER), Err(LimitReached::OfCaller));
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_holds_a_session_keeps_it_from_being_idle() {
        let presence = Arc::new(Presence::default());
        let held = presence.hold();
        tokio::time::advance(2 * IDLE_LIMIT).await;
        assert!(!presence.is_idle());
        drop(held);
        assert!(!presence.is_idle(), "the time begins when the last one leaves");
        tokio::time::advance(IDLE_LIMIT).await;
        assert!(presence.is_idle());
    }
}
