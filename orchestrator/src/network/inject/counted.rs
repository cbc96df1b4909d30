//! The program's end of a connection whose TLS ends at the daemon: a stream that counts its bytes before they pass, so that a limit is
//! never exceeded.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use futures_util::future::BoxFuture;
use network_policy::Reason;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::network::copy::{Meter, Stopped};

/// The most bytes of one read or write.
const PIECE_BYTES: usize = 32 << 10;

/// Why a stream may not go on, once that is so.
#[derive(Debug, Clone, Default)]
pub struct Forbidden(Arc<Mutex<Option<Reason>>>);

impl Forbidden {
    pub fn reason(&self) -> Option<Reason> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stop(&self, stopped: &Stopped) -> io::Error {
        if let Stopped::Forbidden(reason) = stopped {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(*reason);
        }
        io::Error::other("the session has used up its traffic")
    }
}

/// A stream of a program. Each byte is counted before it passes.
pub struct Counted<S> {
    stream: S,
    meter: Arc<Meter>,
    forbidden: Forbidden,
    /// Bytes that have been read, and how many of them the reader has got.
    read: (Vec<u8>, usize),
    /// The bytes in `read` are being counted.
    reading: Option<Counting>,
    /// This many bytes, which are about to be written, are being counted.
    writing: Option<(usize, Counting)>,
    /// Bytes that have been counted and not yet been written.
    paid: usize,
}

type Counting = BoxFuture<'static, Result<(), Stopped>>;

impl<S> Counted<S> {
    /// `first` are bytes that the program has sent before.
    pub fn new(stream: S, first: Vec<u8>, meter: Arc<Meter>) -> (Self, Forbidden) {
        let forbidden = Forbidden::default();
        let reading = (!first.is_empty()).then(|| count_sent(meter.clone(), first.len()));
        let counted =
            Self { stream, meter, forbidden: forbidden.clone(), read: (first, 0), reading, writing: None, paid: 0 };
        (counted, forbidden)
    }
}

fn count_sent(meter: Arc<Meter>, count: usize) -> Counting {
    Box::pin(async move { meter.sent(count).await })
}

fn count_received(meter: Arc<Meter>, count: usize) -> (usize, Counting) {
    (count, Box::pin(async move { meter.received(count).await }))
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            if let Some(counting) = &mut this.reading {
                let counted = ready!(counting.as_mut().poll(context));
                this.reading = None;
                counted.map_err(|stopped| this.forbidden.stop(&stopped))?;
            }
            let (bytes, given) = &mut this.read;
            if *given < bytes.len() {
                let piece = &bytes[*given..];
                let count = piece.len().min(buffer.remaining());
                buffer.put_slice(&piece[..count]);
                *given += count;
                if *given == bytes.len() {
                    // An idle connection has no buffer.
                    this.read = (Vec::new(), 0);
                }
                return Poll::Ready(Ok(()));
            }
            // The stream is asked first: a buffer exists only if there is something to read.
            let mut piece = [0_u8; 4096];
            let mut piece = ReadBuf::new(&mut piece);
            ready!(Pin::new(&mut this.stream).poll_read(context, &mut piece))?;
            if piece.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            let mut bytes = piece.filled().to_vec();
            // More may be there.
            let mut rest = vec![0; PIECE_BYTES];
            let mut rest = ReadBuf::new(&mut rest);
            if piece.remaining() == 0
                && let Poll::Ready(more) = Pin::new(&mut this.stream).poll_read(context, &mut rest)
            {
                more?;
                bytes.extend_from_slice(rest.filled());
            }
            this.reading = Some(count_sent(this.meter.clone(), bytes.len()));
            this.read = (bytes, 0);
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        if this.paid == 0 {
            let meter = &this.meter;
            let (count, counting) =
                this.writing.get_or_insert_with(|| count_received(meter.clone(), bytes.len().min(PIECE_BYTES)));
            let counted = ready!(counting.as_mut().poll(context));
            this.paid = *count;
            this.writing = None;
            counted.map_err(|stopped| this.forbidden.stop(&stopped))?;
        }
        let most = bytes.len().min(this.paid);
        let written = ready!(Pin::new(&mut this.stream).poll_write(context, &bytes[..most]))?;
        this.paid -= written.min(this.paid);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::NetworkLimits;
    use crate::network::limits::SessionMeter;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    fn meter(limits: NetworkLimits) -> Arc<Meter> {
        Arc::new(Meter::new(Arc::new(SessionMeter::new(limits))))
    }

    #[tokio::test]
    async fn every_byte_passes_once_and_is_counted() {
        let (program, mut other) = tokio::io::duplex(1000);
        let meter = meter(NetworkLimits::default());
        let (mut counted, forbidden) = Counted::new(program, b"first ".to_vec(), meter.clone());
        let sent: Vec<u8> = (0..100_000_u32).map(|at| u8::try_from(at % 251).unwrap()).collect();
        let (mut got, mut back) = (Vec::new(), Vec::new());
        let program = async {
            other.write_all(&sent).await.unwrap();
            other.shutdown().await.unwrap();
            other.read_to_end(&mut back).await.unwrap();
        };
        let daemon = async {
            counted.read_to_end(&mut got).await.unwrap();
            counted.write_all(&sent).await.unwrap();
            counted.shutdown().await.unwrap();
        };
        tokio::join!(program, daemon);
        assert!(got.starts_with(b"first ") && got[6..] == sent && back == sent);
        assert_eq!((meter.bytes(), forbidden.reason()), ((100_006, 100_000), None));
    }

    #[tokio::test]
    async fn no_byte_passes_beyond_a_limit() {
        let limits = NetworkLimits { total_bytes: Some(10), ..NetworkLimits::default() };
        let (program, mut other) = tokio::io::duplex(1000);
        let (mut counted, forbidden) = Counted::new(program, b"first".to_vec(), meter(limits));
        let mut bytes = [0; 5];
        counted.read_exact(&mut bytes).await.unwrap();
        counted.write_all(b"12345").await.unwrap();
        assert!(counted.write_all(b"6").await.is_err());
        assert_eq!(forbidden.reason(), Some(Reason::ByteLimit));
        drop(counted);
        let mut got = Vec::new();
        other.read_to_end(&mut got).await.unwrap();
        assert_eq!(got, b"12345");
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_keeps_its_rate() {
        let limits = NetworkLimits { bytes_per_second: Some(1000), ..NetworkLimits::default() };
        let (program, mut other) = tokio::io::duplex(100_000);
        let (mut counted, _) = Counted::new(program, Vec::new(), meter(limits));
        other.write_all(&[1; 5000]).await.unwrap();
        let (began, mut bytes) = (tokio::time::Instant::now(), vec![0; 5000]);
        counted.read_exact(&mut bytes).await.unwrap();
        counted.write_all(&bytes).await.unwrap();
        assert!(began.elapsed().as_secs() >= 9, "{:?}", began.elapsed());
    }
}
