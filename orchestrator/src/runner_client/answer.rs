//! The body of a runner's answer, with the connection that it arrives on. When the body was read to its end, the connection
//! can be used again; if the value is dropped before, the connection is closed.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use hyper::body::Incoming;
use serde::de::DeserializeOwned;

use super::RunnerError;
use super::connection::Connection;
use super::connections::Connections;
use super::error::from_answer;
use super::pulse::Pulse;

/// The longest answer that is one JSON document: a listing of 10,000 entries with long names, with some room.
pub const MAX_DOCUMENT_BYTES: usize = 16 << 20;

/// The longest answer that is an error.
const MAX_ERROR_BYTES: usize = 64 << 10;

pub struct Answer {
    /// The connection and the unread body. `None` after the end.
    rest: Option<(Connection, Incoming)>,
    connections: Arc<Connections>,
}

impl Answer {
    pub(super) fn new(connection: Connection, body: Incoming, connections: Arc<Connections>) -> Self {
        Self { rest: Some((connection, body)), connections }
    }

    pub fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, RunnerError>>> {
        let Some((connection, body)) = &mut self.rest else { return Poll::Ready(None) };
        match connection.poll_body(body, cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Some(Ok(bytes))) => {
                self.connections.pulse().heard();
                Poll::Ready(Some(Ok(bytes)))
            }
            Poll::Ready(Some(Err(error))) => {
                self.rest = None;
                Poll::Ready(Some(Err(error.into())))
            }
            Poll::Ready(None) => {
                if let Some((connection, _)) = self.rest.take() {
                    self.connections.put_back(connection);
                }
                Poll::Ready(None)
            }
        }
    }

    pub fn pulse(&self) -> &Pulse {
        self.connections.pulse()
    }

    pub async fn chunk(&mut self) -> Option<Result<Bytes, RunnerError>> {
        std::future::poll_fn(|cx| self.poll_chunk(cx)).await
    }

    /// Closes the connection, because the rest of the answer is useless.
    pub fn abandon(&mut self) {
        self.rest = None;
    }

    /// Reads the whole body, up to `limit` bytes, whatever its head announces.
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
