//! Calls of `/mcp`: a message of the Model Context Protocol is sent, and messages come back as server-sent events. What the messages
//! say is for whoever speaks the protocol; here they are bytes.

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt as _, Limited};
use hyper::Method;
use hyper::body::Incoming;
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue};

use super::files::escaped;
use super::{ApiError, Client, ClientError, MAX_ERROR_BYTES, ReplyTimeout, empty, full, request};

const EVENTS: &str = "text/event-stream";
const SESSION_ID: &str = "mcp-session-id";
/// The longest event. A result has the output of a command, which the daemon bounds, or an image.
const MAX_EVENT_BYTES: usize = 64 << 20;

/// Headers of a request, by their names.
pub type McpHeaders = Vec<(&'static str, String)>;

/// The header that names an MCP session.
pub fn mcp_session(id: &str) -> (&'static str, String) {
    (SESSION_ID, id.to_owned())
}

/// The answer to a message.
pub enum McpAnswer {
    /// The message needs none.
    Accepted,
    /// One message.
    Document(Bytes),
    Events {
        /// The MCP session that the message has opened.
        session: Option<String>,
        events: EventReader,
    },
}

/// The path of `/mcp` with query parameters.
pub fn mcp_path(parameters: &[(&str, &str)]) -> String {
    let query: Vec<String> =
        parameters.iter().map(|(name, value)| format!("{name}={}", escaped(value.as_bytes()))).collect();
    if query.is_empty() { "/mcp".to_owned() } else { format!("/mcp?{}", query.join("&")) }
}

impl Client {
    pub async fn mcp_post(&self, path: &str, headers: &McpHeaders, message: Bytes) -> Result<McpAnswer, ClientError> {
        let mut request = self.mcp_request(Method::POST, path, headers)?;
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        *request.body_mut() = full(message);
        let response = self.exchange(request, ReplyTimeout::Bounded).await?;
        let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
        let kind = header(CONTENT_TYPE.as_str()).unwrap_or_default().to_owned();
        let session = header(SESSION_ID).map(str::to_owned);
        let status = response.status();
        if status.is_success() && kind.starts_with(EVENTS) {
            return Ok(McpAnswer::Events { session, events: EventReader::new(response.into_body()) });
        }
        let limit = if status.is_success() { MAX_EVENT_BYTES } else { MAX_ERROR_BYTES };
        let body = Limited::new(response.into_body(), limit).collect().await;
        let body = body.map_err(|error| ClientError::Lost(error.to_string()))?.to_bytes();
        // An error of the protocol is an answer, whatever its status is.
        if body.starts_with(br#"{"jsonrpc""#) {
            return Ok(McpAnswer::Document(body));
        }
        if status.is_success() {
            return Ok(McpAnswer::Accepted);
        }
        Err(ClientError::Api(ApiError::parse(status.as_u16(), &body)))
    }

    /// The events after the last one that came.
    pub async fn mcp_resume(
        &self,
        path: &str,
        headers: &McpHeaders,
        last_event: &str,
    ) -> Result<EventReader, ClientError> {
        let mut request = self.mcp_request(Method::GET, path, headers)?;
        let last = HeaderValue::try_from(last_event).map_err(|e| ClientError::Protocol(e.to_string()))?;
        request.headers_mut().insert("last-event-id", last);
        Ok(EventReader::new(self.send(request, ReplyTimeout::Bounded).await?.into_body()))
    }

    /// Ends an MCP session.
    pub async fn mcp_end(&self, path: &str, headers: &McpHeaders) -> Result<(), ClientError> {
        self.send(self.mcp_request(Method::DELETE, path, headers)?, ReplyTimeout::Bounded).await.map(drop)
    }

    fn mcp_request(
        &self,
        method: Method,
        path: &str,
        headers: &McpHeaders,
    ) -> Result<hyper::Request<super::Body>, ClientError> {
        let mut request = request(method, path, empty())?;
        request.headers_mut().insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        for (name, value) in headers {
            let value = HeaderValue::try_from(value).map_err(|e| ClientError::Protocol(format!("{name}: {e}")))?;
            request.headers_mut().insert(HeaderName::from_static(name), value);
        }
        Ok(request)
    }
}

/// One server-sent event.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct McpEvent {
    pub id: Option<String>,
    /// A message; empty in an event that only tells its id.
    pub data: String,
}

/// Reads server-sent events.
pub struct EventReader {
    body: Incoming,
    blocks: Blocks,
}

impl EventReader {
    fn new(body: Incoming) -> Self {
        Self { body, blocks: Blocks::default() }
    }

    /// The next event; `None` at the end of the stream.
    pub async fn next(&mut self) -> Result<Option<McpEvent>, ClientError> {
        loop {
            if let Some(event) = self.blocks.take()? {
                return Ok(Some(event));
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(frame) => {
                    if let Ok(bytes) = frame.map_err(ClientError::lost)?.into_data() {
                        self.blocks.push(&bytes)?;
                    }
                }
            }
        }
    }
}

/// Takes the text of a stream apart at its empty lines.
#[derive(Default)]
struct Blocks {
    bytes: BytesMut,
    /// How much of it has no end of a block.
    searched: usize,
}

impl Blocks {
    fn push(&mut self, bytes: &[u8]) -> Result<(), ClientError> {
        if self.bytes.len() + bytes.len() > MAX_EVENT_BYTES {
            return Err(ClientError::Protocol("an event is too long".into()));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    /// The next event with an id or data. Comments, which keep a connection alive, are skipped.
    fn take(&mut self) -> Result<Option<McpEvent>, ClientError> {
        loop {
            let from = self.searched.saturating_sub(1);
            let Some(end) = self.bytes[from..].windows(2).position(|two| two == b"\n\n") else {
                self.searched = self.bytes.len();
                return Ok(None);
            };
            let block = self.bytes.split_to(from + end + 2);
            self.searched = 0;
            let text = std::str::from_utf8(&block).map_err(|e| ClientError::Protocol(format!("an event: {e}")))?;
            let event = parse(text);
            if event != McpEvent::default() {
                return Ok(Some(event));
            }
        }
    }
}

fn parse(block: &str) -> McpEvent {
    let mut event = McpEvent::default();
    for line in block.lines() {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "id" => event.id = Some(value.to_owned()),
            "data" if event.data.is_empty() => event.data = value.to_owned(),
            "data" => event.data = format!("{}\n{value}", event.data),
            _ => {}
        }
    }
    event
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_found_however_the_stream_is_cut() {
        let text = ": hello\n\nid: 1.a\nretry: 1000\ndata: \n\nid:2.a\ndata: {\"a\":\ndata: 1}\n\n:\n\ndata: x\n\n";
        for size in 1..text.len() {
            let mut blocks = Blocks::default();
            let mut seen = Vec::new();
            for piece in text.as_bytes().chunks(size) {
                blocks.push(piece).unwrap();
                while let Some(event) = blocks.take().unwrap() {
                    seen.push((event.id.unwrap_or_default(), event.data));
                }
            }
            let expected = [("1.a", ""), ("2.a", "{\"a\":\n1}"), ("", "x")];
            assert_eq!(seen, expected.map(|(id, data)| (id.to_owned(), data.to_owned())), "{size}");
        }
    }

    #[test]
    fn a_path_has_its_parameters_escaped() {
        assert_eq!(mcp_path(&[]), "/mcp");
        assert_eq!(mcp_path(&[("image", "a/b:1"), ("name", "n")]), "/mcp?image=a%2Fb%3A1&name=n");
    }
}
