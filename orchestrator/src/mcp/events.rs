//! The last events of one MCP session, for a client that was cut off and asks for what it missed.
//!
//! Events are kept by number, at most [`MAX_EVENTS`] and [`MAX_BYTES`] of them; the oldest go first. A client that comes back gets
//! what is left of its stream, and then what comes, until the answer to its request or the end of the MCP session. The log does not
//! know whose it is: `sessions` gives it to the session's caller alone.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use futures_util::stream;
use rmcp::model::JsonRpcMessage;
use rmcp::transport::streamable_http_server::session::{
    EventId, EventStore, EventStoreError, EventStream, ServerSseMessage,
};
use tokio::sync::watch;

const MAX_EVENTS: usize = 256;
const MAX_BYTES: usize = 1 << 20;
/// The most streams that wait for their answer and can be continued.
const MAX_OPEN_STREAMS: usize = 1024;

pub struct EventLog {
    kept: Mutex<Kept>,
    /// Changes with every event, and at the end.
    changes: watch::Sender<u64>,
}

#[derive(Default)]
struct Kept {
    events: VecDeque<Stored>,
    bytes: usize,
    last: u64,
    /// Streams whose answer has not come yet.
    open: HashSet<Arc<str>>,
    is_closed: bool,
}

struct Stored {
    stream: Arc<str>,
    number: u64,
    event: ServerSseMessage,
    bytes: usize,
}

#[derive(Debug, thiserror::Error)]
#[error("{0:?} is no event of this MCP session")]
struct UnknownEvent(String);

impl EventLog {
    pub fn new() -> Arc<Self> {
        Arc::new(Self { kept: Mutex::default(), changes: watch::Sender::new(0) })
    }

    /// Ends every stream that is being read.
    pub fn close(&self) {
        self.kept().is_closed = true;
        self.changes.send_modify(|change| *change += 1);
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends an event and returns its id.
    fn append(&self, stream: &str, event: &ServerSseMessage) -> EventId {
        let bytes =
            event.message.as_deref().and_then(|message| serde_json::to_vec(message).ok()).map_or(0, |m| m.len());
        let is_answer =
            matches!(event.message.as_deref(), Some(JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_)));
        let id = self.kept().append(stream, event, bytes, is_answer);
        self.changes.send_modify(|change| *change += 1);
        id
    }
}

impl Kept {
    fn append(&mut self, stream: &str, event: &ServerSseMessage, bytes: usize, is_answer: bool) -> EventId {
        self.last += 1;
        let number = self.last;
        let id = format!("{number}.{stream}");
        let stream: Arc<str> = match self.open.get(stream) {
            Some(known) => known.clone(),
            None => stream.into(),
        };
        if is_answer {
            self.open.remove(&stream);
        } else if self.open.len() < MAX_OPEN_STREAMS {
            self.open.insert(stream.clone());
        }
        let mut event = event.clone();
        event.event_id = Some(id.clone());
        self.bytes += bytes;
        self.events.push_back(Stored { stream, number, event, bytes });
        while self.events.len() > MAX_EVENTS || self.bytes > MAX_BYTES {
            let Some(oldest) = self.events.pop_front() else { break };
            self.bytes -= oldest.bytes;
        }
        id
    }

    fn next_after(&self, stream: &str, number: u64) -> Next {
        match self.events.iter().find(|stored| stored.number > number && *stored.stream == *stream) {
            Some(stored) => Next::Event(stored.number, Box::new(stored.event.clone())),
            None if self.is_closed || !self.open.contains(stream) => Next::Over,
            None => Next::Wait,
        }
    }
}

/// What follows an event of a stream.
enum Next {
    Event(u64, Box<ServerSseMessage>),
    /// Nothing yet.
    Wait,
    Over,
}

/// The log as the library uses it.
pub struct Log(pub Arc<EventLog>);

#[async_trait]
impl EventStore for Log {
    async fn store_event(&self, stream_id: &str, event: &ServerSseMessage) -> Result<EventId, EventStoreError> {
        Ok(self.0.append(stream_id, event))
    }

