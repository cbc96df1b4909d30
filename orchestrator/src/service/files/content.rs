//! The bytes of a file or an archive that a client reads from a sandbox.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::Stream;

use crate::metrics::Metrics;
use crate::runner_client::{FileAnswer, Part};
use crate::service::CallError;
use crate::service::in_sandbox::Ended;
use crate::session::Activity;

/// A file's bytes, pulled by their reader. An error is the last item, so that a reader never takes half a file for a whole
/// one.
pub struct FileContent {
    answer: FileAnswer,
    session_ended: Ended,
    metrics: Metrics,
    /// Keeps the session from expiring.
    _activity: Activity,
}

impl FileContent {
    pub(super) fn new(activity: Activity, answer: FileAnswer, metrics: Metrics) -> Self {
        Self { session_ended: Box::pin(activity.ended()), answer, metrics, _activity: activity }
    }

    /// The number of bytes that will come, if it is known.
    pub fn length(&self) -> Option<u64> {
        self.answer.length
    }

    /// The part of the file that will come, if the request asked for a part.
    pub fn part(&self) -> Option<Part> {
        self.answer.part
    }
}

impl Stream for FileContent {
    type Item = Result<Bytes, CallError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        match self.answer.poll_chunk(cx) {
            Poll::Ready(Some(Ok(bytes))) => {
                self.metrics.bytes_out(bytes.len() as u64);
                Poll::Ready(Some(Ok(bytes)))
            }
            Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(error.into()))),
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending => self.session_ended.as_mut().poll(cx).map(|error| Some(Err(error.into()))),
        }
    }
}
