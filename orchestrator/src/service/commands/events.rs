//! An exec as a stream of events that every front can encode.
//!
//! The reader pulls the stream, so a slow client slows the runner down instead of filling the daemon's memory. The stream
//! ends with `Done` or `Failed`, and the session is in use until then. If the stream is dropped, the command keeps running.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use futures_util::FutureExt as _;
use shared_protocol::ExecId;
use shared_protocol::api::ExecDone;

use super::done;
use crate::metrics::Metrics;
use crate::runner_client::{Frame, FrameStream, RunnerError};
use crate::service::CallError;
use crate::service::in_sandbox::{Ended, explain};
use crate::service::output::{Piece, Splitter};
use crate::session::{Activity, SessionHandle};

/// One event of an exec.
#[derive(Debug)]
pub enum ExecEvent {
    /// The command has its id and its place in the queue. This is always the first event.
    Started {
        exec_id: ExecId,
        /// The process id of a run inside the sandbox.
        pid: Option<u32>,
    },
    /// The command waits in the queue behind another one.
    Queued { exec_id: ExecId, running_exec_id: ExecId },
    /// A command that waited has begun.
    Running { exec_id: ExecId },
    /// A piece of output, cut between characters.
    Output {
        piece: Piece,
        /// When the command printed it, in milliseconds of Unix time.
        timestamp_ms: u64,
    },
    /// Bytes that are no longer stored, because the reader was too slow or came too late.
    Gap { offset: u64, bytes: u64 },
    /// A program waits for input at the terminal.
    AwaitingInput,
    /// The command has ended. This is the last event.
    Done(Box<ExecDone>),
    /// The stream cannot continue. This is the last event; the command may still be running.
    Failed(CallError),
}

/// The effects of the end of a stream's command.
pub(super) struct Ending {
    /// Whether the command's last directory becomes the session's directory.
    pub sets_cwd: bool,
    /// The metrics that count the end. `None` for an exec that a client reattaches to.
    pub counted_by: Option<Metrics>,
    /// The last decision about the session's network before the command began.
    pub decisions_before: u64,
}

/// The events of one exec or run, in order.
pub struct ExecStream {
    session: SessionHandle,
    /// Keeps the session from expiring.
    activity: Activity,
    session_ended: Ended,
    frames: FrameStream,
    ending: Ending,
    splitter: Splitter,
    /// When the last output was printed. The splitter may still hold the end of it.
    printed_at: Option<u64>,
    /// An event that is ready but not returned yet. One frame makes at most two events.
    pending: Option<ExecEvent>,
    is_queued: bool,
    has_gaps: bool,
    is_over: bool,
    began: Instant,
}

impl ExecStream {
    pub(super) fn new(session: SessionHandle, activity: Activity, frames: FrameStream, ending: Ending) -> Self {
        Self {
            session_ended: Box::pin(activity.ended()),
            pending: Some(ExecEvent::Started { exec_id: frames.exec_id().clone(), pid: frames.pid() }),
            session,
            activity,
            frames,
            ending,
            splitter: Splitter::default(),
            printed_at: None,
            is_queued: false,
            has_gaps: false,
            is_over: false,
            began: Instant::now(),
        }
    }

    pub fn exec_id(&self) -> &ExecId {
        self.frames.exec_id()
    }

    /// The offset of the next byte of output.
    pub fn offset(&self) -> u64 {
        self.frames.offset()
    }

    /// Waits for the next event. Returns `None` after the last one. If the caller stops waiting, no event is lost.
    pub async fn next(&mut self) -> Option<ExecEvent> {
        loop {
            if self.pending.is_some() || self.is_over {
                return self.pending.take();
            }
            let event = tokio::select! {
                biased;
                frame = self.frames.next() => self.take(frame),
                error = &mut self.session_ended => Some(self.fail(error.into())),
            };
            if event.is_some() {
                return event;
            }
        }
    }

    /// Returns the next event if it is available now; otherwise `None`, and the task is not woken later.
    pub fn next_ready(&mut self) -> Option<ExecEvent> {
        loop {
            if self.pending.is_some() || self.is_over {
                return self.pending.take();
            }
            let frame = self.frames.next().now_or_never()?;
            let event = self.take(frame);
            if event.is_some() {
                return event;
            }
        }
    }

    fn take(&mut self, frame: Result<Option<Frame>, RunnerError>) -> Option<ExecEvent> {
        match frame {
            Ok(Some(Frame::Output { stream, offset, at_ms, data })) => {
                self.printed_at = at_ms;
                let mut pieces = self.splitter.push(stream, offset, data).map(|piece| output(piece, at_ms));
                let first = pieces.next();
                self.pending = pieces.next();
                first
            }
            Ok(Some(Frame::Gap { offset, bytes })) => {
                self.has_gaps = true;
                Some(self.after_the_rest(ExecEvent::Gap { offset, bytes }))
            }
            Ok(Some(Frame::AwaitingInput)) => Some(self.after_the_rest(ExecEvent::AwaitingInput)),
            Ok(Some(Frame::Exit(outcome))) => {
                if let (true, Some(cwd)) = (self.ending.sets_cwd, &outcome.cwd) {
                    self.activity.set_cwd(cwd);
                }
                if let Some(metrics) = &self.ending.counted_by {
                    metrics.exec_finished(outcome.kind, self.began.elapsed().as_secs_f64());
                    metrics.bytes_out(outcome.output_bytes);
                }
                self.is_over = true;
                let mut done = done(outcome, self.has_gaps, || self.session.view().cwd);
                done.network_denied = self.activity.network().denied_after(self.ending.decisions_before);
                Some(self.after_the_rest(ExecEvent::Done(Box::new(done))))
            }
            Ok(Some(Frame::Queued { running_exec_id })) => {
                self.is_queued = true;
                Some(ExecEvent::Queued { exec_id: self.exec_id().clone(), running_exec_id })
            }
            // `Started` was sent when the runner accepted the command.
            Ok(Some(Frame::Started { exec_id })) => {
                std::mem::take(&mut self.is_queued).then_some(ExecEvent::Running { exec_id })
            }
            // An error frame arrives as an `Err`.
            Ok(Some(Frame::Error(_))) => None,
            Ok(None) => {
                self.is_over = true;
                self.splitter.flush().map(|piece| output(piece, self.printed_at))
            }
            Err(error) => {
                let error = explain(&self.activity, error, &mut self.session_ended);
                Some(self.fail(error))
            }
        }
    }

    fn fail(&mut self, error: CallError) -> ExecEvent {
        self.is_over = true;
        self.after_the_rest(ExecEvent::Failed(error))
    }

    /// Returns the waiting bytes of an incomplete character first, if there are any, and `event` after them.
    fn after_the_rest(&mut self, event: ExecEvent) -> ExecEvent {
        match self.splitter.flush() {
            None => event,
            Some(piece) => {
                self.pending = Some(event);
                output(piece, self.printed_at)
            }
        }
    }
}

/// A piece of output with the time at which it was printed. A runner of an older version does not tell that: then it is now.
fn output(piece: Piece, printed_at: Option<u64>) -> ExecEvent {
    let now = || {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    };
    ExecEvent::Output { piece, timestamp_ms: printed_at.unwrap_or_else(now) }
}