    async fn replay_events_after(&self, last_event_id: &str) -> Result<EventStream, EventStoreError> {
        let unknown = || UnknownEvent(last_event_id.chars().take(64).collect());
        let (number, stream) = last_event_id.split_once('.').ok_or_else(unknown)?;
        let number: u64 = number.parse().map_err(|_| unknown())?;
        if number > self.0.kept().last {
            return Err(unknown().into());
        }
        let reading = (self.0.clone(), self.0.changes.subscribe(), stream.to_owned(), number);
        Ok(Box::pin(stream::unfold(reading, |(log, mut changes, stream, number)| async move {
            loop {
                // Seen before looking, so that an event in between wakes this again.
                changes.borrow_and_update();
                let next = log.kept().next_after(&stream, number);
                match next {
                    Next::Event(number, event) => return Some((*event, (log, changes, stream, number))),
                    Next::Over => return None,
                    Next::Wait => changes.changed().await.ok()?,
                }
            }
        })))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::StreamExt as _;
    use rmcp::model::{ErrorData, RequestId, ServerJsonRpcMessage};

    use super::*;

    fn progress() -> ServerSseMessage {
        ServerSseMessage::retry(Duration::from_secs(3))
    }

    fn answer(text: &str) -> ServerSseMessage {
        let error = ErrorData::internal_error(text.to_owned(), None);
        ServerSseMessage::from_message(ServerJsonRpcMessage::error(error, Some(RequestId::Number(1))))
    }

    async fn replayed(log: &Log, id: &str) -> Vec<String> {
        log.replay_events_after(id).await.unwrap().map(|event| event.event_id.unwrap()).collect().await
    }

    #[tokio::test]
    async fn a_client_gets_what_it_missed_of_its_own_stream_also_after_the_answer() {
        let log = Log(EventLog::new());
        let mut ids = Vec::new();
        for (stream, event) in [("a", progress()), ("b", progress()), ("a", progress()), ("a", answer("x"))] {
            ids.push(log.store_event(stream, &event).await.unwrap());
        }
        assert_eq!(replayed(&log, &ids[0]).await, [ids[2].clone(), ids[3].clone()]);
        assert_eq!(replayed(&log, &ids[3]).await, Vec::<String>::new());
    }

    #[tokio::test]
    async fn a_client_that_is_back_before_the_answer_gets_it_when_it_comes() {
        let log = Log(EventLog::new());
        let first = log.store_event("a", &progress()).await.unwrap();
        let mut events = log.replay_events_after(&first).await.unwrap();
        let answer = log.store_event("a", &answer("x")).await.unwrap();
        assert_eq!(events.next().await.unwrap().event_id.unwrap(), answer);
        assert!(events.next().await.is_none());
    }

    #[tokio::test]
    async fn the_end_of_the_session_ends_a_stream_that_waits() {
        let log = Log(EventLog::new());
        let first = log.store_event("a", &progress()).await.unwrap();
        let mut events = log.replay_events_after(&first).await.unwrap();
        log.0.close();
        assert!(events.next().await.is_none());
    }

    #[tokio::test]
    async fn an_id_that_is_none_is_refused() {
        let log = Log(EventLog::new());
        for id in ["", "0", "x.a", "1.a", "-1.a", "99999999999999999999.a"] {
            assert!(log.replay_events_after(id).await.is_err(), "{id:?}");
        }
    }

    #[tokio::test]
    async fn the_log_stays_within_its_bounds() {
        let log = Log(EventLog::new());
        for _ in 0..2 * MAX_EVENTS {
            log.store_event("a", &progress()).await.unwrap();
        }
        assert_eq!(log.0.kept().events.len(), MAX_EVENTS);
        log.store_event("b", &answer(&"x".repeat(MAX_BYTES - 1000))).await.unwrap();
        assert!(log.0.kept().bytes <= MAX_BYTES);
        let first = log.store_event("c", &progress()).await.unwrap();
        log.store_event("c", &answer(&"x".repeat(MAX_BYTES + 1))).await.unwrap();
        let left = {
            let kept = log.0.kept();
            (kept.bytes, kept.events.len())
        };
        assert_eq!(left, (0, 0));
        assert_eq!(replayed(&log, &first).await, Vec::<String>::new(), "the stream is over, and nobody waits for it");
    }
}
