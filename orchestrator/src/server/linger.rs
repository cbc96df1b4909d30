//! Closes a connection whose client may still be sending, so that the client gets its answer.
//!
//! If a socket is closed while bytes arrive that nobody reads, the kernel resets the connection, and the client may lose an
//! answer that was already on its way. So after an answer to a request whose body was not read to its end, the daemon ends
//! its own side only, and discards what the client sends until the client ends its side. Both waits are bounded. Every
//! other connection is closed at once.

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::rt::{Read, ReadBuf, ReadBufCursor, Write};
use tokio::time::{Instant, Sleep};

/// The longest time that is spent on discarding what a client still sends.
const MAX_LINGER: Duration = Duration::from_secs(30);
/// The longest wait for its next bytes.
const MAX_SILENCE: Duration = Duration::from_secs(5);
/// The bytes that are discarded at once.
const DISCARD_BYTES: usize = 64 << 10;

/// What the body of a request and its connection tell each other.
#[derive(Debug, Clone, Default)]
pub struct Unread(Arc<State>);

#[derive(Debug, Default)]
struct State {
    /// Whether a body was dropped before its end.
    is_left: AtomicBool,
    /// Whether the daemon stops: then nobody is waited for.
    is_stopping: AtomicBool,
}

impl Unread {
    pub fn stop_waiting(&self) {
        self.0.is_stopping.store(true, Ordering::Relaxed);
    }

    fn is_worth_a_wait(&self) -> bool {
        self.0.is_left.load(Ordering::Relaxed) && !self.0.is_stopping.load(Ordering::Relaxed)
    }
}

/// The body of a request. It notes if it is dropped before its end.
pub struct WatchedBody<B: Body> {
    inner: B,
    has_ended: bool,
    unread: Unread,
}

impl<B: Body> WatchedBody<B> {
    pub fn new(inner: B, unread: Unread) -> Self {
        Self { inner, has_ended: false, unread }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for WatchedBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(cx));
        self.has_ended = !matches!(frame, Some(Ok(_)));
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl<B: Body> Drop for WatchedBody<B> {
    fn drop(&mut self) {
        if !self.has_ended && !self.inner.is_end_stream() {
            self.unread.0.is_left.store(true, Ordering::Relaxed);
        }
    }
}

/// A connection that is closed as described above.
pub struct LingeringIo<T> {
    inner: T,
    unread: Unread,
    lingering: Option<Lingering>,
}

struct Lingering {
    until: Instant,
    timer: Pin<Box<Sleep>>,
}

impl<T> LingeringIo<T> {
    pub fn new(inner: T, unread: Unread) -> Self {
        Self { inner, unread, lingering: None }
    }
}

impl<T: Read + Unpin> LingeringIo<T> {
    /// Discards what arrives. Ready when the client has ended its side, or the time for it is over.
    fn poll_discard(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let lingering = self.lingering.get_or_insert_with(|| {
            let now = Instant::now();
            Lingering { until: now + MAX_LINGER, timer: Box::pin(tokio::time::sleep_until(now + MAX_SILENCE)) }
        });
        let mut buffer = [0; DISCARD_BYTES];
        loop {
            let mut bytes = ReadBuf::new(&mut buffer);
            match Pin::new(&mut self.inner).poll_read(cx, bytes.unfilled()) {
                Poll::Ready(Ok(())) if !bytes.filled().is_empty() && Instant::now() < lingering.until => {
                    let next = (Instant::now() + MAX_SILENCE).min(lingering.until);
                    lingering.timer.as_mut().reset(next);
                }
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => return lingering.timer.as_mut().poll(cx),
            }
        }
    }
}

impl<T: Read + Unpin> Read for LingeringIo<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl<T: Read + Write + Unpin> Write for LingeringIo<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.lingering.is_none() {
            ready!(Pin::new(&mut self.inner).poll_shutdown(cx))?;
        }
        if self.unread.is_worth_a_wait() {
            ready!(self.poll_discard(cx));
        }
        Poll::Ready(Ok(()))
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, bufs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::{BodyExt as _, Full};
    use hyper_util::rt::TokioIo;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    /// A body that its handler read as far as it says.
    async fn unread(frames: usize) -> Unread {
        let unread = Unread::default();
        let mut body = WatchedBody::new(Full::new(Bytes::from_static(b"body")), unread.clone());
        for _ in 0..frames {
            body.frame().await;
        }
        unread
    }

    async fn closed(io: &mut LingeringIo<TokioIo<tokio::io::DuplexStream>>) -> Duration {
        let start = Instant::now();
        std::future::poll_fn(|cx| Pin::new(&mut *io).poll_shutdown(cx)).await.unwrap();
        start.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_body_that_was_not_read_to_its_end_is_waited_for() {
        for (frames, waits) in [(0, true), (1, false), (2, false)] {
            let (_client, server) = tokio::io::duplex(16);
            let mut io = LingeringIo::new(TokioIo::new(server), unread(frames).await);
            assert_eq!(closed(&mut io).await, if waits { MAX_SILENCE } else { Duration::ZERO }, "{frames} frames");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_sends_on_can_end_and_sees_our_end_first() {
        let (mut client, server) = tokio::io::duplex(16);
        let mut io = LingeringIo::new(TokioIo::new(server), unread(0).await);
        let sending = tokio::spawn(async move {
            client.write_all(&[0; 10_000]).await.unwrap();
            assert_eq!(client.read(&mut [0]).await.unwrap(), 0);
        });
        assert_eq!(closed(&mut io).await, Duration::ZERO);
        sending.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_never_ends_is_not_waited_for_longer_than_the_bound() {
        let (mut client, server) = tokio::io::duplex(16);
        let unread = unread(0).await;
        let mut io = LingeringIo::new(TokioIo::new(server), unread.clone());
        tokio::spawn(async move {
            while client.write_all(b"more").await.is_ok() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        });
        assert_eq!(closed(&mut io).await, MAX_LINGER);
        let (_client, server) = tokio::io::duplex(16);
        let mut io = LingeringIo::new(TokioIo::new(server), unread.clone());
        unread.stop_waiting();
        assert_eq!(closed(&mut io).await, Duration::ZERO, "the daemon stops");
    }
}
