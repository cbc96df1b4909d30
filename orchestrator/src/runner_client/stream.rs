//! The frames of one exec, as they come.
//!
//! A line that lies whole in what was read is read where it lies; one that does not is put together, up to the length that a
//! frame may have and no further. Abandoning `next` at any await loses nothing.

use std::io::BufRead as _;
use std::task::{Context, Poll};

use bytes::{Buf as _, Bytes};
use shared_protocol::ExecId;
use shared_protocol::runner::MAX_FRAME_BYTES;

use super::RunnerError;
use super::answer::Answer;
use super::error::checked;
use super::frame::{Frame, parse};
use super::sequence::Sequence;

/// Takes bytes apart into frames and checks them. Pure.
#[derive(Debug)]
pub struct Frames {
    sequence: Sequence,
    chunk: Bytes,
    /// The beginning of a line whose end is yet to come.
    begun: Vec<u8>,
}

impl Frames {
    pub fn new(sequence: Sequence) -> Self {
        Self { sequence, chunk: Bytes::new(), begun: Vec::new() }
    }

    /// Adds what was read. Only once `next` has nothing more to give.
    pub fn push(&mut self, chunk: Bytes) {
        debug_assert!(self.chunk.is_empty(), "frames are taken before more is read");
        self.chunk = chunk;
    }

    /// The next whole frame of what was pushed.
    pub fn next(&mut self) -> Result<Option<Frame>, RunnerError> {
        if self.chunk.is_empty() {
            return Ok(None);
        }
        let length = (&self.chunk[..]).skip_until(b'\n').unwrap_or(self.chunk.len());
        if self.begun.len() + length > MAX_FRAME_BYTES {
            return Err(RunnerError::hostile(format!("a frame is longer than {MAX_FRAME_BYTES} bytes")));
        }
        let is_whole = self.chunk[length - 1] == b'\n';
        let frame = match (is_whole, self.begun.is_empty()) {
            (false, _) => {
                self.begun.extend_from_slice(&self.chunk);
                self.chunk.clear();
                return Ok(None);
            }
            (true, true) => parse(&self.chunk[..length]),
            (true, false) => {
                self.begun.extend_from_slice(&self.chunk[..length]);
                let frame = parse(&self.begun);
                self.begun.clear();
                frame
            }
        };
        self.chunk.advance(length);
        let frame = frame.map_err(RunnerError::Hostile)?;
        self.sequence.take(&frame).map_err(RunnerError::Hostile)?;
        Ok(Some(frame))
    }

    /// Whether the stream can be over here: behind its last frame, with nothing left.
    fn is_over(&self) -> bool {
        self.sequence.is_over() && self.chunk.is_empty() && self.begun.is_empty()
    }
}

pub struct FrameStream {
    answer: Answer,
    frames: Frames,
    /// Whether it ends with the exec, and not with what there was when it was asked for.
    is_live: bool,
}

impl FrameStream {
    pub(super) fn new(answer: Answer, sequence: Sequence, is_live: bool) -> Self {
        Self { answer, frames: Frames::new(sequence), is_live }
    }

    pub fn exec_id(&self) -> &ExecId {
        self.frames.sequence.exec_id()
    }

    /// Where the next byte of output is.
    pub fn offset(&self) -> u64 {
        self.frames.sequence.offset()
    }

    /// The next frame; `None` behind the last one, and at the end of what there is where the stream does not follow.
    pub async fn next(&mut self) -> Result<Option<Frame>, RunnerError> {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }

    /// The next frame of what has been read already.
    pub fn next_at_hand(&mut self) -> Result<Option<Frame>, RunnerError> {
        self.frames.next()
    }

    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Frame>, RunnerError>> {
        loop {
            match self.frames.next() {
                Err(error) => return Poll::Ready(Err(error)),
                Ok(Some(frame)) => {
                    if self.frames.is_over() {
                        self.hang_up(cx);
                    }
                    return Poll::Ready(match frame {
                        Frame::Error(error) => Err(checked(error)),
                        frame => Ok(Some(frame)),
                    });
                }
                Ok(None) => {}
            }
            if self.frames.is_over() {
                return Poll::Ready(Ok(None));
            }
            match self.answer.poll_chunk(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(Ok(chunk))) => self.frames.push(chunk),
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(error)),
                Poll::Ready(None) if !self.frames.begun.is_empty() => {
                    return Poll::Ready(Err(RunnerError::hostile("a stream ended inside a frame")));
                }
                Poll::Ready(None) if self.is_live => {
                    return Poll::Ready(Err(RunnerError::Lost("the stream ended before the command".to_owned())));
                }
                Poll::Ready(None) => return Poll::Ready(Ok(None)),
            }
        }
    }

    /// Behind the last frame: where the answer is known to be over too, its line can be used again. Nothing is waited for.
    fn hang_up(&mut self, cx: &mut Context<'_>) {
        let polled = self.answer.poll_chunk(cx);
        if !matches!(polled, Poll::Ready(None)) {
            self.answer.abandon();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::frame::Data;
    use super::super::sequence::Streams;
    use super::*;
    use proptest::prelude::*;
    use shared_protocol::runner::{Stream, encode_output};

    fn frames() -> Frames {
        Frames::new(Sequence::new(ExecId::new("a").unwrap(), Streams::Any, 0))
    }

    fn started() -> Vec<u8> {
        b"{\"type\":\"started\",\"exec_id\":\"a\"}\n".to_vec()
    }

    #[test]
    fn a_frame_without_an_end_is_refused_before_it_is_stored() {
        let mut frames = frames();
        let piece = Bytes::from(vec![b'x'; 100 << 10]);
        let refused = (0..20).find_map(|_| {
            frames.push(piece.clone());
            let refused = frames.next().is_err();
            assert!(frames.begun.capacity() <= 2 * MAX_FRAME_BYTES);
            refused.then_some(())
        });
        assert_eq!(refused, Some(()));
    }

    #[test]
    fn a_long_line_in_one_piece_is_refused_too() {
        let mut frames = frames();
        let mut line = vec![b' '; MAX_FRAME_BYTES + 1];
        line.push(b'\n');
        frames.push(line.into());
        assert!(matches!(frames.next(), Err(RunnerError::Hostile(_))));
    }

    proptest! {
        #[test]
        fn however_it_is_cut_the_same_comes_out(
            outputs in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..60), 1..8),
            cut in 1usize..50,
        ) {
            let (mut wire, mut offset) = (started(), 0);
            for output in &outputs {
                encode_output(Stream::Stdout, offset, output, &mut wire);
                offset += output.len() as u64;
            }
            let (mut frames, mut came) = (frames(), Vec::new());
            for piece in wire.chunks(cut) {
                frames.push(Bytes::copy_from_slice(piece));
                while let Some(frame) = frames.next().unwrap() {
                    if let Frame::Output { data, .. } = frame {
                        came.push(match data { Data::Text(text) => text.into_bytes(), Data::Bytes(bytes) => bytes });
                    }
                }
            }
            prop_assert_eq!(came, outputs);
        }

        #[test]
        fn no_bytes_make_it_panic_or_grow(pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..300), 0..20)) {
            let mut frames = frames();
            for piece in pieces {
                frames.push(piece.into());
                loop {
                    match frames.next() {
                        Ok(Some(_)) => {}
                        Ok(None) => break,
                        Err(_) => return Ok(()),
                    }
                }
            }
        }
    }
}
