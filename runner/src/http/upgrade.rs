//! Upgrades to the bytes of one TCP connection: the request, the answer, and the socket that is left of HTTP.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use hyper::body::Bytes;
use hyper::header::{CONNECTION, HeaderValue, UPGRADE};
use hyper::upgrade::Upgraded;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use shared_protocol::runner::{FRAME_HEADER_BYTES, TCP_PROTOCOL};
use shared_protocol::{ErrorBody, ErrorCode};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;

use super::body::{self, Body, Reply};
use super::request_body::RequestBody;

/// Refuses a request that does not ask for the upgrade.
pub fn must_be_asked(request: &Request<RequestBody>) -> Result<(), ErrorBody> {
    let asked = request.headers().get(UPGRADE);
    if asked.is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(TCP_PROTOCOL.as_bytes())) {
        return Ok(());
    }
    let message = format!("this call needs the headers Connection: Upgrade and Upgrade: {TCP_PROTOCOL}");
    Err(ErrorBody::new(ErrorCode::InvalidRequest, message))
}

/// The answer 101.
pub fn switching() -> Reply {
    let mut reply = body::with_type(200, "application/octet-stream", Body::empty());
    *reply.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    reply.headers_mut().insert(CONNECTION, HeaderValue::from_static("upgrade"));
    reply.headers_mut().insert(UPGRADE, HeaderValue::from_static(TCP_PROTOCOL));
    reply
}

/// The daemon's Unix socket after the upgrade for a connection of a program. What the daemon sends comes in frames: four bytes with
/// the length, then that many bytes. A length of 0 is the end; a socket that closes without it was broken off. A Unix socket has
/// no reset of its own, and gVisor does not tell whether the other side has closed all of it or only one half.
pub struct FramedPeer {
    socket: UnixStream,
    /// The bytes that came with the request's head.
    ahead: Bytes,
    header: [u8; FRAME_HEADER_BYTES],
    /// The bytes of the header that are there.
    header_bytes: usize,
    /// The bytes of the frame that are still to come.
    left: usize,
    has_ended: bool,
}

impl FramedPeer {
    /// `None` if the client did not connect over a Unix socket.
    pub fn new(upgraded: Upgraded) -> Option<Self> {
        let parts = upgraded.downcast::<TokioIo<UnixStream>>().ok()?;
        Some(Self::from_parts(parts.io.into_inner(), parts.read_buf))
    }

    fn from_parts(socket: UnixStream, ahead: Bytes) -> Self {
        let header = [0; FRAME_HEADER_BYTES];
        Self { socket, ahead, header, header_bytes: 0, left: 0, has_ended: false }
    }

    /// Reads at most as many bytes as there is room for. The end of the socket is an error.
    fn poll_some(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<usize>> {
        if !self.ahead.is_empty() {
            let count = self.ahead.len().min(buffer.remaining());
            buffer.put_slice(&self.ahead.split_to(count));
            return Poll::Ready(Ok(count));
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.socket).poll_read(cx, buffer))?;
        match buffer.filled().len() - before {
            0 => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
            count => Poll::Ready(Ok(count)),
        }
    }

    /// Reads the header of the next frame.
    fn poll_header(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.header_bytes < FRAME_HEADER_BYTES {
            let mut header = self.header;
            let mut rest = ReadBuf::new(&mut header[self.header_bytes..]);
            let count = ready!(self.poll_some(cx, &mut rest))?;
            self.header = header;
            self.header_bytes += count;
        }
        self.header_bytes = 0;
        self.left = usize::try_from(u32::from_be_bytes(self.header)).unwrap_or(usize::MAX);
        self.has_ended = self.left == 0;
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for FramedPeer {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let peer = &mut *self;
        if peer.left == 0 && !peer.has_ended {
            ready!(peer.poll_header(cx))?;
        }
        if peer.has_ended || buffer.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        let mut part = ReadBuf::new(buffer.initialize_unfilled_to(buffer.remaining().min(peer.left)));
        let count = ready!(peer.poll_some(cx, &mut part))?;
        peer.left -= count;
        buffer.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for FramedPeer {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    async fn read(pieces: &[&[u8]], ahead: &'static [u8]) -> (Vec<u8>, io::Result<usize>) {
        let (mut daemon, socket) = UnixStream::pair().unwrap();
        let (mut peer, mut all) = (FramedPeer::from_parts(socket, Bytes::from_static(ahead)), Vec::new());
        let sending = async {
            for piece in pieces {
                daemon.write_all(piece).await.unwrap();
                tokio::task::yield_now().await;
            }
            drop(daemon);
        };
        let (result, ()) = tokio::join!(peer.read_to_end(&mut all), sending);
        (all, result)
    }

    #[tokio::test]
    async fn the_bytes_of_frames_are_read_however_they_are_cut_and_a_missing_end_is_an_error() {
        let whole = b"\0\0\0\x05hello\0\0\0\x01!\0\0\0\0";
        for cut in 0..whole.len() {
            let (first, second) = whole.split_at(cut);
            let (all, result) = read(&[first, second], b"").await;
            assert_eq!((all.as_slice(), result.unwrap()), (&b"hello!"[..], 6), "{cut}");
            let (all, result) = read(&[first], b"").await;
            assert_eq!(result.unwrap_err().kind(), io::ErrorKind::ConnectionReset, "{cut}");
            assert!(b"hello!".starts_with(&all), "{cut}");
        }
        let (all, result) = read(&[b"lo\0\0\0\0"], b"\0\0\0\x05hel").await;
        assert_eq!((all.as_slice(), result.unwrap()), (&b"hello"[..], 5));
    }
}
