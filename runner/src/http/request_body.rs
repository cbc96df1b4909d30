//! The body of a request, which a handler may leave unread.
//!
//! hyper closes a connection whose request was not read to its end, and the reply does not say so. A client that keeps the
//! connection then loses its next request. So whatever a handler leaves is read and discarded beside the reply, within limits,
//! and the connection can be used again.

use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;

/// The most bytes that are read and discarded. A longer rest closes the connection.
const MAX_DISCARDED_BYTES: usize = 1 << 20;
/// How long the rest may take to arrive.
const DISCARD_TIME: Duration = Duration::from_secs(10);

/// The handler's side of a body.
pub struct RequestBody(Rc<RefCell<Incoming>>);

/// The connection's side of a body: it discards what the handler left.
pub struct Rest(Rc<RefCell<Incoming>>);

/// Gives a handler the body, and keeps a hold on what it may leave.
pub fn split(body: Incoming) -> (RequestBody, Rest) {
    let shared = Rc::new(RefCell::new(body));
    (RequestBody(shared.clone()), Rest(shared))
}

impl Rest {
    /// Discards the rest of the body in a task of its own, so that the reply does not wait. Does nothing while the handler, or
    /// a task that it started, still has the body.
    pub fn discard(self) {
        let Some(body) = Rc::into_inner(self.0).map(RefCell::into_inner) else { return };
        if body.is_end_stream() {
            return;
        }
        tokio::task::spawn_local(tokio::time::timeout(DISCARD_TIME, async move {
            let mut rest = Limited::new(body, MAX_DISCARDED_BYTES);
            while let Some(Ok(_)) = rest.frame().await {}
        }));
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        Pin::new(&mut *self.0.borrow_mut()).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.0.borrow().is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.borrow().size_hint()
    }
}
