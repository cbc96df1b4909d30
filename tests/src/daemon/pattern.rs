//! Content of any size, made while it is sent and checked while it is read: a pattern whose period is a prime number, so
//! that a lost, doubled or moved block is noticed.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::LazyLock;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

const PERIOD: u8 = 251;

/// The size of a chunk: a whole number of periods, so that all chunks are equal.
const CHUNK: u64 = 1024 * 251;

static BLOCK: LazyLock<Bytes> = LazyLock::new(|| (0..2048).flat_map(|_| 0..PERIOD).collect());

/// A body of that many bytes of the pattern.
pub struct Pattern {
    offset: u64,
    length: u64,
}

impl Pattern {
    pub fn new(length: u64) -> Self {
        Self { offset: 0, length }
    }

    /// Whether these are the bytes of the pattern from this offset on.
    pub fn has(mut offset: u64, bytes: &[u8]) -> bool {
        bytes.chunks(usize::try_from(CHUNK).expect("small")).all(|chunk| {
            let start = usize::try_from(offset % u64::from(PERIOD)).expect("small");
            offset += u64::try_from(chunk.len()).expect("small");
            BLOCK[start..start + chunk.len()] == *chunk
        })
    }
}

impl Body for Pattern {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let count = CHUNK.min(self.length - self.offset);
        if count == 0 {
            return Poll::Ready(None);
        }
        self.offset += count;
        Poll::Ready(Some(Ok(Frame::data(BLOCK.slice(..usize::try_from(count).expect("small"))))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.length - self.offset)
    }
}
