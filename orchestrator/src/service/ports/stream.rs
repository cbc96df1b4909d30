//! The bytes of one connection to a server in a sandbox. The session is in use while it exists; it fails when the session ends
//! or the time of its link is up.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::metrics::Metrics;
use crate::runner_client::Attached;
use crate::service::in_sandbox::Ended;
use crate::session::Activity;

/// Resolves when a link is good no longer.
pub type LinkOver = Pin<Box<dyn Future<Output = ()> + Send>>;

pub struct PortStream {
    bytes: Attached,
    /// Resolves when the session ends.
    ended: Ended,
    /// Resolves when the link expires or is taken back.
    link_over: Option<LinkOver>,
    metrics: Metrics,
    sent: u64,
    received: u64,
    _activity: Activity,
}

impl PortStream {
    pub(super) fn new(bytes: Attached, activity: Activity, metrics: Metrics, link_over: Option<LinkOver>) -> Self {
        let ended = Box::pin(activity.ended());
        Self { bytes, ended, link_over, metrics, sent: 0, received: 0, _activity: activity }
    }
}

impl Drop for PortStream {
    fn drop(&mut self) {
        self.metrics.bytes_in(self.sent);
        self.metrics.bytes_out(self.received);
    }
}

impl AsyncRead for PortStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let cut = |why: &str| Poll::Ready(Err(io::Error::new(io::ErrorKind::ConnectionAborted, why)));
        if let Poll::Ready(end) = self.ended.as_mut().poll(cx) {
            // A future must not be polled after its end; whoever reads on finds the connection cut again.
            self.ended = Box::pin(std::future::ready(end));
            return cut("the session has ended");
        }
        if self.link_over.as_mut().is_some_and(|over| over.as_mut().poll(cx).is_ready()) {
            self.link_over = Some(Box::pin(std::future::ready(())));
            return cut("the link has expired or was taken back");
        }
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.bytes).poll_read(cx, buffer);
        self.received += (buffer.filled().len() - before) as u64;
        polled
    }
}

impl AsyncWrite for PortStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.bytes).poll_write(cx, bytes);
        if let Poll::Ready(Ok(count)) = &polled {
            self.sent += *count as u64;
        }
        polled
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.bytes).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.bytes).poll_shutdown(cx)
    }
}
