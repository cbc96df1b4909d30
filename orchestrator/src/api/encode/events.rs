//! Encodes the events of a stream as bytes: server-sent events, or one JSON object per line. Pure.
//!
//! Events collect in a buffer until `take`, so that events that are available together are sent in one write. The `id` of an
//! event is the offset after its last byte: a client that saw the event continues from there.

use bytes::Bytes;
use hyper::HeaderMap;
use hyper::header::ACCEPT;
use serde::Serialize;
use serde_json::{Value, json};
use shared_protocol::api::{AttachedFrame, ChunkEvent, ExecDone, StreamErrorEvent};
use shared_protocol::{ErrorBody, ExecId};

use super::base64;
use crate::service::commands::ExecEvent;
use crate::service::output::Piece;

pub const NDJSON: &str = "application/x-ndjson";
pub const EVENT_STREAM: &str = "text/event-stream";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Sse,
    Ndjson,
}

impl Format {
    /// The format that the client's `Accept` header asks for: JSON lines if it names them, otherwise server-sent events.
    pub fn wanted(headers: &HeaderMap) -> Self {
        Self::asked(headers).unwrap_or(Self::Sse)
    }

    /// The format of a stream that the client's `Accept` header names, for an answer that is a stream only if it is asked for.
    pub fn asked(headers: &HeaderMap) -> Option<Self> {
        let names = |media_type: &str| {
            let is_it =
                |kind: &str| kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case(media_type));
            headers.get_all(ACCEPT).iter().any(|value| value.to_str().is_ok_and(|value| value.split(',').any(is_it)))
        };
        match (names(NDJSON), names(EVENT_STREAM)) {
            (true, _) => Some(Self::Ndjson),
            (false, true) => Some(Self::Sse),
            (false, false) => None,
        }
    }

    pub fn content_type(self) -> &'static str {
        match self {
            Self::Sse => EVENT_STREAM,
            Self::Ndjson => NDJSON,
        }
    }
}

/// Turns events into bytes.
#[derive(Debug)]
pub struct Encoder {
    format: Format,
    buffer: Vec<u8>,
    /// The offset after the last encoded byte.
    offset: u64,
}

impl Encoder {
    pub fn new(format: Format, from: u64) -> Self {
        Self { format, buffer: Vec::new(), offset: from }
    }

    pub fn len(&self) -> usize {
        self.buffer.len()
    }

    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// Returns the encoded bytes and empties the buffer.
    pub fn take(&mut self) -> Bytes {
        std::mem::take(&mut self.buffer).into()
    }

    pub fn push(&mut self, event: ExecEvent) {
        match event {
            ExecEvent::Started { exec_id, pid } => self.started(&exec_id, pid),
            ExecEvent::Queued { exec_id, running_exec_id } => self.queued(exec_id, running_exec_id),
            ExecEvent::Running { exec_id } => self.running(exec_id),
            ExecEvent::Output { piece, timestamp_ms } => self.chunk(piece, timestamp_ms),
            ExecEvent::Gap { offset, bytes } => self.gap(offset, bytes),
            ExecEvent::AwaitingInput => self.awaiting_input(),
            ExecEvent::Done(done) => self.done(*done),
            ExecEvent::Failed(error) => self.error(error.into()),
        }
    }

    fn started(&mut self, exec_id: &ExecId, pid: Option<u32>) {
        let mut data = json!({ "exec_id": exec_id });
        if let Some(pid) = pid {
            data["pid"] = pid.into();
        }
        self.frame("started", &AttachedFrame::Started { exec_id: exec_id.clone(), pid }, &data);
    }

    fn queued(&mut self, exec_id: ExecId, running_exec_id: ExecId) {
        let data = json!({ "exec_id": exec_id, "running_exec_id": running_exec_id });
        self.frame("queued", &AttachedFrame::Queued { exec_id, running_exec_id }, &data);
    }

    fn running(&mut self, exec_id: ExecId) {
        let data = json!({ "exec_id": exec_id });
        self.frame("running", &AttachedFrame::Running { exec_id }, &data);
    }

    fn chunk(&mut self, piece: Piece, timestamp: u64) {
        self.offset = piece.end();
        self.buffer.reserve(piece.text.len() + piece.text.len() / 8 + 128);
        let chunk_base64 = piece.exact.map(base64);
        let event =
            ChunkEvent { chunk: piece.text, chunk_base64, stream: piece.stream, offset: piece.offset, timestamp };
        match self.format {
            Format::Sse => self.event("chunk", &event),
            Format::Ndjson => self.event("chunk", &AttachedFrame::Chunk(event)),
        }
    }

    fn gap(&mut self, offset: u64, bytes: u64) {
        self.offset = offset.saturating_add(bytes);
        self.frame("gap", &AttachedFrame::Gap { offset, bytes }, &json!({ "offset": offset, "bytes": bytes }));
    }

    fn awaiting_input(&mut self) {
        self.frame("awaiting_input", &AttachedFrame::AwaitingInput, &json!({}));
    }

    /// Encodes one event. A JSON line contains the event's name; a server-sent event has its name in a field of its own.
    fn frame(&mut self, name: &str, line: &AttachedFrame, data: &Value) {
        match self.format {
            Format::Sse => self.event(name, data),
            Format::Ndjson => self.event(name, line),
        }
    }

