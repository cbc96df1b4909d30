//! A stream of server-sent events, parsed as it arrives.

use http_body_util::BodyExt as _;
use hyper::Response;
use hyper::body::Incoming;
use serde_json::Value;

use crate::wait::DEADLINE;

#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    pub name: String,
    pub id: Option<String>,
    pub data: Value,
}

impl Event {
    /// The exact bytes of a chunk.
    pub fn bytes(&self) -> Vec<u8> {
        use base64::Engine as _;
        match self.data["chunk_base64"].as_str() {
            Some(encoded) => base64::engine::general_purpose::STANDARD.decode(encoded).expect("base64"),
            None => self.data["chunk"].as_str().unwrap_or_default().as_bytes().to_vec(),
        }
    }
}

pub struct EventStream {
    body: Incoming,
    pending: Vec<u8>,
}

impl EventStream {
    pub fn new(response: Response<Incoming>) -> Self {
        Self { body: response.into_body(), pending: Vec::new() }
    }

    /// The next event. `None` when the stream has ended.
    pub async fn next(&mut self) -> Option<Event> {
        self.try_next().await.expect("the connection holds")
    }

    /// The same as `next`, for a daemon that may be killed.
    pub async fn try_next(&mut self) -> anyhow::Result<Option<Event>> {
        loop {
            if let Some(end) = self.pending.windows(2).position(|pair| pair == b"\n\n") {
                let block: Vec<u8> = self.pending.drain(..end + 2).collect();
                match parse(&String::from_utf8(block).expect("events are UTF-8")) {
                    Some(event) => return Ok(Some(event)),
                    None => continue,
                }
            }
            let next = tokio::time::timeout(DEADLINE, self.body.frame()).await.expect("an event before the deadline");
            let Some(frame) = next else { return Ok(None) };
            let Ok(data) = frame?.into_data() else { continue };
            self.pending.extend_from_slice(&data);
        }
    }

    /// The next event with this name. Other events are skipped.
    pub async fn until(&mut self, name: &str) -> Event {
        loop {
            let event = self.next().await.unwrap_or_else(|| panic!("the stream ended before {name}"));
            if event.name == name {
                return event;
            }
        }
    }

    /// Reads to the end and returns all output and the last event.
    pub async fn finish(mut self) -> (Vec<u8>, Event) {
        let mut output = Vec::new();
        loop {
            let event = self.next().await.expect("a stream ends with an event");
            match event.name.as_str() {
                "chunk" => {
                    let length = u64::try_from(output.len()).expect("small");
                    assert!(event.data["offset"].as_u64() >= Some(length), "an offset went back: {event:?}");
                    output.extend(event.bytes());
                }
                "done" | "error" => return (output, event),
                _ => {}
            }
        }
    }
}

/// Parses one block. A block with only comments is no event.
fn parse(block: &str) -> Option<Event> {
    let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    let data = field("data")?;
    Some(Event {
        name: field("event").unwrap_or("message").to_owned(),
        id: field("id").map(str::to_owned),
        data: serde_json::from_str(data).unwrap_or_else(|e| panic!("{e}: {data}")),
    })
}
