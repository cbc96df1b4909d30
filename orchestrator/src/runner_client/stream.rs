//! The frames of one exec, as they arrive.
//!
//! A line that is complete in the read buffer is parsed in place; any other line is assembled, up to the longest length of a
//! frame. If the caller stops waiting for `next` at any await, nothing is lost.
//!
//! If the runner does not report the end of a command long after its time limit (`deadline`), the stream ends it itself, with
//! the outcome `lost`.

use std::future::Future as _;
use std::io::BufRead as _;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use shared_protocol::ExecId;
use shared_protocol::runner::{ExecOutcome, MAX_FRAME_BYTES, OutcomeKind};
use tokio::time::{Instant, Sleep, sleep_until};

use super::RunnerError;
use super::answer::Answer;
use super::deadline::Deadline;
use super::error::checked;
use super::frame::{Frame, parse};
use super::sequence::Sequence;

/// How long a stream may bring nothing before the runner is doubted. Most commands that run longer print nothing for a while,
/// so each such time costs one question.
const QUIET_TIME: Duration = Duration::from_secs(5);

/// The exit code of a command that ran out of time.
const TIMEOUT_CODE: i32 = 124;

/// Splits bytes into frames and checks them. Pure.
#[derive(Debug)]
pub struct Frames {
    sequence: Sequence,
    chunk: Bytes,
    /// The beginning of an incomplete line.
    begun: Vec<u8>,
}

impl Frames {
    pub fn new(sequence: Sequence) -> Self {
        Self { sequence, chunk: Bytes::new(), begun: Vec::new() }
    }

    /// Adds bytes that were read. Call it only when `next` has returned `None`.
    pub fn push(&mut self, chunk: Bytes) {
        debug_assert!(self.chunk.is_empty(), "frames are taken before more is read");
        self.chunk = chunk;
    }

    /// The next complete frame of the pushed bytes.
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

    /// Drops what is left: nothing more is taken from the runner.
    fn end(&mut self) {
        self.sequence.end();
        self.chunk.clear();
        self.begun.clear();
    }

    /// Whether the stream may end here: the last frame has come, and nothing is left.
    fn is_over(&self) -> bool {
        self.sequence.is_over() && self.chunk.is_empty() && self.begun.is_empty()
    }
}

pub struct FrameStream {
    answer: Answer,
    frames: Frames,
    /// Whether the stream ends with the exec, and not at the output that existed when it was requested.
    is_live: bool,
    pid: Option<u32>,
    deadline: Deadline,
    /// When the runner is doubted next, if the stream brings nothing until then.
    doubt_at: Option<Instant>,
    /// The timer of a stream that waits. It is set again only when it has fired or is too late.
    timer: Option<Pin<Box<Sleep>>>,
    is_overdue: bool,
}

impl FrameStream {
    pub(super) fn new(answer: Answer, sequence: Sequence, is_live: bool) -> Self {
        let frames = Frames::new(sequence);
        let deadline = Deadline::new(None);
        Self { answer, frames, is_live, deadline, doubt_at: None, timer: None, is_overdue: false, pid: None }
    }

    /// Sets the time limit that the runner was given for the command, for the deadline behind it.
    #[must_use]
    pub fn limited_to(mut self, timeout_ms: Option<u64>) -> Self {
        self.deadline = Deadline::new(timeout_ms.map(Duration::from_millis));
        self
    }

    /// Whether this stream has ended the command itself, because the runner did not.
    pub fn is_overdue(&self) -> bool {
        self.is_overdue
    }

    #[must_use]
    pub(super) fn with_pid(self, pid: Option<u32>) -> Self {
        Self { pid, ..self }
    }

    /// The process id of a run inside the sandbox.
    pub fn pid(&self) -> Option<u32> {
        self.pid
    }

    pub fn exec_id(&self) -> &ExecId {
        self.frames.sequence.exec_id()
    }

    /// The offset of the next byte of output.
    pub fn offset(&self) -> u64 {
        self.frames.sequence.offset()
    }

    /// Waits for the next frame. Returns `None` after the last one, and at the current end of the output if the stream does
    /// not follow.
    pub async fn next(&mut self) -> Result<Option<Frame>, RunnerError> {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }

    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Frame>, RunnerError>> {
        loop {
            match self.frames.next() {
                Err(error) => return Poll::Ready(Err(error)),
                Ok(Some(frame)) => {
                    if let Frame::Started { .. } = frame {
                        self.deadline.begin(Instant::now());
                    }
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
                Poll::Pending => return self.poll_overdue(cx).map(|frame| Ok(Some(frame))),
                Poll::Ready(Some(Ok(chunk))) => {
                    self.doubt_at = None;
                    if !self.deadline.took(Instant::now(), chunk.len()) {
                        return Poll::Ready(Ok(Some(self.end_overdue())));
                    }
                    self.frames.push(chunk);
                }
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

    /// Called while the runner sends nothing. Becomes ready with the last frame when the command is overdue.
    fn poll_overdue(&mut self, cx: &mut Context<'_>) -> Poll<Frame> {
        loop {
            let now = Instant::now();
            let end = self.deadline.wait(now);
            if end.is_some_and(|end| end <= now) {
                return Poll::Ready(self.end_overdue());
            }
            if self.doubt_at.is_some_and(|at| at <= now) {
                self.answer.pulse().doubt();
                self.doubt_at = None;
            }
            let doubt_at = *self.doubt_at.get_or_insert(now + QUIET_TIME);
            let wake = end.map_or(doubt_at, |end| end.min(doubt_at));
            let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(wake)));
            if timer.deadline() > wake || timer.is_elapsed() {
                timer.as_mut().reset(wake);
            }
            if timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
        }
    }

    /// Ends the command in the runner's place. How it really ended is not known.
    fn end_overdue(&mut self) -> Frame {
        let run_time = self.deadline.run_time(Instant::now());
        self.answer.pulse().doubt();
        self.answer.abandon();
        self.frames.end();
        self.is_overdue = true;
        let seconds = run_time.as_secs();
        Frame::Exit(ExecOutcome {
            exec_id: self.exec_id().clone(),
            kind: OutcomeKind::Lost,
            exit_code: TIMEOUT_CODE,
            signal: None,
            cwd: None,
            output_bytes: self.offset(),
            timed_out: true,
            shell_restarted: false,
            oom_killed: false,
            awaiting_input: false,
            duration_ms: u64::try_from(run_time.as_millis()).unwrap_or(u64::MAX),
            reason: Some(format!(
                "it ran out of time, and the sandbox did not report its end: it began {seconds} s ago"
            )),
        })
    }

    /// Called after the last frame. If the answer is complete too, its connection can be used again. It does not wait.
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
                encode_output(Stream::Stdout, offset, 0, output, &mut wire);
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
