//! The body of a request to a runner: a document, or a stream that is passed on as it arrives.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::Stream;
use http_body::{Body, Frame, SizeHint};

pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The number of sent bytes of a streamed body. It shows whether a client is slow or a runner is stuck.
#[derive(Debug, Clone, Default)]
pub struct Progress(Arc<AtomicU64>);

impl Progress {
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

type ByteStream = Pin<Box<dyn Stream<Item = Result<Bytes, BoxError>> + Send>>;

pub enum Outgoing {
    Full(Option<Bytes>),
    Stream {
        bytes: ByteStream,
        /// The number of bytes that are left to send, if it is known.
        left: Option<u64>,
        progress: Progress,
    },
}

impl Outgoing {
    pub fn empty() -> Self {
        Self::Full(None)
    }

    pub fn full(bytes: impl Into<Bytes>) -> Self {
        Self::Full(Some(bytes.into()))
    }

    /// A body of streamed bytes. `length` is their number, if it is known. An error cuts the request.
    pub fn stream<S, E>(bytes: S, length: Option<u64>) -> Self
    where
        S: Stream<Item = Result<Bytes, E>> + Send + 'static,
        E: Into<BoxError> + 'static,
    {
        use futures_util::TryStreamExt as _;
        Self::Stream { bytes: Box::pin(bytes.map_err(Into::into)), left: length, progress: Progress::default() }
    }

    pub fn progress(&self) -> Progress {
        match self {
            Self::Full(_) => Progress::default(),
            Self::Stream { progress, .. } => progress.clone(),
        }
    }
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut *self {
            Self::Full(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Stream { bytes, left, progress } => {
                let polled = bytes.as_mut().poll_next(cx);
                if let Poll::Ready(Some(Ok(data))) = &polled {
                    progress.0.fetch_add(data.len() as u64, Ordering::Relaxed);
                    *left = left.map(|left| left.saturating_sub(data.len() as u64));
                }
                polled.map_ok(Frame::data)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Full(bytes) => bytes.is_none(),
            Self::Stream { left, .. } => *left == Some(0),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Full(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Self::Stream { left, .. } => left.map_or_else(SizeHint::default, SizeHint::with_exact),
        }
    }
}
