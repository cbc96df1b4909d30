//! The body of a request whose reader may stop before its end.
//!
//! A client that is still sending may never see its answer: if part of its body is unread when the connection closes, the
//! kernel resets the connection. So the rest of a refused body is read and discarded, up to a limit, and the connection can be
//! used again. Beyond the limit the answer is sent at once, and `server::linger` discards what still arrives.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures_util::Stream;
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt as _;

use crate::service::files::FileSource;

/// The most bytes of a refused body that are read and discarded.
const MAX_DRAINED_BYTES: usize = 64 << 20;
/// The longest time spent on reading a refused body.
pub const MAX_DRAIN_TIME: Duration = Duration::from_secs(2);

/// The daemon's handle to a request's body. It drains the body after the reader has stopped.
pub struct Intake(Arc<Mutex<Body>>);

/// The reader's handle to the body.
pub struct SharedBody {
    body: Arc<Mutex<Body>>,
    size: SizeHint,
}

impl Intake {
    pub fn new(body: Body) -> (Self, SharedBody) {
        let size = http_body::Body::size_hint(&body);
        let body = Arc::new(Mutex::new(body));
        (Self(body.clone()), SharedBody { body, size })
    }

    /// The same as `new`, for a body that is written to a file.
    pub fn of_file(body: Body) -> (Self, FileSource) {
        let (intake, shared) = Self::new(body);
        let length = shared.size.exact();
        (intake, FileSource::stream(shared, length))
    }

    /// Reads and discards the rest of the body.
    pub async fn drain(self) {
        let body = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        drain(body).await;
    }
}

/// Reads and discards a body that no handler reads.
pub async fn drain(body: Body) {
    // This body is too long to drain before the answer.
    if http_body::Body::size_hint(&body).lower() > MAX_DRAINED_BYTES as u64 {
        return;
    }
    let mut rest = http_body_util::Limited::new(body, MAX_DRAINED_BYTES);
    let drained = async { while let Some(Ok(_)) = rest.frame().await {} };
    let _ = tokio::time::timeout(MAX_DRAIN_TIME, drained).await;
}

impl http_body::Body for SharedBody {
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

/// Yields only the data: trailers of a request have no meaning here.
impl Stream for SharedBody {
    type Item = Result<Bytes, axum::Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            match std::task::ready!(http_body::Body::poll_frame(self.as_mut(), cx)) {
                None => return Poll::Ready(None),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                Some(Ok(frame)) => {
                    if let Ok(bytes) = frame.into_data() {
                        return Poll::Ready(Some(Ok(bytes)));
                    }
                }
            }
        }
    }
}
