//! The runner's side of a file operation: start the helper, feed it, pass its answer on, and never wait for it in vain.
//!
//! ```text
//! slot → fork → [ready → body* → end] → head → data* → end
//!          └ supervise: holds the slot until the process has been collected, whatever became of the request
//! ```
//!
//! Whoever holds a `Helper` keeps it going; dropping it closes the pipes, which a helper at work notices within
//! `ABORT_GRACE` and uses to clean up, and after that it is killed. A helper that moves nothing for `HELPER_STALL` is killed
//! at once. One that cannot even be killed (a dead mount) keeps its slot, so that there are never more than
//! `MAX_FILE_OPERATIONS` of them.

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use http_body::Body as _;
use http_body_util::BodyExt;
use shared_protocol::{ErrorBody, ErrorCode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until, timeout};

use super::channel::{self, Frame, Head, MAX_FRAME, Outcome, PREFIX, take_frame};
use super::error::invalid;
use super::resolve::Places;
use super::{Job, perform};
use crate::app::SharedApp;
use crate::http::Body;
use crate::reaper::{Exit, Reaper, Watch};
use crate::sys::fork::{EXIT_DONE, fork_helper};
use crate::sys::identity::Identity;
use crate::sys::pipe::{grow, input_pipe, output_pipe};

/// File operations under way at once, each a process.
pub const MAX_FILE_OPERATIONS: usize = 64;
/// How long a helper may go without moving a byte or saying that it is at work.
pub const HELPER_STALL: Duration = Duration::from_secs(30);
/// How long a client may go without sending or taking a byte before it is given up.
pub const CLIENT_STALL: Duration = Duration::from_secs(300);
/// How long a helper has to notice that its request is gone, and to remove what it had not finished.
const ABORT_GRACE: Duration = Duration::from_secs(2);
/// What the pipes are asked to hold: a few frames, so that both sides work at once.
const PIPE_BYTES: i32 = 256 * 1024;
/// Of a request's body that is still read once its answer is known, so that a client which sends first and reads then gets
/// to the answer.
const MAX_DRAINED: u64 = 1 << 20;

/// Runs a job for one request: gives the beginning of its answer, and the rest as it comes.
pub async fn run<B>(app: &SharedApp, job: Job, body: B) -> Result<(Head, Body), ErrorBody>
where
    B: http_body::Body<Data = Bytes> + Unpin,
{
    let slot = Slot::take(app)?;
    let places = Places::new(&app.config.files_root, &app.config.workspace);
    run_in_slot(&app.reaper, app.identity, &places, slot, job, body).await
}

/// One of the operations that may be under way.
struct Slot(SharedApp);

impl Slot {
    fn take(app: &SharedApp) -> Result<Self, ErrorBody> {
        let taken: &Cell<usize> = &app.file_operations;
        if taken.get() >= MAX_FILE_OPERATIONS {
            let message = format!("{MAX_FILE_OPERATIONS} file operations are under way; try again when one has ended");
            return Err(ErrorBody::new(ErrorCode::LimitReached, message));
        }
        taken.set(taken.get() + 1);
        Ok(Self(Rc::clone(app)))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.file_operations.set(self.0.file_operations.get().saturating_sub(1));
    }
}

/// `slot` is whatever must live until the helper's process is gone.
async fn run_in_slot<B>(
    reaper: &Reaper,
    identity: Identity,
    places: &Places,
    slot: impl Sized + 'static,
    job: Job,
    mut body: B,
) -> Result<(Head, Body), ErrorBody>
where
    B: http_body::Body<Data = Bytes> + Unpin,
{
    let mut helper = Helper::start(reaper, identity, places, slot, &job).map_err(|error| {
        tracing::warn!(%error, job = job.name(), "a file helper did not start");
        ErrorBody::new(ErrorCode::LimitReached, format!("no process could be started for the file operation: {error}"))
    })?;
    let early = if job.takes_body() { helper.feed(&mut body).await? } else { None };
    let bytes = match early {
        Some(bytes) => bytes,
        None => helper.head().await?,
    };
    match serde_json::from_slice(&bytes) {
        Ok(Outcome::Done(head)) => {
            let body = helper.into_body(head.length);
            Ok((head, body))
        }
        Ok(Outcome::Failed(error)) => {
            drop(helper);
            drain(&mut body).await;
            Err(error)
        }
        Err(_) => Err(helper.failed("it gave an answer that is not one")),
    }
}

async fn drain<B: http_body::Body<Data = Bytes> + Unpin>(body: &mut B) {
    if body.size_hint().lower() > MAX_DRAINED {
        return;
    }
    let mut drained = 0;
    while drained < MAX_DRAINED {
        match timeout(ABORT_GRACE, body.frame()).await {
            Ok(Some(Ok(frame))) => drained += frame.data_ref().map_or(0, |data| data.len() as u64),
            _ => return,
        }
    }
}

