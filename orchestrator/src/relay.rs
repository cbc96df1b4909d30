//! Copies the bytes of one connection between two sides, until both have ended.
//!
//! After one side has ended, the rest may be silent for a while that the caller chooses, and then both are closed. So no
//! connection stays that nobody uses.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::{Instant, sleep};

/// The bytes that are copied at once, in each direction.
const BUFFER_BYTES: usize = 32 << 10;

/// The longest silence of a connection whose one side has ended, if its protocol knows half-closed connections.
pub const HALF_CLOSED_SILENCE: Duration = Duration::from_secs(600);

/// The same if its protocol does not: then the other side is only given the time to end too.
pub const CLOSING_SILENCE: Duration = Duration::from_secs(10);

/// When bytes were moved last, for both directions.
struct Moved {
    start: Instant,
    /// Milliseconds after `start`.
    last: AtomicU64,
}

impl Moved {
    fn note(&self) {
        let elapsed = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last.store(elapsed, Ordering::Relaxed);
    }

    fn silence(&self) -> Duration {
        self.start.elapsed().saturating_sub(Duration::from_millis(self.last.load(Ordering::Relaxed)))
    }
}

/// Copies until both sides have ended. If one fails, both are closed. `silence` is the longest silence after one has ended.
pub async fn relay(
    one: impl AsyncRead + AsyncWrite + Send,
    other: impl AsyncRead + AsyncWrite + Send,
    silence: Duration,
) -> io::Result<()> {
    let (from_one, to_one) = tokio::io::split(one);
    let (from_other, to_other) = tokio::io::split(other);
    let moved = Moved { start: Instant::now(), last: AtomicU64::new(0) };
    let mut there = pin!(copy(from_one, to_other, &moved));
    let mut back = pin!(copy(from_other, to_one, &moved));
    tokio::select! {
        ended = there.as_mut() => {
            ended?;
            unless_silent(back, &moved, silence).await
        }
        ended = back.as_mut() => {
            ended?;
            unless_silent(there, &moved, silence).await
        }
    }
}

async fn copy(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, moved: &Moved) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let count = from.read(&mut buffer).await?;
        if count == 0 {
            return to.shutdown().await;
        }
        to.write_all(&buffer[..count]).await?;
        to.flush().await?;
        moved.note();
    }
}

/// Waits for the other direction, as long as it moves bytes.
async fn unless_silent(
    mut rest: impl Future<Output = io::Result<()>> + Unpin,
    moved: &Moved,
    limit: Duration,
) -> io::Result<()> {
    moved.note();
    loop {
        let left = limit.saturating_sub(moved.silence());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        tokio::select! {
            ended = &mut rest => return ended,
            () = sleep(left) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::duplex;

    #[tokio::test]
    async fn each_side_may_end_first_and_still_reads() {
        let ((mut client, inner), (outer, mut server)) = (duplex(8), duplex(8));
        let asking = async {
            client.write_all(b"a question that is longer than a buffer").await.unwrap();
            client.shutdown().await.unwrap();
            let mut answer = String::new();
            client.read_to_string(&mut answer).await.unwrap();
            answer
        };
        let answering = async {
            let mut question = String::new();
            server.read_to_string(&mut question).await.unwrap();
            server.write_all(question.to_uppercase().as_bytes()).await.unwrap();
            server.shutdown().await.unwrap();
        };
        let (relayed, answer, ()) = tokio::join!(relay(inner, outer, HALF_CLOSED_SILENCE), asking, answering);
        relayed.unwrap();
        assert_eq!(answer, "A QUESTION THAT IS LONGER THAN A BUFFER");
    }

    #[tokio::test(start_paused = true)]
    async fn a_side_that_neither_moves_nor_ends_is_left_after_a_silence() {
        let ((client, inner), (outer, _server)) = (duplex(8), duplex(8));
        drop(client);
        let start = Instant::now();
        assert!(relay(inner, outer, CLOSING_SILENCE).await.is_err());
        assert_eq!(start.elapsed(), CLOSING_SILENCE);
    }
}