    fn done(&mut self, done: ExecDone) {
        match self.format {
            Format::Sse => self.event("done", &done),
            Format::Ndjson => self.event("done", &AttachedFrame::Done(done)),
        }
    }

    fn error(&mut self, error: ErrorBody) {
        let event = StreamErrorEvent { error: error.message, error_code: error.error_code, details: error.details };
        match self.format {
            Format::Sse => self.event("error", &event),
            Format::Ndjson => self.event("error", &AttachedFrame::Error(event)),
        }
    }

    /// Adds a comment, which shows proxies and the client that the stream is alive. JSON lines have no comments.
    pub fn keep_alive(&mut self) {
        if self.format == Format::Sse {
            self.buffer.extend_from_slice(b": keep-alive\n\n");
        }
    }

    fn event(&mut self, name: &str, data: &impl Serialize) {
        let before = self.buffer.len();
        if self.format == Format::Sse {
            self.buffer.extend_from_slice(format!("event: {name}\nid: {}\ndata: ", self.offset).as_bytes());
        }
        // Serde escapes every line end, so the data is a single line.
        if let Err(error) = serde_json::to_writer(&mut self.buffer, data) {
            tracing::error!(%error, event = name, "an event could not be encoded");
            self.buffer.truncate(before);
            return;
        }
        self.buffer.extend_from_slice(if self.format == Format::Sse { b"\n\n" } else { b"\n" });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;
    use proptest::prelude::*;
    use shared_protocol::ErrorCode;
    use shared_protocol::runner::Stream;

    fn piece(text: &str, offset: u64) -> Piece {
        Piece { stream: Stream::Merged, offset, text: text.into(), exact: None }
    }

    #[test]
    fn an_event_is_its_name_its_id_and_one_line_of_data() {
        let mut encoder = Encoder::new(Format::Sse, 0);
        encoder.chunk(piece("a\nb\r\n\u{2028}", 3), 5);
        let text = String::from_utf8(encoder.take().to_vec()).unwrap();
        let data = r#"{"chunk":"a\nb\r\n"#;
        assert!(text.starts_with(&format!("event: chunk\nid: 11\ndata: {data}")), "{text}");
        assert!(text.ends_with("\"stream\":\"merged\",\"offset\":3,\"timestamp\":5}\n\n"), "{text}");
        assert_eq!(text.lines().count(), 4);
        assert!(encoder.is_empty());
    }

    #[test]
    fn an_event_has_its_name_once() {
        let mut encoder = Encoder::new(Format::Sse, 0);
        encoder.started(&ExecId::new("x").unwrap(), Some(7));
        encoder.queued(ExecId::new("x").unwrap(), ExecId::new("y").unwrap());
        encoder.running(ExecId::new("x").unwrap());
        encoder.gap(0, 4);
        encoder.awaiting_input();
        let text = String::from_utf8(encoder.take().to_vec()).unwrap();
        let events = [
            "event: started\nid: 0\ndata: {\"exec_id\":\"x\",\"pid\":7}\n\n",
            "event: queued\nid: 0\ndata: {\"exec_id\":\"x\",\"running_exec_id\":\"y\"}\n\n",
            "event: running\nid: 0\ndata: {\"exec_id\":\"x\"}\n\n",
            "event: gap\nid: 4\ndata: {\"bytes\":4,\"offset\":0}\n\n",
            "event: awaiting_input\nid: 4\ndata: {}\n\n",
        ];
        assert_eq!(text, events.concat());
    }

    #[test]
    fn a_line_names_its_event() {
        let mut encoder = Encoder::new(Format::Ndjson, 0);
        encoder.started(&ExecId::new("x").unwrap(), None);
        encoder.gap(0, 4);
        encoder.awaiting_input();
        encoder.keep_alive();
        encoder.error(ErrorBody::new(ErrorCode::SandboxLost, "gone"));
        let text = String::from_utf8(encoder.take().to_vec()).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], r#"{"event":"started","exec_id":"x"}"#);
        assert_eq!(lines[1], r#"{"event":"gap","offset":0,"bytes":4}"#);
        assert_eq!(lines[2], r#"{"event":"awaiting_input"}"#);
        assert_eq!(lines[3], r#"{"event":"error","error":"gone","error_code":"SANDBOX_LOST"}"#);
        assert_eq!(lines.len(), 4);
    }

    #[test]
    fn lines_are_for_those_who_ask_for_them() {
        let wanted = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, HeaderValue::from_static(value));
            Format::wanted(&headers)
        };
        assert_eq!(wanted("application/x-ndjson"), Format::Ndjson);
        assert_eq!(wanted("text/html, Application/X-NDJSON;q=0.9"), Format::Ndjson);
        assert_eq!(wanted("*/*"), Format::Sse);
        assert_eq!(Format::wanted(&HeaderMap::new()), Format::Sse);
    }

    proptest! {
        #[test]
        fn no_output_can_forge_an_event(text in "(?s).{0,80}", exact in any::<bool>()) {
            let mut encoder = Encoder::new(Format::Sse, 0);
            let exact = exact.then(|| text.clone().into_bytes());
            encoder.chunk(Piece { stream: Stream::Tty, offset: 0, text, exact }, 0);
            let bytes = encoder.take();
            let body = &bytes[..bytes.len() - 2];
            prop_assert_eq!(body.iter().filter(|byte| **byte == b'\n').count(), 2);
            prop_assert!(!body.contains(&b'\r'));
        }
    }
}
