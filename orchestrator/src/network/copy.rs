//! Copies the bytes of one connection both ways. Half-closed connections stay half-closed, a slow reader slows the writer down,
//! and an idle connection has no buffer.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use network_policy::{Denial, Reason, Spoken};
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};
use tokio::io::Interest;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use super::inspector::Inspector;
use super::limits::SessionMeter;
use super::stream::Stream;

/// After this many bytes, a direction of a connection has a pipe of its own: two more open files, and no more copies.
const SPLICE_AFTER_BYTES: u64 = 1 << 20;
const PIPE_BYTES: usize = 256 << 10;
/// Much data moves through a larger pipe with fewer wake-ups: for 1 GiB each
/// way the daemon takes 0.47 s of processor time instead of 0.60 s.
const LARGE_PIPE_BYTES: usize = 1 << 20;
/// Directions that have a large pipe at the same time. The kernel gives the pipes of an ordinary user 64 MiB in total, and makes
/// further ones tiny, also those of the user's other programs.
const MAX_LARGE_PIPES: usize = 16;
static LARGE_PIPES: Semaphore = Semaphore::const_new(MAX_LARGE_PIPES);
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

    pub async fn sent(&self, count: usize) -> Result<(), Stopped> {
        self.sent.fetch_add(count.try_into().unwrap_or(u64::MAX), Ordering::Relaxed);
        self.session.sent(count).await.map_err(Stopped::Forbidden)
    }

    pub async fn received(&self, count: usize) -> Result<(), Stopped> {
        self.received.fetch_add(count.try_into().unwrap_or(u64::MAX), Ordering::Relaxed);
        self.session.received(count).await.map_err(Stopped::Forbidden)
    }
}

/// Copies both ways. `first` are bytes of the program that pass before all others.
pub async fn both(
    program: &Stream,
    upstream: &Stream,
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
    program: &Stream,
    upstream: &Stream,
    first: Vec<u8>,
    mut inspector: Inspector,
    mut judge: impl FnMut(&Spoken) -> Result<(), Denial> + Send,
    meter: &Meter,
) -> Result<(), Stopped> {
    if !first.is_empty() {
        meter.sent(first.len()).await?;
        upstream.write_all(&first).await.map_err(broken)?;
    }
    loop {
        let reading = program.read();
        let bytes = if inspector.holds_bytes() {
            match timeout(DECISION_PATIENCE, reading).await {
                Ok(bytes) => bytes.map_err(broken)?,
                Err(_) => {
                    let passed = inspector.give_up(&mut judge).map_err(Stopped::Denied)?;
                    meter.sent(passed.len()).await?;
                    upstream.write_all(&passed).await.map_err(broken)?;
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
                upstream.write_all(&rest).await.map_err(broken)?;
            }
            return upstream.end().await.map_err(broken);
        }
        let passed = inspector.take(bytes, &mut judge).map_err(Stopped::Denied)?;
        meter.sent(passed.len()).await?;
        upstream.write_all(&passed).await.map_err(broken)?;
        if inspector.is_over() {
            // The server closes after its response. It is told to, in case that it did not read so in the request.
            upstream.end().await.map_err(broken)?;
            program.drain().await;
            return Ok(());
        }
        if inspector.is_passing()
            && meter.bytes().0 > SPLICE_AFTER_BYTES
            && let Ok(splice) = Splice::new(meter)
        {
            return splice.run(program, upstream, meter, Direction::Up).await;
        }
    }
}

async fn down(upstream: &Stream, program: &Stream, meter: &Meter) -> Result<(), Stopped> {
    loop {
        let bytes = upstream.read().await.map_err(broken)?;
        if bytes.is_empty() {
            return program.end().await.map_err(broken);
        }
        meter.received(bytes.len()).await?;
        program.write_all(&bytes).await.map_err(broken)?;
        if meter.bytes().1 > SPLICE_AFTER_BYTES
            && let Ok(splice) = Splice::new(meter)
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
    /// The most bytes that are moved at once.
    bytes: usize,
    _large: Option<SemaphorePermit<'static>>,
}

impl Splice {
    fn new(meter: &Meter) -> io::Result<Self> {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        // What has a rate would pass a large pipe in large bursts.
        let large = if meter.session.has_rate() { None } else { LARGE_PIPES.try_acquire().ok() };
        let bytes = if large.is_some() { LARGE_PIPE_BYTES } else { PIPE_BYTES };
        if fcntl_setpipe_size(&writer, bytes).is_err() {
            // Without this, the pipe has its usual size.
            let _ = fcntl_setpipe_size(&writer, PIPE_BYTES);
        }
        Ok(Self { reader, writer, bytes, _large: large })
    }

    async fn run(self, from: &Stream, to: &Stream, meter: &Meter, direction: Direction) -> Result<(), Stopped> {
        let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
        loop {
            let fill = || Ok(splice(from, None, &self.writer, None, self.bytes, flags)?);
            let filled = from.when(Interest::READABLE, fill).await.map_err(broken)?;
            if filled == 0 {
                from.must_be_in_order().map_err(broken)?;
                return to.end().await.map_err(broken);
            }
            match direction {
                Direction::Up => meter.sent(filled).await?,
                Direction::Down => meter.received(filled).await?,
            }
            let mut left = filled;
            to.announce(left).await.map_err(broken)?;
            while left > 0 {
                let empty = || Ok(splice(&self.reader, None, to, None, left, flags)?);
                left -= to.when(Interest::WRITABLE, empty).await.map_err(broken)?.min(left);
            }
        }
    }
}

fn broken(_: io::Error) -> Stopped {
    Stopped::Broken
}
