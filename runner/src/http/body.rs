//! The bodies of replies: a whole document, or a stream that is produced as fast as the client takes it.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use hyper::Response;
use serde::Serialize;
use shared_protocol::ErrorBody;
use tokio::sync::mpsc;

/// The most chunks that wait between the producer of a stream and the connection. Two keep both busy.
pub const STREAM_DEPTH: usize = 2;

/// The body of a reply.
pub enum Body {
    Full(Option<Bytes>),
    /// A stream of chunks. An error cuts the connection, so that a client never takes half a reply for a whole one.
    Stream(mpsc::Receiver<std::io::Result<Bytes>>),
}

pub type Reply = Response<Body>;

impl Body {
    pub fn empty() -> Self {
        Self::Full(None)
    }

    pub fn stream() -> (mpsc::Sender<std::io::Result<Bytes>>, Self) {
        let (sender, receiver) = mpsc::channel(STREAM_DEPTH);
        (sender, Self::Stream(receiver))
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<std::io::Result<Frame<Bytes>>>> {
        match &mut *self {
            Self::Full(bytes) => Poll::Ready(bytes.take().map(|b| Ok(Frame::data(b)))),
            Self::Stream(receiver) => receiver.poll_recv(cx).map(|next| next.map(|r| r.map(Frame::data))),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Full(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Full(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |b| b.len() as u64)),
            Self::Stream(_) => SizeHint::default(),
        }
    }
}

pub fn json(status: u16, value: &impl Serialize) -> Reply {
    let bytes = serde_json::to_vec(value).unwrap_or_else(|_| b"{}".to_vec());
    with_type(status, "application/json", Body::Full(Some(bytes.into())))
}

pub fn error(error: &ErrorBody) -> Reply {
    json(error.error_code.http_status(), error)
}

pub fn with_type(status: u16, content_type: &'static str, body: Body) -> Reply {
    let mut reply = Response::new(body);
    *reply.status_mut() = hyper::StatusCode::from_u16(status).unwrap_or(hyper::StatusCode::INTERNAL_SERVER_ERROR);
    reply.headers_mut().insert(hyper::header::CONTENT_TYPE, hyper::header::HeaderValue::from_static(content_type));
    reply
}
