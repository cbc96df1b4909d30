//! Copies the bytes of one connection both ways. Half-closed connections stay half-closed, a slow reader slows the writer down,
//! and an idle connection has no buffer.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use network_policy::{Denial, Reason, Spoken};
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};
use tokio::io::{AsyncWrite, AsyncWriteExt as _, Interest};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::inspector::Inspector;
use super::limits::SessionMeter;

/// The most bytes of one read.
const BUFFER_BYTES: usize = 64 << 10;
/// After this many bytes, a direction of a connection has a pipe of its own: two more open files, and no more copies.
const SPLICE_AFTER_BYTES: u64 = 1 << 20;
const PIPE_BYTES: usize = 256 << 10;
/// How long bytes may wait for a decision while a program sends no more of them.
const DECISION_PATIENCE: Duration = Duration::from_secs(5);

/// Why a connection is over.
#[derive(Debug)]
pub enum Stopped {
    /// Both sides have closed it.
    Ended,
    /// One side has broken it off.
    Broken,
    /// The program said whom it wants to speak to, and that is not allowed.
    Denied(Denial),
    /// It must not go on.
    Forbidden(Reason),
}

/// Counts the bytes of one connection, for itself and for its session, before they pass: a limit is never exceeded.
#[derive(Debug)]
pub struct Meter {
    sent: AtomicU64,
    received: AtomicU64,
    session: Arc<SessionMeter>,
}

impl Meter {
    pub fn new(session: Arc<SessionMeter>) -> Self {
        Self { sent: AtomicU64::new(0), received: AtomicU64::new(0), session }
    }

    /// The bytes that the program has sent and received.
    pub fn bytes(&self) -> (u64, u64) {
        (self.sent.load(Ordering::Relaxed), self.received.load(Ordering::Relaxed))
    }

    async fn sent(&self, count: usize) -> Result<(), Stopped> {
        self.sent.fetch_add(count.try_into().unwrap_or(u64::MAX), Ordering::Relaxed);
        self.session.sent(count).await.map_err(Stopped::Forbidden)
    }

    async fn received(&self, count: usize) -> Result<(), Stopped> {
        self.received.fetch_add(count.try_into().unwrap_or(u64::MAX), Ordering::Relaxed);
        self.session.received(count).await.map_err(Stopped::Forbidden)
    }
}

/// Copies both ways. `first` are bytes of the program that pass before all others.
pub async fn both(
    program: &TcpStream,
    upstream: &TcpStream,
    first: Vec<u8>,
    inspector: Inspector,
    judge: impl FnMut(&Spoken) -> Result<(), Denial> + Send,
    meter: &Meter,
) -> Stopped {
    let up = up(program, upstream, first, inspector, judge, meter);
    let down = down(upstream, program, meter);
    match tokio::try_join!(up, down) {
        Ok(_) => Stopped::Ended,
        Err(stopped) => stopped,
    }
}

async fn up(
    program: &TcpStream,
    upstream: &TcpStream,
    first: Vec<u8>,
    mut inspector: Inspector,
    mut judge: impl FnMut(&Spoken) -> Result<(), Denial> + Send,
    meter: &Meter,
) -> Result<(), Stopped> {
    let mut to = Writer(upstream);
    if !first.is_empty() {
        meter.sent(first.len()).await?;
        to.write_all(&first).await.map_err(broken)?;
    }
    loop {
        let reading = read(program);
        let bytes = if inspector.holds_bytes() {
            match timeout(DECISION_PATIENCE, reading).await {
                Ok(bytes) => bytes.map_err(broken)?,
                Err(_) => {
                    let passed = inspector.give_up(&mut judge).map_err(Stopped::Denied)?;
                    meter.sent(passed.len()).await?;
                    to.write_all(&passed).await.map_err(broken)?;
                    continue;
                }
            }
        } else {
            reading.await.map_err(broken)?
        };
        if bytes.is_empty() {
            // A program that closes between two requests has nothing more to say.
            if inspector.holds_bytes() {
                let rest = inspector.give_up(&mut judge).map_err(Stopped::Denied)?;
                meter.sent(rest.len()).await?;
                to.write_all(&rest).await.map_err(broken)?;
            }
            return to.shutdown().await.map_err(broken);
        }
        let passed = inspector.take(bytes, &mut judge).map_err(Stopped::Denied)?;
        meter.sent(passed.len()).await?;
        to.write_all(&passed).await.map_err(broken)?;
        if inspector.is_passing()
            && meter.bytes().0 > SPLICE_AFTER_BYTES
            && let Ok(splice) = Splice::new()
        {
            return splice.run(program, upstream, meter, Direction::Up).await;
        }
    }
}

