//! One side of a connection that is carried: a TCP socket, or the stream of bytes in which a runner hands over the connection of a
//! program.
//!
//! A runner's stream is a Unix socket, which knows no reset. So what is sent to a runner comes in frames with an end (see
//! `FRAME_HEADER_BYTES`), and a runner that closes its socket before it has seen that end has broken the connection off.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use nix::poll::{PollFd, PollFlags, PollTimeout};
use shared_protocol::runner::FRAME_HEADER_BYTES;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

use crate::runner_client::{Attached, AttachedPermit};

/// The most bytes of one read.
const BUFFER_BYTES: usize = 64 << 10;

#[derive(Debug)]
pub struct Stream {
    socket: Socket,
    /// Bytes that are read before those of the socket.
    ahead: Mutex<Vec<u8>>,
    /// Whether our side has ended in order.
    is_ended: AtomicBool,
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpStream),
    Runner(UnixStream, #[expect(dead_code, reason = "it is held, and returned when it is dropped")] AttachedPermit),
}

impl From<TcpStream> for Stream {
    fn from(stream: TcpStream) -> Self {
        Self::new(Socket::Tcp(stream), Vec::new())
    }
}

impl From<Attached> for Stream {
    fn from(attached: Attached) -> Self {
        let (socket, ahead, permit) = attached.into_parts();
        Self::new(Socket::Runner(socket, permit), ahead.into())
    }
}

impl Stream {
    fn new(socket: Socket, ahead: Vec<u8>) -> Self {
        Self { socket, ahead: Mutex::new(ahead), is_ended: AtomicBool::new(false) }
    }

