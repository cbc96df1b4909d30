//! The body of a request to a runner: a document, or a stream that is passed on as it comes.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;

pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// How many bytes of a streamed body have gone out: what tells a slow client from a stuck runner.
#[derive(Debug, Clone, Default)]
pub struct Progress(Arc<AtomicU64>);

impl Progress {
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

pub enum Outgoing {
    Full(Option<Bytes>),
    Stream { body: UnsyncBoxBody<Bytes, BoxError>, progress: Progress },
}

impl Outgoing {
    pub fn empty() -> Self {
        Self::Full(None)
    }

    pub fn full(bytes: impl Into<Bytes>) -> Self {
        Self::Full(Some(bytes.into()))
    }

    pub fn stream<B>(body: B) -> Self
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        use http_body_util::BodyExt as _;
        Self::Stream { body: body.map_err(Into::into).boxed_unsync(), progress: Progress::default() }
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
            Self::Stream { body, progress } => {
                let polled = Pin::new(body).poll_frame(cx);
                if let Poll::Ready(Some(Ok(frame))) = &polled
                    && let Some(data) = frame.data_ref()
                {
                    progress.0.fetch_add(data.len() as u64, Ordering::Relaxed);
                }
                polled
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Full(bytes) => bytes.is_none(),
            Self::Stream { body, .. } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Full(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Self::Stream { body, .. } => body.size_hint(),
        }
    }
}
