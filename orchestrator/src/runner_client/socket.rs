//! A runner's socket that can still be read when nothing more can be written to it.
//!
//! A runner may answer before it has read the whole request, and close the connection, for example when it refuses a file.
//! Writing the rest then fails, although the answer is in the socket. So a write to a closed peer does not fail here. It
//! waits, while the read beside it gets the answer and the end.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;

pub struct Socket(UnixStream);

impl Socket {
    pub fn new(stream: UnixStream) -> Self {
        Self(stream)
    }

    pub fn into_inner(self) -> UnixStream {
        self.0
    }
}

/// Turns a write error of a closed peer into waiting. The read sees the end, and wakes the task.
fn patiently<T>(polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
    match polled {
        Poll::Ready(Err(error))
            if matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) =>
        {
            Poll::Pending
        }
        other => other,
    }
}

impl AsyncRead for Socket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        patiently(Pin::new(&mut self.0).poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        patiently(Pin::new(&mut self.0).poll_write_vectored(cx, bytes))
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