/// A helper at work. Reading is safe to abandon at any await: what was read stays in `buffer`.
struct Helper {
    job: &'static str,
    input: pipe::Sender,
    output: pipe::Receiver,
    buffer: BytesMut,
    /// `HELPER_STALL`, but in tests.
    stall: Duration,
    /// Dropped: the request is over. Sent to: kill the helper now.
    leash: Option<oneshot::Sender<()>>,
}

impl Helper {
    fn start(
        reaper: &Reaper,
        identity: Identity,
        places: &Places,
        slot: impl Sized + 'static,
        job: &Job,
    ) -> io::Result<Self> {
        let (child_input, input) = input_pipe()?;
        let (output, child_output) = output_pipe()?;
        grow(&input, PIPE_BYTES);
        grow(&output, PIPE_BYTES);
        let (input, output) = (pipe::Sender::from_owned_fd(input)?, pipe::Receiver::from_owned_fd(output)?);
        let pid = fork_helper(identity, child_input, child_output, |from, to| perform(places, job, from, to))?;
        let watch = reaper.watch(pid);
        let (leash, end) = oneshot::channel();
        tokio::task::spawn_local(supervise(watch, end, slot, job.name()));
        Ok(Self { job: job.name(), input, output, buffer: BytesMut::new(), stall: HELPER_STALL, leash: Some(leash) })
    }

    /// The next frame; `None` where the helper has gone without one. Waits as long as it takes.
    async fn frame(&mut self) -> Result<Option<Frame>, ErrorBody> {
        loop {
            match take_frame(&mut self.buffer) {
                Ok(Some(frame)) => return Ok(Some(frame)),
                Ok(None) => {}
                Err(error) => return Err(self.failed(&error.to_string())),
            }
            self.buffer.reserve(MAX_FRAME + PREFIX);
            match self.output.read_buf(&mut self.buffer).await {
                Ok(0) => return Ok(None),
                Ok(_) => {}
                Err(error) => return Err(self.failed(&error.to_string())),
            }
        }
    }

    /// The next frame from a helper that has everything it needs, and so must not go silent.
    async fn frame_in_time(&mut self) -> Result<Option<Frame>, ErrorBody> {
        match timeout(self.stall, self.frame()).await {
            Ok(result) => result,
            Err(_) => Err(self.stalled()),
        }
    }

    async fn head(&mut self) -> Result<Bytes, ErrorBody> {
        loop {
            match self.frame_in_time().await? {
                Some(Frame::Head(bytes)) => return Ok(bytes),
                Some(Frame::Progress) => {}
                Some(_) => return Err(self.failed("it spoke out of turn")),
                None => return Err(self.failed("it ended without an answer; its memory may have run out")),
            }
        }
    }

    /// Sends the request's body. Gives the helper's answer where that came before the end, which is a failure.
    async fn feed<B>(&mut self, body: &mut B) -> Result<Option<Bytes>, ErrorBody>
    where
        B: http_body::Body<Data = Bytes> + Unpin,
    {
        // A client that waits for `100 Continue` is told to go on by the first look at the body: not before there is
        // somewhere for it to go.
        loop {
            match self.frame_in_time().await? {
                Some(Frame::Ready) => break,
                Some(Frame::Head(bytes)) => return Ok(Some(bytes)),
                Some(Frame::Progress) => {}
                Some(_) => return Err(self.failed("it spoke out of turn")),
                None => return Err(self.failed("it ended without an answer; its memory may have run out")),
            }
        }
        loop {
            let next = tokio::select! {
                biased;
                frame = self.frame() => match frame? {
                    Some(Frame::Progress) => continue,
                    Some(Frame::Head(bytes)) => return Ok(Some(bytes)),
                    Some(_) => return Err(self.failed("it spoke out of turn")),
                    None => return Err(self.failed("it ended while it was being written to; its memory may have run out")),
                },
                next = timeout(CLIENT_STALL, body.frame()) => next,
            };
            match next {
                Ok(Some(Ok(frame))) => {
                    let Ok(mut bytes) = frame.into_data() else { continue };
                    while !bytes.is_empty() {
                        let chunk = bytes.split_to(bytes.len().min(MAX_FRAME));
                        let prefix = channel::data_prefix(chunk.len());
                        if let Some(early) = self.send(Buf::chain(&prefix[..], chunk)).await? {
                            return Ok(Some(early));
                        }
                    }
                }
                Ok(None) => return self.send(&channel::end_frame()[..]).await,
                Ok(Some(Err(_))) => return Err(invalid("the request was cut before its end")),
                Err(_) => return Err(invalid("the request stood still for too long")),
            }
        }
    }