    /// Reads what is there; empty at the end of the stream. The buffer exists only while there is something to read.
    pub async fn read(&self) -> io::Result<Vec<u8>> {
        let ahead = std::mem::take(&mut *self.ahead.lock().unwrap_or_else(PoisonError::into_inner));
        if !ahead.is_empty() {
            return Ok(ahead);
        }
        loop {
            match &self.socket {
                Socket::Tcp(socket) => socket.readable().await?,
                Socket::Runner(socket, _) => socket.readable().await?,
            }
            let mut bytes = Vec::with_capacity(BUFFER_BYTES);
            let read = match &self.socket {
                Socket::Tcp(socket) => socket.try_read_buf(&mut bytes),
                Socket::Runner(socket, _) => socket.try_read_buf(&mut bytes),
            };
            match read {
                Ok(0) => return self.must_be_in_order().map(|()| bytes),
                Ok(_) => return Ok(bytes),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Puts bytes back that were read and belong to whoever reads next.
    pub fn unread(&self, bytes: Vec<u8>) {
        *self.ahead.lock().unwrap_or_else(PoisonError::into_inner) = bytes;
    }

    /// Fails if the end of the stream is that of a connection that was broken off. A runner closes its socket in order only after
    /// it has seen the end of our side.
    pub fn must_be_in_order(&self) -> io::Result<()> {
        match &self.socket {
            Socket::Runner(socket, _) if !self.is_ended.load(Ordering::Relaxed) && is_hung_up(socket) => {
                Err(io::ErrorKind::ConnectionReset.into())
            }
            _ => Ok(()),
        }
    }

    /// Reads and forgets everything until the end of the stream.
    pub async fn drain(&self) {
        while self.read().await.is_ok_and(|bytes| !bytes.is_empty()) {}
    }

    pub async fn write_all(&self, bytes: &[u8]) -> io::Result<()> {
        match &self.socket {
            Socket::Runner(..) if bytes.is_empty() => Ok(()),
            Socket::Runner(..) => Writer(self).write_all(&[&header(bytes.len())?, bytes].concat()).await,
            Socket::Tcp(_) => Writer(self).write_all(bytes).await,
        }
    }

    /// Says that this many bytes follow, which are written to the socket itself.
    pub async fn announce(&self, count: usize) -> io::Result<()> {
        match &self.socket {
            Socket::Runner(..) => Writer(self).write_all(&header(count)?).await,
            Socket::Tcp(_) => Ok(()),
        }
    }

    /// Ends our side. The other side can still send.
    pub async fn end(&self) -> io::Result<()> {
        self.announce(0).await?;
        self.shut()
    }

    /// Ends our side of the socket.
    fn shut(&self) -> io::Result<()> {
        self.is_ended.store(true, Ordering::Relaxed);
        match nix::sys::socket::shutdown(self.as_fd().as_raw_fd(), nix::sys::socket::Shutdown::Write) {
            // The other side has closed all of it already.
            Ok(()) | Err(nix::errno::Errno::ENOTCONN) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes the connection break off when it is dropped, so that the other side sees at once that it is over.
    pub fn reset(&self) {
        if let Socket::Tcp(socket) = &self.socket {
            let _ = socket.set_zero_linger();
        }
    }

    /// Does one operation on the socket when it is ready.
    pub async fn when<R>(&self, interest: Interest, operation: impl FnMut() -> io::Result<R>) -> io::Result<R> {
        match &self.socket {
            Socket::Tcp(socket) => socket.async_io(interest, operation).await,
            Socket::Runner(socket, _) => socket.async_io(interest, operation).await,
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.socket {
            Socket::Tcp(socket) => socket.as_fd(),
            Socket::Runner(socket, _) => socket.as_fd(),
        }
    }
}

/// The header of a frame.
fn header(count: usize) -> io::Result<[u8; FRAME_HEADER_BYTES]> {
    let count = u32::try_from(count).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    Ok(count.to_be_bytes())
}

/// Whether the other side has closed all of the socket, and not only the half that it sends with.
fn is_hung_up(socket: &UnixStream) -> bool {
    let mut asked = [PollFd::new(socket.as_fd(), PollFlags::empty())];
    let answered = nix::poll::poll(&mut asked, PollTimeout::ZERO);
    answered.is_ok() && asked[0].revents().is_some_and(|events| events.contains(PollFlags::POLLHUP))
}

/// Writes to a shared stream. Each direction of a connection has one writer.
struct Writer<'a>(&'a Stream);

impl AsyncWrite for Writer<'_> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            let written = match &self.0.socket {
                Socket::Tcp(socket) => {
                    ready!(socket.poll_write_ready(cx))?;
                    socket.try_write(bytes)
                }
                Socket::Runner(socket, _) => {
                    ready!(socket.poll_write_ready(cx))?;
                    socket.try_write(bytes)
                }
            };
            match written {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return Poll::Ready(done),
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// A stream as those want it who read and write in place. Others can still reset it.
pub struct Shared {
    stream: Arc<Stream>,
    /// Frames that a runner has not got yet: at most one of `BUFFER_BYTES`, and the last one.
    unsent: Vec<u8>,
    is_ending: bool,
}

impl From<Arc<Stream>> for Shared {
    fn from(stream: Arc<Stream>) -> Self {
        Self { stream, unsent: Vec::new(), is_ending: false }
    }
}

impl Shared {
    fn poll_unsent(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.unsent.is_empty() {
            let written = ready!(Pin::new(&mut Writer(&self.stream)).poll_write(context, &self.unsent))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.unsent.drain(..written);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for Shared {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let stream = &self.stream;
        let mut ahead = stream.ahead.lock().unwrap_or_else(PoisonError::into_inner);
        if !ahead.is_empty() {
            let count = ahead.len().min(buffer.remaining());
            buffer.put_slice(&ahead[..count]);
            ahead.drain(..count);
            return Poll::Ready(Ok(()));
        }
        drop(ahead);
        loop {
            let read = match &stream.socket {
                Socket::Tcp(socket) => {
                    ready!(socket.poll_read_ready(context))?;
                    socket.try_read(buffer.initialize_unfilled())
                }
                Socket::Runner(socket, _) => {
                    ready!(socket.poll_read_ready(context))?;
                    socket.try_read(buffer.initialize_unfilled())
                }
            };
            match read {
                Ok(0) => return Poll::Ready(stream.must_be_in_order()),
                Ok(count) => {
                    buffer.advance(count);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for Shared {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(this.poll_unsent(context))?;
        let bytes = &bytes[..bytes.len().min(BUFFER_BYTES)];
        match &this.stream.socket {
            Socket::Tcp(_) => Pin::new(&mut Writer(&this.stream)).poll_write(context, bytes),
            Socket::Runner(..) if bytes.is_empty() => Poll::Ready(Ok(0)),
            Socket::Runner(..) => {
                this.unsent = [&header(bytes.len())?, bytes].concat();
                // What is left of it goes with the next write or flush.
                if let Poll::Ready(Err(error)) = this.poll_unsent(context) {
                    return Poll::Ready(Err(error));
                }
                Poll::Ready(Ok(bytes.len()))
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().poll_unsent(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.is_ending && matches!(this.stream.socket, Socket::Runner(..)) {
            this.unsent.extend(header(0)?);
        }
        this.is_ending = true;
        ready!(this.poll_unsent(context))?;
        Poll::Ready(this.stream.shut())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt as _;

    fn pair() -> (Stream, UnixStream) {
        let (ours, runners) = UnixStream::pair().unwrap();
        (Stream::new(Socket::Runner(ours, AttachedPermit::for_test()), Vec::new()), runners)
    }

    #[tokio::test]
    async fn one_who_writes_in_place_sends_the_same_frames() {
        let (stream, mut runner) = pair();
        let mut shared = Shared::from(Arc::new(stream));
        let sent = vec![7; BUFFER_BYTES * 3 + 5];
        let (mut got, mut all) = (Vec::new(), Vec::new());
        let writing = async {
            shared.write_all(&sent).await.unwrap();
            shared.flush().await.unwrap();
            shared.shutdown().await.unwrap();
        };
        tokio::join!(writing, async { runner.read_to_end(&mut all).await.map(drop).unwrap() });
        let mut rest = all.as_slice();
        while let Some((head, after)) = rest.split_first_chunk::<FRAME_HEADER_BYTES>() {
            let (frame, next) = after.split_at(u32::from_be_bytes(*head).try_into().unwrap());
            got.extend_from_slice(frame);
            assert!(!frame.is_empty() || next.is_empty(), "only the last frame is empty");
            rest = next;
        }
        assert_eq!((got == sent, &all[all.len() - FRAME_HEADER_BYTES..]), (true, &[0; FRAME_HEADER_BYTES][..]));
    }

    #[tokio::test]
    async fn what_a_runner_gets_is_framed_and_says_where_it_ends() {
        let (stream, mut runner) = pair();
        stream.write_all(b"hello").await.unwrap();
        stream.write_all(b"").await.unwrap();
        stream.end().await.unwrap();
        let mut all = Vec::new();
        runner.read_to_end(&mut all).await.unwrap();
        assert_eq!(all, b"\0\0\0\x05hello\0\0\0\0");
    }

    #[tokio::test]
    async fn a_runner_that_ends_its_half_has_ended_and_one_that_closes_has_broken_off() {
        let (stream, mut runner) = pair();
        tokio::io::AsyncWriteExt::write_all(&mut runner, b"bytes").await.unwrap();
        tokio::io::AsyncWriteExt::shutdown(&mut runner).await.unwrap();
        assert_eq!(stream.read().await.unwrap(), b"bytes");
        assert_eq!(stream.read().await.unwrap(), b"");
        let (stream, runner) = pair();
        drop(runner);
        assert_eq!(stream.read().await.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
        // After it has read our end, its close is in order.
        let (stream, mut runner) = pair();
        stream.end().await.unwrap();
        runner.read_exact(&mut [0; FRAME_HEADER_BYTES]).await.unwrap();
        drop(runner);
        assert_eq!(stream.read().await.unwrap(), b"");
    }

    #[tokio::test]
    async fn bytes_that_are_put_back_are_read_first() {
        let (stream, mut runner) = pair();
        tokio::io::AsyncWriteExt::write_all(&mut runner, b"later").await.unwrap();
        stream.unread(b"sooner".to_vec());
        assert_eq!(stream.read().await.unwrap(), b"sooner");
        assert_eq!(stream.read().await.unwrap(), b"later");
    }
}
