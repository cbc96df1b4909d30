//! Copies the bytes of one connection between a client and a server, until both have ended.
//!
//! A client that ends its side may still want the server's answer, or may be gone: the client says beforehand which of the two
//! it means. After one side has ended, the rest may be silent for `HALF_CLOSED_SILENCE`. So no connection stays that nobody
//! uses.

use std::cell::Cell;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, sleep_until};

/// The bytes that are copied at once, in each direction.
const BUFFER_BYTES: usize = 16 << 10;

/// The longest silence of a connection whose one side has ended.
const HALF_CLOSED_SILENCE: Duration = Duration::from_secs(600);

/// What it means when the client ends its side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndOfClient {
    /// It sends no more, and still reads.
    HalfClose,
    /// It is gone.
    Gone,
}

/// Copies until both sides have ended, or one is gone or silent for too long. If one fails, both are closed.
pub async fn relay<C, S>(client: C, server: S, end_of_client: EndOfClient) -> io::Result<()>
where
    C: AsyncRead + AsyncWrite,
    S: AsyncRead + AsyncWrite,
{
    let (from_client, to_client) = tokio::io::split(client);
    let (from_server, to_server) = tokio::io::split(server);
    let moved = Cell::new(Instant::now());
    let mut up = pin!(copy(from_client, to_server, &moved));
    let mut down = pin!(copy(from_server, to_client, &moved));
    tokio::select! {
        sent = up.as_mut() => match end_of_client {
            EndOfClient::HalfClose => { sent?; unless_silent(down, &moved).await }
            EndOfClient::Gone => sent,
        },
        received = down.as_mut() => { received?; unless_silent(up, &moved).await }
    }
}

async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    moved: &Cell<Instant>,
) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let count = from.read(&mut buffer).await?;
        if count == 0 {
            return to.shutdown().await;
        }
        to.write_all(&buffer[..count]).await?;
        moved.set(Instant::now());
    }
}

/// Waits for the other direction, as long as it moves bytes.
async fn unless_silent(
    mut rest: impl Future<Output = io::Result<()>> + Unpin,
    moved: &Cell<Instant>,
) -> io::Result<()> {
    let mut silent_since = Instant::now();
    loop {
        tokio::select! {
            ended = &mut rest => return ended,
            () = sleep_until(silent_since + HALF_CLOSED_SILENCE) => {
                if moved.get() <= silent_since {
                    return Ok(());
                }
                silent_since = moved.get();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::duplex;

    #[tokio::test]
    async fn a_client_that_ends_its_side_still_gets_the_answer() {
        let ((mut client, inner), (outer, mut server)) = (duplex(64), duplex(64));
        let story = async {
            client.write_all(b"question").await.unwrap();
            client.shutdown().await.unwrap();
            let mut asked = String::new();
            server.read_to_string(&mut asked).await.unwrap();
            server.write_all(b"answer").await.unwrap();
            drop(server);
            let mut answered = String::new();
            client.read_to_string(&mut answered).await.unwrap();
            assert_eq!((asked.as_str(), answered.as_str()), ("question", "answer"));
        };
        let (relayed, ()) = tokio::join!(relay(inner, outer, EndOfClient::HalfClose), story);
        relayed.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_ignores_the_end_is_left_when_the_client_is_gone_or_after_a_silence() {
        for (end, wait) in [(EndOfClient::Gone, Duration::ZERO), (EndOfClient::HalfClose, HALF_CLOSED_SILENCE)] {
            let ((client, inner), (outer, server)) = (duplex(64), duplex(64));
            drop(client);
            let start = Instant::now();
            relay(inner, outer, end).await.unwrap();
            assert_eq!(start.elapsed(), wait, "{end:?}");
            drop(server);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_half_closed_connection_that_moves_bytes_is_not_cut() {
        let ((mut client, inner), (outer, mut server)) = (duplex(64), duplex(64));
        let story = async {
            client.shutdown().await.unwrap();
            for _ in 0..5 {
                tokio::time::sleep(HALF_CLOSED_SILENCE - Duration::from_secs(1)).await;
                server.write_all(b"x").await.unwrap();
            }
            drop(server);
            let mut got = Vec::new();
            client.read_to_end(&mut got).await.unwrap();
            assert_eq!(got, b"xxxxx");
        };
        let (relayed, ()) = tokio::join!(relay(inner, outer, EndOfClient::HalfClose), story);
        relayed.unwrap();
    }
}
