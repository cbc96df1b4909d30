//! Checks that a runner's frames can be true. Pure; one value checks one stream.
//!
//! ```text
//! queued?  started  (output | gap | awaiting_input)*  (exit | error)
//! queued   (exit | error)                                             it left the queue and never ran
//! ```
//!
//! Offsets continue without a gap from the requested start, the exec is the requested one, its output comes on the streams
//! of its mode, and numbers and texts have plausible sizes.

use shared_protocol::ExecId;
use shared_protocol::runner::{ExecOutcome, OutcomeKind, Stream, StreamMode};

use super::frame::Frame;

/// The longest directory in an outcome; the runner accepts no longer one from bash.
const MAX_CWD_BYTES: usize = 16 << 10;

/// The longest reason for an ending.
const MAX_REASON_BYTES: usize = 4 << 10;

/// The highest signal number of Linux.
const MAX_SIGNAL: i32 = 64;

/// The streams that output may come on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Streams {
    Exec(StreamMode),
    Run,
    /// The streams of an exec that another client started: any.
    Any,
}

impl Streams {
    fn allow(self, stream: Stream) -> bool {
        match (self, stream) {
            (Self::Any, _) => true,
            // In every mode, a program can write to /dev/tty.
            (Self::Exec(_), Stream::Tty) => true,
            (Self::Exec(StreamMode::Merged), Stream::Merged) => true,
            (Self::Exec(StreamMode::Split) | Self::Run, Stream::Stdout | Stream::Stderr) => true,
            _ => false,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Fresh,
    Queued,
    Started,
    Over,
}

#[derive(Debug)]
pub struct Sequence {
    exec_id: ExecId,
    streams: Streams,
    /// The offset of the next byte.
    offset: u64,
    phase: Phase,
}

impl Sequence {
    pub fn new(exec_id: ExecId, streams: Streams, from: u64) -> Self {
        Self { exec_id, streams, offset: from, phase: Phase::Fresh }
    }

    pub fn exec_id(&self) -> &ExecId {
        &self.exec_id
    }

    pub fn offset(&self) -> u64 {
        self.offset
    }

    pub fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    /// Ends the sequence without the runner's last frame.
    pub fn end(&mut self) {
        self.phase = Phase::Over;
    }

    /// Checks the next frame. The error says why the frame is impossible.
    pub fn take(&mut self, frame: &Frame) -> Result<(), String> {
        match (self.phase, frame) {
            (Phase::Over, _) => return Err("a frame came after the last one".to_owned()),
            (Phase::Started, Frame::Queued { .. }) => return Err("a command was queued after its start".to_owned()),
            (Phase::Fresh, Frame::Queued { .. }) | (Phase::Started, _) => {}
            (Phase::Fresh | Phase::Queued, Frame::Started { .. } | Frame::Error(_)) => {}
            (Phase::Queued, Frame::Exit(outcome)) if outcome.kind == OutcomeKind::NeverRan => {}
            (Phase::Fresh | Phase::Queued, _) => return Err("a frame came before the first one".to_owned()),
        }
        match frame {
            Frame::Queued { running_exec_id } => {
                if *running_exec_id == self.exec_id {
                    return Err("a command is queued behind itself".to_owned());
                }
                self.phase = Phase::Queued;
            }
            Frame::Started { .. } if self.phase == Phase::Started => return Err("a stream started twice".to_owned()),
            Frame::Started { exec_id } => {
                self.check_id(exec_id)?;
                self.phase = Phase::Started;
            }
            Frame::Output { stream, offset, data, .. } => {
                if !self.streams.allow(*stream) {
                    return Err(format!("output came on {stream:?}, which this command has not"));
                }
                self.advance(*offset, data.as_bytes().len() as u64)?;
            }
            Frame::Gap { offset, bytes } => self.advance(*offset, *bytes)?,
            Frame::AwaitingInput => {}
            Frame::Exit(outcome) => {
                self.check_id(&outcome.exec_id)?;
                self.check_outcome(outcome)?;
                self.phase = Phase::Over;
            }
            Frame::Error(_) => self.phase = Phase::Over,
        }
        Ok(())
    }

    fn check_id(&self, id: &ExecId) -> Result<(), String> {
        if *id == self.exec_id { Ok(()) } else { Err(format!("a frame is of exec {id}, not of {}", self.exec_id)) }
    }

    fn advance(&mut self, offset: u64, bytes: u64) -> Result<(), String> {
        if offset != self.offset {
            return Err(format!("a frame is at offset {offset}, not at {}", self.offset));
        }
        if bytes == 0 {
            return Err("a frame has no bytes".to_owned());
        }
        self.offset = offset.checked_add(bytes).ok_or("a frame ends beyond all offsets")?;
        Ok(())
    }

    fn check_outcome(&self, outcome: &ExecOutcome) -> Result<(), String> {
        if outcome.output_bytes > self.offset {
            return Err(format!("{} bytes of output were announced, {} came", outcome.output_bytes, self.offset));
        }
        check_outcome(outcome)
    }
}

/// Checks an outcome by itself, as it also appears in a list of execs.
pub fn check_outcome(outcome: &ExecOutcome) -> Result<(), String> {
    if !(0..=255).contains(&outcome.exit_code) {
        return Err(format!("{} is no exit code", outcome.exit_code));
    }
    if outcome.signal.is_some_and(|signal| !(1..=MAX_SIGNAL).contains(&signal)) {
        return Err("a signal is out of range".to_owned());
    }
    if outcome.cwd.as_ref().is_some_and(|cwd| cwd.len() > MAX_CWD_BYTES || cwd.contains('\0')) {
        return Err("the directory is none".to_owned());
    }
    if outcome.reason.as_ref().is_some_and(|reason| reason.len() > MAX_REASON_BYTES) {
        return Err("a reason is too long".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::frame::Data;
    use super::*;
    use proptest::prelude::*;
    use shared_protocol::{ErrorBody, ErrorCode};

    fn id(name: &str) -> ExecId {
        ExecId::new(name).unwrap()
    }

    fn started() -> Frame {
        Frame::Started { exec_id: id("a") }
    }

    fn queued(behind: &str) -> Frame {
        Frame::Queued { running_exec_id: id(behind) }
    }

    fn output(offset: u64, text: &str) -> Frame {
        Frame::Output { stream: Stream::Merged, offset, at_ms: None, data: Data::Text(text.to_owned()) }
    }

    fn outcome(output_bytes: u64) -> ExecOutcome {
        ExecOutcome {
            exec_id: id("a"),
            kind: OutcomeKind::Exited,
            exit_code: 0,
            signal: None,
            cwd: Some("/".to_owned()),
            output_bytes,
            timed_out: false,
            shell_restarted: false,
            oom_killed: false,
            awaiting_input: false,
            duration_ms: 0,
            reason: None,
        }
    }

    fn all(from: u64, frames: &[Frame]) -> Result<(), String> {
        let mut sequence = Sequence::new(id("a"), Streams::Exec(StreamMode::Merged), from);
        frames.iter().try_for_each(|frame| sequence.take(frame))
    }

    #[test]
    fn a_true_stream_passes() {
        let gap = Frame::Gap { offset: 2, bytes: 3 };
        all(0, &[started(), output(0, "ab"), gap, Frame::AwaitingInput, output(5, "c"), Frame::Exit(outcome(6))])
            .unwrap();
        all(9, &[started(), output(9, "x"), Frame::Exit(outcome(4))]).unwrap();
        let error = Frame::Error(ErrorBody::new(ErrorCode::InternalError, "m"));
        all(0, std::slice::from_ref(&error)).unwrap();
        all(0, &[queued("b"), started(), Frame::Exit(outcome(0))]).unwrap();
        all(0, &[queued("b"), error]).unwrap();
        all(0, &[queued("b"), Frame::Exit(ExecOutcome { kind: OutcomeKind::NeverRan, ..outcome(0) })]).unwrap();
    }

    #[test]
    fn each_lie_is_seen() {
        let wrong = |frames: &[Frame], why: &str| {
            let said = all(0, frames).unwrap_err();
            assert!(said.contains(why), "{said:?} does not say {why:?}");
        };
        wrong(&[output(0, "a")], "before the first");
        wrong(&[Frame::Exit(outcome(0))], "before the first");
        wrong(&[started(), started()], "twice");
        wrong(&[started(), queued("b")], "after its start");
        wrong(&[queued("b"), queued("b")], "before the first");
        wrong(&[queued("a")], "itself");
        wrong(&[queued("b"), output(0, "a")], "before the first");
        wrong(&[queued("b"), Frame::Exit(outcome(0))], "before the first");
        wrong(&[Frame::Started { exec_id: id("b") }], "exec b");
        wrong(&[started(), output(1, "a")], "offset 1");
        wrong(&[started(), output(0, "ab"), output(1, "b")], "offset 1");
        wrong(&[started(), output(0, "ab"), output(0, "ab")], "offset 0");
        wrong(&[started(), output(0, "")], "no bytes");
        wrong(&[started(), Frame::Gap { offset: 0, bytes: 0 }], "no bytes");
        wrong(&[started(), Frame::Gap { offset: 5, bytes: 1 }], "offset 5");
        wrong(&[started(), Frame::Gap { offset: 0, bytes: u64::MAX }, output(u64::MAX, "a")], "beyond");
        wrong(&[started(), Frame::Exit(outcome(1))], "announced");
        wrong(&[started(), Frame::Exit(outcome(0)), Frame::Exit(outcome(0))], "after the last");
        wrong(&[started(), Frame::Exit(outcome(0)), output(0, "a")], "after the last");
        wrong(&[started(), Frame::Exit(ExecOutcome { exec_id: id("b"), ..outcome(0) })], "exec b");
        wrong(&[started(), Frame::Exit(ExecOutcome { exit_code: 256, ..outcome(0) })], "exit code");
        wrong(&[started(), Frame::Exit(ExecOutcome { exit_code: -1, ..outcome(0) })], "exit code");
        wrong(&[started(), Frame::Exit(ExecOutcome { signal: Some(65), ..outcome(0) })], "signal");
        let long = Some("x".repeat(MAX_CWD_BYTES + 1));
        wrong(&[started(), Frame::Exit(ExecOutcome { cwd: long.clone(), ..outcome(0) })], "directory");
        wrong(&[started(), Frame::Exit(ExecOutcome { reason: long, ..outcome(0) })], "reason");
    }

    #[test]
    fn output_comes_on_the_streams_of_its_mode() {
        for (streams, stream, allowed) in [
            (Streams::Exec(StreamMode::Merged), Stream::Stdout, false),
            (Streams::Exec(StreamMode::Merged), Stream::Tty, true),
            (Streams::Exec(StreamMode::Split), Stream::Merged, false),
            (Streams::Exec(StreamMode::Split), Stream::Stderr, true),
            (Streams::Exec(StreamMode::Tty), Stream::Merged, false),
            (Streams::Run, Stream::Stdout, true),
            (Streams::Run, Stream::Tty, false),
            (Streams::Any, Stream::Merged, true),
        ] {
            assert_eq!(streams.allow(stream), allowed, "{streams:?} {stream:?}");
        }
    }

    proptest! {
        /// All accepted frames are contiguous from `from`, and none follows the end.
        #[test]
        fn what_passes_is_contiguous(from in 0u64..4, kinds in proptest::collection::vec((0u8..5, 0u64..6, 0u64..4), 0..12)) {
            let mut sequence = Sequence::new(id("a"), Streams::Any, from);
            let (mut next, mut begun, mut over) = (from, false, false);
            for (kind, offset, length) in kinds {
                let frame = match kind {
                    0 => started(),
                    1 => output(offset, &"x".repeat(usize::try_from(length).unwrap())),
                    2 => Frame::Gap { offset, bytes: length },
                    3 => Frame::AwaitingInput,
                    _ => Frame::Exit(outcome(offset)),
                };
                let right = !over && match kind {
                    0 => !begun,
                    1 | 2 => begun && offset == next && length > 0,
                    3 => begun,
                    _ => begun && offset <= next,
                };
                prop_assert_eq!(sequence.take(&frame).is_ok(), right);
                if !right {
                    break;
                }
                match kind {
                    0 => begun = true,
                    1 | 2 => next += length,
                    4 => over = true,
                    _ => {}
                }
                prop_assert_eq!(sequence.offset(), next);
            }
        }
    }
}
