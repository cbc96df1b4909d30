//! The response that streams an exec's events as they happen.
//!
//! The connection to the client pulls the body, so nothing is read faster than the client takes it.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue};

use super::events::{Encoder, Format};
use crate::service::commands::ExecStream;

/// The time after which a silent stream sends a keep-alive.
pub const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// The most bytes of events that are sent in one write.
const BATCH_BYTES: usize = 64 << 10;

/// The header with the exec's id. It comes with the response head, so that a client can reattach to a command that is still
/// queued.
const EXEC_ID_HEADER: HeaderName = HeaderName::from_static("x-cove-exec-id");

/// The header that tells nginx and similar proxies not to buffer the stream.
pub const NO_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// Answers with the events of an exec.
pub fn stream(events: ExecStream, format: Format) -> Response {
    let exec_id = HeaderValue::from_str(events.exec_id().as_str());
    let encoder = Encoder::new(format, events.offset());
    let body = Body::from_stream(futures_util::stream::unfold(Telling { events, encoder }, Telling::next));
    let mut response = body.into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(format.content_type()));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(NO_BUFFERING, HeaderValue::from_static("no"));
    if let Ok(exec_id) = exec_id {
        headers.insert(EXEC_ID_HEADER, exec_id);
    }
    response
}

/// The state of a stream that is being sent.
struct Telling {
    events: ExecStream,
    encoder: Encoder,
}

impl Telling {
    /// Returns the next bytes of the body: all whole events that are available. An event never waits for the one after it.
    async fn next(mut self) -> Option<(Result<Bytes, Infallible>, Self)> {
        while self.encoder.len() < BATCH_BYTES {
            let event = if self.encoder.is_empty() {
                tokio::select! {
                    biased;
                    event = self.events.next() => event,
                    () = tokio::time::sleep(KEEP_ALIVE) => {
                        self.encoder.keep_alive();
                        continue;
                    }
                }
            } else {
                self.events.next_ready()
            };
            match event {
                Some(event) => self.encoder.push(event),
                None => break,
            }
        }
        (!self.encoder.is_empty()).then(|| (Ok(self.encoder.take()), self))
    }
}
