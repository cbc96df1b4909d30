//! The body of a request on its way to the runner, which may want only part of it.
//!
//! A client that still sends when it is answered may never see the answer: the rest of its body, unread when the connection is
//! closed, makes the kernel reset it. So what is left of a refused body is read and thrown away, up to a bound.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt as _;

/// Of a refused body: what is read and thrown away, and for how long.
const MAX_DRAINED_BYTES: usize = 64 << 20;
const MAX_DRAIN_TIME: Duration = Duration::from_secs(2);

/// A request's body that can be read by the runner's connection and, once that is gone, from here.
pub struct Intake(Arc<Mutex<Body>>);

/// The end that the runner's connection reads.
pub struct Passing {
    body: Arc<Mutex<Body>>,
    size: SizeHint,
}

impl Intake {
    pub fn new(body: Body) -> (Self, Passing) {
        let size = http_body::Body::size_hint(&body);
        let body = Arc::new(Mutex::new(body));
        (Self(body.clone()), Passing { body, size })
    }

    /// Throws the rest away.
    pub async fn drain(self) {
        let body = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        // Too much to be worth reading: such a client has to look for its answer while it sends.
        if http_body::Body::size_hint(&body).lower() > MAX_DRAINED_BYTES as u64 {
            return;
        }
        let mut rest = http_body_util::Limited::new(body, MAX_DRAINED_BYTES);
        let drained = async { while let Some(Ok(_)) = rest.frame().await {} };
        let _ = tokio::time::timeout(MAX_DRAIN_TIME, drained).await;
    }
}

impl http_body::Body for Passing {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let mut body = self.body.lock().unwrap_or_else(PoisonError::into_inner);
        Pin::new(&mut *body).poll_frame(cx)
    }

    fn size_hint(&self) -> SizeHint {
        self.size
    }
}
