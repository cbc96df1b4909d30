//! The body of an answer, with what it holds until its end: the caller's place among the requests in flight. A stream also ends
//! when the caller's key is removed.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use http_body::{Body as HttpBody, Frame, SizeHint};
use shared_protocol::KeyName;

use super::clients::Place;
use crate::service::Caller;

/// An answer of at most this size is sent even if the key is removed meanwhile: it is complete already.
const MAX_COMPLETE_BYTES: u64 = 64 << 10;

/// The place of one request among those of its key.
pub type InFlight = Arc<Place<KeyName>>;

pub struct HeldBody {
    inner: Body,
    removed: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    _in_flight: InFlight,
}

/// The caller's key was removed while its answer was sent.
#[derive(Debug, thiserror::Error)]
#[error("the API key was removed")]
pub struct KeyRemoved;

impl HeldBody {
    pub fn new(inner: Body, caller: Caller, in_flight: InFlight) -> Self {
        let is_complete = inner.size_hint().exact().is_some_and(|bytes| bytes <= MAX_COMPLETE_BYTES);
        let removed = (!is_complete).then(|| {
            let removed: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(async move { caller.removed().await });
            removed
        });
        Self { inner, removed, _in_flight: in_flight }
    }
}

impl HttpBody for HeldBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if let Some(removed) = &mut self.removed
            && removed.as_mut().poll(cx).is_ready()
        {
            self.removed = None;
            return Poll::Ready(Some(Err(axum::Error::new(KeyRemoved))));
        }
        Pin::new(&mut self.inner).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