async fn down(upstream: &TcpStream, program: &TcpStream, meter: &Meter) -> Result<(), Stopped> {
    let mut to = Writer(program);
    loop {
        let bytes = read(upstream).await.map_err(broken)?;
        if bytes.is_empty() {
            return to.shutdown().await.map_err(broken);
        }
        meter.received(bytes.len()).await?;
        to.write_all(&bytes).await.map_err(broken)?;
        if meter.bytes().1 > SPLICE_AFTER_BYTES
            && let Ok(splice) = Splice::new()
        {
            return splice.run(upstream, program, meter, Direction::Down).await;
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    /// From the program.
    Up,
    Down,
}

/// Moves bytes from one socket to another through a pipe, without copying them into this process.
struct Splice {
    reader: OwnedFd,
    writer: OwnedFd,
}

impl Splice {
    fn new() -> io::Result<Self> {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        // Without this, the pipe has its usual size.
        let _ = fcntl_setpipe_size(&writer, PIPE_BYTES);
        Ok(Self { reader, writer })
    }

    async fn run(self, from: &TcpStream, to: &TcpStream, meter: &Meter, direction: Direction) -> Result<(), Stopped> {
        let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
        loop {
            let fill = || Ok(splice(from, None, &self.writer, None, PIPE_BYTES, flags)?);
            let filled = from.async_io(Interest::READABLE, fill).await.map_err(broken)?;
            if filled == 0 {
                return Writer(to).shutdown().await.map_err(broken);
            }
            match direction {
                Direction::Up => meter.sent(filled).await?,
                Direction::Down => meter.received(filled).await?,
            }
            let mut left = filled;
            while left > 0 {
                let empty = || Ok(splice(&self.reader, None, to, None, left, flags)?);
                left -= to.async_io(Interest::WRITABLE, empty).await.map_err(broken)?.min(left);
            }
        }
    }
}

fn broken(_: io::Error) -> Stopped {
    Stopped::Broken
}

/// Reads what is there; empty at the end of the stream. The buffer exists only while there is something to read.
pub async fn read(from: &TcpStream) -> io::Result<Vec<u8>> {
    loop {
        from.readable().await?;
        let mut bytes = Vec::with_capacity(BUFFER_BYTES);
        match from.try_read_buf(&mut bytes) {
            Ok(_) => return Ok(bytes),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

/// Reads and forgets everything until the end of the stream.
pub async fn drain(from: &TcpStream) {
    while read(from).await.is_ok_and(|bytes| !bytes.is_empty()) {}
}

/// Writes to a shared stream. Each direction of a connection has one writer.
struct Writer<'a>(&'a TcpStream);

impl AsyncWrite for Writer<'_> {
    fn poll_write(
        self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
        bytes: &[u8],
    ) -> std::task::Poll<io::Result<usize>> {
        loop {
            std::task::ready!(self.0.poll_write_ready(context))?;
            match self.0.try_write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return std::task::Poll::Ready(done),
            }
        }
    }

    fn poll_flush(self: std::pin::Pin<&mut Self>, _: &mut std::task::Context<'_>) -> std::task::Poll<io::Result<()>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn poll_shutdown(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        std::task::Poll::Ready(nix_shutdown(self.0))
    }
}

fn nix_shutdown(stream: &TcpStream) -> io::Result<()> {
    use std::os::fd::AsRawFd as _;
    match nix::sys::socket::shutdown(stream.as_raw_fd(), nix::sys::socket::Shutdown::Write) {
        // The other side has closed all of it already.
        Ok(()) | Err(nix::errno::Errno::ENOTCONN) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
