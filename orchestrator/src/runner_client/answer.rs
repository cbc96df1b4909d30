//! The body of an answer, with the line it comes on. Read to its end, the line goes back to the pool; dropped before, the
//! line is closed with it.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use hyper::body::Incoming;
use serde::de::DeserializeOwned;

use super::RunnerError;
use super::error::from_answer;
use super::line::Line;
use super::pool::Pool;

/// Of an answer that is one JSON document: 10,000 entries of a listing with long names, and some.
pub const MAX_DOCUMENT_BYTES: usize = 16 << 20;

/// Of an answer that is an error.
const MAX_ERROR_BYTES: usize = 64 << 10;

pub struct Answer {
    /// `None` behind the end.
    rest: Option<(Line, Incoming)>,
    pool: Arc<Pool>,
}

impl Answer {
    pub(super) fn new(line: Line, body: Incoming, pool: Arc<Pool>) -> Self {
        Self { rest: Some((line, body)), pool }
    }

    pub fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, RunnerError>>> {
        let Some((line, body)) = &mut self.rest else { return Poll::Ready(None) };
        match line.poll_body(body, cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Some(Ok(bytes))) => Poll::Ready(Some(Ok(bytes))),
            Poll::Ready(Some(Err(error))) => {
                self.rest = None;
                Poll::Ready(Some(Err(error.into())))
            }
            Poll::Ready(None) => {
                if let Some((line, _)) = self.rest.take() {
                    self.pool.put_back(line);
                }
                Poll::Ready(None)
            }
        }
    }

    pub async fn chunk(&mut self) -> Option<Result<Bytes, RunnerError>> {
        std::future::poll_fn(|cx| self.poll_chunk(cx)).await
    }

    /// Closes the line: what is left of the answer is of no use.
    pub fn abandon(&mut self) {
        self.rest = None;
    }

    /// The whole body, which may have so many bytes whatever its head says.
    async fn collect(mut self, limit: usize) -> Result<Bytes, RunnerError> {
        let Some(first) = self.chunk().await.transpose()? else { return Ok(Bytes::new()) };
        let mut whole: Option<BytesMut> = None;
        let too_long = || RunnerError::hostile(format!("an answer is longer than {limit} bytes"));
        if first.len() > limit {
            return Err(too_long());
        }
        while let Some(chunk) = self.chunk().await.transpose()? {
            let whole = whole.get_or_insert_with(|| BytesMut::from(&first[..]));
            if whole.len() + chunk.len() > limit {
                return Err(too_long());
            }
            whole.extend_from_slice(&chunk);
        }
        Ok(whole.map_or(first, BytesMut::freeze))
    }

    pub async fn document<T: DeserializeOwned>(self) -> Result<T, RunnerError> {
        let bytes = self.collect(MAX_DOCUMENT_BYTES).await?;
        serde_json::from_slice(&bytes)
            .map_err(|error| RunnerError::hostile(format!("an answer cannot be read: {error}")))
    }

    pub async fn into_error(self, status: u16) -> RunnerError {
        match self.collect(MAX_ERROR_BYTES).await {
            Ok(bytes) => from_answer(status, &bytes),
            Err(error) => error,
        }
    }
}
