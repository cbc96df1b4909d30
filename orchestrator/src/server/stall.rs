//! Ends connections of clients that stall: a client that sends a body or reads an answer has to make progress within a time
//! limit.
//!
//! A client that is slow but makes progress is never cut off. Neither is a connection that waits for the daemon, for example
//! for a command that runs for hours.

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes};
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::rt::{Read, ReadBufCursor, Write};
use tokio::time::{Instant, Sleep};

/// The timer of one direction. It runs only while that direction waits for the client.
struct Stall {
    limit: Duration,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Stall {
    fn new(limit: Duration) -> Self {
        Self { limit, timer: None }
    }

    fn reset(&mut self) {
        self.timer = None;
    }

    /// Ready when there was no progress for the whole limit.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let deadline = Instant::now() + self.limit;
        self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline))).as_mut().poll(cx)
    }
}

pub struct StallingBody {
    inner: Body,
    stall: Stall,
}

impl StallingBody {
    pub fn new(inner: Body, limit: Duration) -> Self {
        Self { inner, stall: Stall::new(limit) }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    #[error("nothing was received for {} s", .0.as_secs())]
    Stalled(Duration),
    #[error("the connection failed")]
    Failed(#[source] axum::Error),
}

impl HttpBody for StallingBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.inner).poll_frame(cx) {
            self.stall.reset();
            return Poll::Ready(frame.map(|frame| frame.map_err(BodyError::Failed)));
        }
        ready!(self.stall.poll(cx));
        Poll::Ready(Some(Err(BodyError::Stalled(self.stall.limit))))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// A connection whose writes fail if the client reads nothing for the whole limit.
pub struct StallingIo<T> {
    inner: T,
    stall: Stall,
}

impl<T> StallingIo<T> {
    pub fn new(inner: T, limit: Duration) -> Self {
        Self { inner, stall: Stall::new(limit) }
    }

    fn settle<R>(&mut self, cx: &mut Context<'_>, result: Poll<io::Result<R>>) -> Poll<io::Result<R>> {
        if result.is_ready() {
            self.stall.reset();
            return result;
        }
        ready!(self.stall.poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read")))
    }
}

impl<T: Read + Unpin> Read for StallingIo<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl<T: Write + Unpin> Write for StallingIo<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.settle(cx, result)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.inner).poll_flush(cx);
        self.settle(cx, result)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.inner).poll_shutdown(cx);
        self.settle(cx, result)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.inner).poll_write_vectored(cx, bufs);
        self.settle(cx, result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt as _;
    use hyper_util::rt::TokioIo;
    use tokio::io::AsyncReadExt as _;

    const LIMIT: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn a_body_that_stands_still_fails_and_one_that_trickles_does_not() {
        let (mut sender, body) = http_body_util::channel::Channel::<Bytes, io::Error>::new(1);
        let mut body = StallingBody::new(Body::new(body), LIMIT);
        let sending = tokio::spawn(async move {
            for _ in 0..5 {
                tokio::time::sleep(LIMIT - Duration::from_millis(1)).await;
                sender.send_data(Bytes::from_static(b"x")).await.unwrap();
            }
            sender
        });
        for _ in 0..5 {
            assert!(body.frame().await.unwrap().is_ok());
        }
        let kept_open = sending.await.unwrap();
        assert!(matches!(body.frame().await, Some(Err(BodyError::Stalled(LIMIT)))));
        drop(kept_open);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_read_is_cut_off_and_one_that_reads_is_not() {
        let (client, server) = tokio::io::duplex(16);
        let mut io = StallingIo::new(TokioIo::new(server), LIMIT);
        let (mut reader, _writer) = tokio::io::split(client);
        let write = |io: &mut StallingIo<_>, cx: &mut Context<'_>| Pin::new(io).poll_write(cx, &[0; 16]);
        assert_eq!(std::future::poll_fn(|cx| write(&mut io, cx)).await.unwrap(), 16);
        let reading = tokio::spawn(async move {
            tokio::time::sleep(LIMIT / 2).await;
            reader.read_exact(&mut [0; 16]).await.unwrap();
            reader
        });
        assert_eq!(std::future::poll_fn(|cx| write(&mut io, cx)).await.unwrap(), 16);
        let start = Instant::now();
        let error = std::future::poll_fn(|cx| write(&mut io, cx)).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(start.elapsed(), LIMIT);
        drop(reading.await.unwrap());
    }
}
