//! Answers that tell what happens: how far a pull is, or a create that pulls, and what changes in a directory. Each event is a frame of the wire types.

use std::convert::Infallible;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use serde::Serialize;
use serde_json::Value;

use super::events::Format;
use super::stream::{KEEP_ALIVE, NO_BUFFERING};

/// The field of a frame that has the event's name.
const NAME: &str = "event";

/// Something that is told as it happens.
pub trait Told: Send + 'static {
    type Frame: Serialize + Send;

    /// The next frame; `None` after the last one. Dropping the future must lose nothing.
    fn next(&mut self) -> impl Future<Output = Option<Self::Frame>> + Send;
}

/// An answer with an event for each frame, and something else from time to time if there is none, so that a connection that is lost
/// is noticed.
pub fn progress(told: impl Told, format: Format) -> Response {
    let stream = futures_util::stream::unfold(told, move |mut told| async move {
        let bytes = tokio::select! {
            biased;
            frame = told.next() => encode(&frame?, format),
            () = tokio::time::sleep(KEEP_ALIVE) => match format {
                Format::Sse => b": keep-alive\n\n".to_vec(),
                Format::Ndjson => b"\n".to_vec(),
            },
        };
        Some((Ok::<Bytes, Infallible>(Bytes::from(bytes)), told))
    });
    let mut response = Body::from_stream(stream).into_response();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(format.content_type()));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response.headers_mut().insert(NO_BUFFERING, HeaderValue::from_static("no"));
    response
}

fn encode(frame: &impl Serialize, format: Format) -> Vec<u8> {
    // Frames are objects of texts and numbers, which always can be written.
    let mut frame = serde_json::to_value(frame).unwrap_or_default();
    if format == Format::Ndjson {
        return format!("{frame}\n").into_bytes();
    }
    let name = frame.as_object_mut().and_then(|frame| frame.remove(NAME));
    let name = name.as_ref().and_then(Value::as_str).unwrap_or_default();
    format!("event: {name}\ndata: {frame}\n\n").into_bytes()
}
