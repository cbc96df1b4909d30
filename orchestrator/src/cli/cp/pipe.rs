//! Connects code that blocks, such as tar and files, with HTTP bodies that are polled: pieces go through a bounded channel.

use std::io::{self, Read, Write};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::poll_fn;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use tokio::sync::mpsc;

use super::super::progress::Progress;
use crate::client::{Body, ClientError, Download};

const PIECE_BYTES: usize = 256 << 10;
/// How many pieces the channel holds: enough that the two sides rarely wait for each other.
const DEPTH: usize = 4;

/// A pause before the first piece of a large body. By then a daemon that refuses the upload has said why. A client that is in the
/// middle of sending would only see its connection break.
const PAUSE_BEFORE_SENDING: Duration = Duration::from_millis(50);

type Piece = io::Result<Bytes>;

/// A request body, and the writer that fills it. The body is complete only after `finish`.
pub fn body(mut progress: Progress) -> (PieceWriter, Body) {
    let (sender, mut receiver) = mpsc::channel::<Piece>(DEPTH);
    // A single piece needs no pause: it is sent before anybody can refuse it.
    let is_large = progress.total().is_none_or(|total| total > PIECE_BYTES as u64);
    let mut pause = is_large.then(|| Box::pin(tokio::time::sleep(PAUSE_BEFORE_SENDING)));
    let pieces = poll_fn(move |context| {
        if let Some(waiting) = &mut pause {
            std::task::ready!(waiting.as_mut().poll(context));
            pause = None;
        }
        receiver.poll_recv(context).map(|piece| {
            Some(piece?.map(|bytes| {
                progress.add(bytes.len() as u64);
                Frame::data(bytes)
            }))
        })
    });
    (PieceWriter { sender, buffer: Vec::new() }, StreamBody::new(pieces).boxed())
}

/// Fills a body. Only for a thread that may block.
pub struct PieceWriter {
    sender: mpsc::Sender<Piece>,
    buffer: Vec<u8>,
}

impl PieceWriter {
    fn send(&mut self, piece: Piece) -> io::Result<()> {
        self.sender.blocking_send(piece).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    /// Ends the body. After an error the body ends with an error too, so that nobody takes a part for the whole.
    pub fn finish(mut self, result: io::Result<()>) -> io::Result<()> {
        let result = result.and_then(|()| self.flush());
        if let Err(error) = &result {
            let _ = self.send(Err(io::Error::new(error.kind(), error.to_string())));
        }
        result
    }
}

impl Write for PieceWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= PIECE_BYTES {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        match std::mem::take(&mut self.buffer) {
            buffer if buffer.is_empty() => Ok(()),
            buffer => self.send(Ok(buffer.into())),
        }
    }
}

/// Copies everything, in large pieces.
pub fn copy(from: &mut dyn Read, to: &mut PieceWriter) -> io::Result<()> {
    loop {
        let mut piece = vec![0; PIECE_BYTES];
        let read = match from.read(&mut piece) {
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if read == 0 {
            return Ok(());
        }
        piece.truncate(read);
        to.flush()?;
        to.send(Ok(piece.into()))?;
    }
}

/// Passes a download on into a channel that a blocking thread reads.
pub struct Feeder(mpsc::Sender<Piece>);

/// Reads a download. Only for a thread that may block.
pub struct PieceReader {
    receiver: mpsc::Receiver<Piece>,
    present: Bytes,
}

pub fn reader() -> (Feeder, PieceReader) {
    let (sender, receiver) = mpsc::channel(DEPTH);
    (Feeder(sender), PieceReader { receiver, present: Bytes::new() })
}

impl Feeder {
    /// Ends early and without an error if the reader has stopped: the reader knows why.
    pub async fn feed(self, download: &mut Download, progress: &mut Progress) -> Result<(), ClientError> {
        loop {
            match download.next().await {
                Ok(Some(bytes)) => {
                    progress.add(bytes.len() as u64);
                    if self.0.send(Ok(bytes)).await.is_err() {
                        return Ok(());
                    }
                }
                Ok(None) => return Ok(()),
                Err(error) => {
                    let _ = self.0.send(Err(io::Error::other(error.to_string()))).await;
                    return Err(error);
                }
            }
        }
    }
}

impl Read for PieceReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.present.is_empty() {
            match self.receiver.blocking_recv() {
                None => return Ok(0),
                Some(piece) => self.present = piece?,
            }
        }
        let count = buffer.len().min(self.present.len());
        buffer[..count].copy_from_slice(&self.present.split_to(count));
        Ok(count)
    }
}