    /// Writes to the helper, listening meanwhile. A pipe that the helper closed is no error yet: it has answered, or the
    /// end of its output will say that it has not.
    async fn send(&mut self, mut bytes: impl Buf) -> Result<Option<Bytes>, ErrorBody> {
        let mut deadline = Instant::now() + self.stall;
        let mut open = true;
        while bytes.has_remaining() {
            let mut chunk = [io::IoSlice::new(&[]), io::IoSlice::new(&[])];
            let count = bytes.chunks_vectored(&mut chunk);
            let Self { input, output, buffer, .. } = &mut *self;
            buffer.reserve(MAX_FRAME + PREFIX);
            tokio::select! {
                written = input.write_vectored(&chunk[..count]), if open => match written {
                    Ok(count) => bytes.advance(count),
                    Err(_) => open = false,
                },
                read = output.read_buf(buffer) => match read {
                    Ok(0) => return Err(self.failed("it ended while it was being written to; its memory may have run out")),
                    Ok(_) => {}
                    Err(error) => return Err(self.failed(&error.to_string())),
                },
                () = sleep_until(deadline) => return Err(self.stalled()),
            }
            deadline = Instant::now() + self.stall;
            while let Some(frame) = take_frame(&mut self.buffer).map_err(|error| self.failed(&error.to_string()))? {
                match frame {
                    Frame::Progress => {}
                    Frame::Head(bytes) => return Ok(Some(bytes)),
                    _ => return Err(self.failed("it spoke out of turn")),
                }
            }
        }
        Ok(None)
    }

    fn into_body(self, length: Option<u64>) -> Body {
        let (sender, body) = Body::stream();
        tokio::task::spawn_local(self.pump(sender, length));
        body
    }

    /// Passes the data on, no faster than the client takes it. Every way out but the helper's own end cuts the answer.
    async fn pump(mut self, to: mpsc::Sender<io::Result<Bytes>>, length: Option<u64>) {
        let mut passed = 0u64;
        loop {
            let frame = tokio::select! {
                () = to.closed() => return,
                frame = self.frame_in_time() => frame,
            };
            let failure = match frame {
                Ok(Some(Frame::Data(bytes))) => {
                    passed = passed.saturating_add(bytes.len() as u64);
                    if length.is_none_or(|length| passed <= length) {
                        match timeout(CLIENT_STALL, to.send(Ok(bytes))).await {
                            Ok(Ok(())) => continue,
                            Ok(Err(_)) => return,
                            Err(_) => invalid("the client took nothing for too long"),
                        }
                    } else {
                        self.failed("it sent more than it announced")
                    }
                }
                Ok(Some(Frame::Progress)) => continue,
                Ok(Some(Frame::End)) if length.is_none_or(|length| passed == length) => return,
                Ok(Some(Frame::Head(bytes))) => match serde_json::from_slice(&bytes) {
                    Ok(Outcome::Failed(error)) => error,
                    _ => self.failed("it spoke out of turn"),
                },
                Ok(Some(_)) => self.failed("it spoke out of turn"),
                Ok(None) => self.failed("it ended in the middle of its answer"),
                Err(error) => error,
            };
            tracing::warn!(job = self.job, error_code = ?failure.error_code, "the answer of a file helper was cut");
            let _ = timeout(CLIENT_STALL, to.send(Err(io::Error::other(failure)))).await;
            return;
        }
    }

    fn stalled(&mut self) -> ErrorBody {
        self.failed(&format!("it made no progress for {:?}, as on a filesystem that does not answer", self.stall))
    }

    /// Gives the helper up, and says why.
    fn failed(&mut self, why: &str) -> ErrorBody {
        if let Some(leash) = self.leash.take() {
            let _ = leash.send(());
        }
        tracing::warn!(job = self.job, why, "a file helper was given up");
        ErrorBody::new(ErrorCode::InternalError, format!("the process of the file operation failed: {why}"))
    }
}

/// Owns the process: sees that it ends soon after its request does, and holds its slot until it has.
async fn supervise(mut watch: Watch, end: oneshot::Receiver<()>, slot: impl Sized, job: &'static str) {
    let told = tokio::select! {
        exit = watch.exit() => {
            // PIPE is how one ends whose client went away.
            if ![Exit::Code(EXIT_DONE), Exit::Signal(libc::SIGPIPE)].contains(&exit) {
                tracing::warn!(job, pid = watch.pid(), ?exit, "a file helper died");
            }
            return;
        }
        told = end => told,
    };
    let kill_now = told.is_ok();
    if kill_now || timeout(ABORT_GRACE, watch.exit()).await.is_err() {
        watch.signal(libc::SIGKILL);
        watch.exit().await;
    }
    drop(slot);
}

#[cfg(test)]
#[path = "helper_test.rs"]
mod tests;
