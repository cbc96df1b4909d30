//! Feeds standard input to the open standard input of a run, piece by piece: input of any size, in constant memory.
//!
//! Each piece is a request of its own, which is answered when the program has taken the bytes. So a slow program slows the
//! input down, and input that comes slowly keeps no request waiting.

use std::io::{self, Read};

use bytes::{Bytes, BytesMut};
use shared_protocol::{ExecId, SessionId};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TryRecvError;

use super::exit::Failure;
use crate::client::{Client, InputEnd};

/// The most bytes that are read at once.
const READ_BYTES: usize = 64 << 10;
/// How many reads wait to be sent.
const DEPTH: usize = 16;
/// The most bytes in one request.
const MAX_PIECE_BYTES: usize = 1 << 20;

/// Standard input, read ahead by a bounded amount.
pub struct Input(mpsc::Receiver<io::Result<Bytes>>);

impl Input {
    /// Reads standard input on a thread of its own. A read that never returns ends with the process.
    pub fn stdin() -> Self {
        Self::of(io::stdin())
    }

    fn of(from: impl Read + Send + 'static) -> Self {
        let (sender, receiver) = mpsc::channel(DEPTH);
        std::thread::spawn(move || read_all(from, &sender));
        Self(receiver)
    }

    /// Waits for input and returns all that is there, up to the size of a piece. `None` at the end.
    async fn next(&mut self) -> Option<io::Result<Bytes>> {
        let first = match self.0.recv().await? {
            Ok(first) => first,
            Err(error) => return Some(Err(error)),
        };
        let mut piece = BytesMut::from(first);
        while piece.len() + READ_BYTES <= MAX_PIECE_BYTES {
            match self.0.try_recv() {
                Ok(Ok(more)) => piece.extend_from_slice(&more),
                Ok(Err(error)) => return Some(Err(error)),
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => break,
            }
        }
        Some(Ok(piece.freeze()))
    }
}

fn read_all(mut from: impl Read, to: &mpsc::Sender<io::Result<Bytes>>) {
    let mut buffer = vec![0; READ_BYTES];
    loop {
        let read = match from.read(&mut buffer) {
            Ok(0) => return,
            Ok(count) => Ok(Bytes::copy_from_slice(buffer.get(..count).unwrap_or_default())),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => Err(error),
        };
        let is_last = read.is_err();
        if to.blocking_send(read).is_err() || is_last {
            return;
        }
    }
}

/// Sends all input to the run and closes its standard input. It ends early, and well, if the program takes no more.
pub async fn feed(client: &Client, session: &SessionId, exec: &ExecId, mut input: Input) -> Result<(), Failure> {
    loop {
        let (bytes, end) = match input.next().await {
            Some(Ok(bytes)) => (bytes, InputEnd::More),
            Some(Err(error)) => return Err(Failure::failed(format!("cannot read standard input: {error}"))),
            None => (Bytes::new(), InputEnd::Close),
        };
        match client.write_stdin(session, exec, bytes, end).await {
            Ok(()) if end == InputEnd::Close => return Ok(()),
            Ok(()) => {}
            // The program has ended or has closed its input. In a pipe, the rest would be lost in the same way.
            Err(error) if error.is("CONFLICT") || error.is("EXEC_NOT_FOUND") => return Ok(()),
            Err(error) => return Err(Failure::failed(format!("cannot send standard input: {error}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn input_comes_whole_and_in_pieces_of_bounded_size() {
        let mut input = Input::of(io::repeat(b'x').take(5 << 20));
        let mut total = 0;
        while let Some(piece) = input.next().await {
            let piece = piece.unwrap();
            assert!((1..=MAX_PIECE_BYTES).contains(&piece.len()), "{}", piece.len());
            total += piece.len();
        }
        assert_eq!(total, 5 << 20);
    }

    #[tokio::test]
    async fn a_read_that_fails_is_no_end() {
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::ErrorKind::IsADirectory.into())
            }
        }
        let mut input = Input::of(Broken);
        assert!(input.next().await.unwrap().is_err());
        assert!(input.next().await.is_none());
    }
}
