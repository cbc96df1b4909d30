//! The runner's side of a file operation: starts the helper process, sends it the request's body, passes its reply on, and
//! gives it up if it hangs.
//!
//! ```text
//! slot → fork → [ready → body* → end] → head → data* → end
//!          └ supervise: holds the slot until the process has been collected, whatever became of the request
//! ```
//!
//! Dropping a `Helper` closes its pipes. A working helper notices that and cleans up; after `ABORT_GRACE` it is killed. A
//! helper that moves no byte for `HELPER_STALL` is killed at once. A helper that cannot be killed (on a dead mount) keeps
//! its slot, so there are never more than `MAX_FILE_OPERATIONS` of them. Watches last as long as their clients want, so they
//! have slots of their own.

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use http_body_util::BodyExt;
use shared_protocol::{ErrorBody, ErrorCode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until, timeout};

use super::error::invalid;
use super::protocol::{self, Head, HelperFrame, HelperResult, MAX_FRAME, PREFIX, take_frame};
use super::resolve::Roots;
use super::{Job, perform};
use crate::reaper::{Exit, Reaper, Watch};
use crate::sys::fork::{EXIT_DONE, Memory, fork_helper};
use crate::sys::identity::Identity;
use crate::sys::pipe::{grow, input_pipe, output_pipe};

/// The most file operations that run at once. Each is a process.
pub const MAX_FILE_OPERATIONS: usize = 64;
/// The most watches at once. Each is a process too, and a watch of inotify, of which the host has few for each user.
pub const MAX_WATCHES: usize = 16;
/// The longest time in which a helper neither moves a byte nor reports progress.
pub const HELPER_STALL: Duration = Duration::from_secs(30);
/// The number of parts in which that time is counted. A sandbox may be frozen for hours, and the clock goes on meanwhile: then one part
/// is over at once, and the helper still has the others to go on.
const STALL_PARTS: u32 = 3;
/// The longest time in which a client neither sends nor takes a byte.
pub const CLIENT_STALL: Duration = Duration::from_secs(300);
/// The time in which a helper must notice that its request is over, and remove unfinished files.
const ABORT_GRACE: Duration = Duration::from_secs(2);
/// The size of the pipes: a few frames, so that both sides can work at the same time.
const PIPE_BYTES: i32 = 256 * 1024;
/// The most chunks of data that wait between a helper and the client. Two keep both sides busy.
const DATA_DEPTH: usize = 2;

/// The data of a reply, in chunks. An error means that the reply is incomplete.
pub type DataStream = mpsc::Receiver<io::Result<Bytes>>;

/// Starts file operations, at most `MAX_FILE_OPERATIONS` at once.
pub struct FileOperations {
    roots: Roots,
    identity: Identity,
    reaper: Reaper,
    /// The number of operations whose process exists, without watches.
    running: Rc<Cell<usize>>,
    /// The number of watches whose process exists.
    watching: Rc<Cell<usize>>,
}

impl FileOperations {
    /// Makes the operations. They run as `identity` on the files below `roots`, in processes that `reaper` collects.
    pub fn new(roots: Roots, identity: Identity, reaper: Reaper) -> Self {
        Self { roots, identity, reaper, running: Rc::default(), watching: Rc::default() }
    }

    /// Runs a job for one request. Returns the head of the reply, and the data as a stream.
    pub async fn run<B>(&self, job: Job, body: B) -> Result<(Head, DataStream), ErrorBody>
    where
        B: http_body::Body<Data = Bytes> + Unpin,
    {
        let slot = match job {
            Job::Watch { .. } => Slot::take(&self.watching, MAX_WATCHES, "watches")?,
            _ => Slot::take(&self.running, MAX_FILE_OPERATIONS, "file operations")?,
        };
        run_in_slot(&self.reaper, self.identity, &self.roots, slot, job, body).await
    }

    /// Runs a job of a whole disk as the runner's own user, who may read and own every file. No command runs meanwhile.
    pub async fn run_on_disk<B>(&self, job: Job, body: B) -> Result<(Head, DataStream), ErrorBody>
    where
        B: http_body::Body<Data = Bytes> + Unpin,
    {
        let slot = Slot::take(&self.running, MAX_FILE_OPERATIONS, "file operations")?;
        let own = Identity { switch: false, ..self.identity };
        run_in_slot(&self.reaper, own, &self.roots, slot, job, body).await
    }
}

/// One of a limited number of places for operations.
struct Slot(Rc<Cell<usize>>);

impl Slot {
    fn take(running: &Rc<Cell<usize>>, limit: usize, what: &str) -> Result<Self, ErrorBody> {
        if running.get() >= limit {
            let message = format!("{limit} {what} are under way in this session; try again when one has ended");
            return Err(ErrorBody::new(ErrorCode::LimitReached, message));
        }
        running.set(running.get() + 1);
        Ok(Self(running.clone()))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.set(self.0.get().saturating_sub(1));
    }
}

/// Runs a job. `slot` is dropped when the helper's process is gone.
async fn run_in_slot<B>(
    reaper: &Reaper,
    identity: Identity,
    roots: &Roots,
    slot: impl Sized + 'static,
    job: Job,
    mut body: B,
) -> Result<(Head, DataStream), ErrorBody>
where
    B: http_body::Body<Data = Bytes> + Unpin,
{
    let mut helper = Helper::start(reaper, identity, roots, slot, &job).map_err(|error| {
        tracing::warn!(%error, job = job.name(), "a file helper did not start");
        ErrorBody::new(ErrorCode::LimitReached, format!("no process could be started for the file operation: {error}"))
    })?;
    let early = if job.takes_body() { helper.feed(&mut body).await? } else { None };
    let bytes = match early {
        Some(bytes) => bytes,
        None => helper.head().await?,
    };
    match serde_json::from_slice(&bytes) {
        Ok(HelperResult::Done(head)) => {
            let data = helper.into_data(head.length);
            Ok((head, data))
        }
        Ok(HelperResult::Failed(error)) => Err(error),
        Err(_) => Err(helper.failed("it gave a reply that is not one")),
    }
}

/// A running helper process. A read can be cancelled at any await: the bytes that were read stay in `buffer`.
struct Helper {
    job: &'static str,
    reaper: Reaper,
    input: pipe::Sender,
    output: pipe::Receiver,
    buffer: BytesMut,
    /// `HELPER_STALL`, except in tests.
    stall: Duration,
    /// Tells `supervise` when to end the process: it is dropped when the request is over, and sent to when the process must
    /// be killed now.
    stop: Option<oneshot::Sender<()>>,
}

impl Helper {
    fn start(
        reaper: &Reaper,
        identity: Identity,
        roots: &Roots,
        slot: impl Sized + 'static,
        job: &Job,
    ) -> io::Result<Self> {
        let (child_input, input) = input_pipe()?;
        let (output, child_output) = output_pipe()?;
        grow(&input, PIPE_BYTES);
        grow(&output, PIPE_BYTES);
        let (input, output) = (pipe::Sender::from_owned_fd(input)?, pipe::Receiver::from_owned_fd(output)?);
        // A watch holds memory of the kernel for each directory, as long as it lasts.
        let is_large = matches!(job, Job::Watch { .. }) || (job.takes_body() && *job != Job::Gather);
        let memory = if is_large { Memory::Commands } else { Memory::Runner };
        let pid = fork_helper(identity, child_input, child_output, memory, |from, to| perform(roots, job, from, to))?;
        let watch = reaper.watch(pid);
        let (stop, end) = oneshot::channel();
        tokio::task::spawn_local(supervise(watch, end, slot, job.name()));
        let reaper = reaper.clone();
        Ok(Self {
            job: job.name(),
            reaper,
            input,
            output,
            buffer: BytesMut::new(),
            stall: HELPER_STALL,
            stop: Some(stop),
        })
    }

    /// Waits for the next frame, without a time limit. Returns `None` if the helper ended without one.
    async fn frame(&mut self) -> Result<Option<HelperFrame>, ErrorBody> {
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

    /// Waits for the next frame from a helper that waits for nothing and so must report progress.
    async fn frame_in_time(&mut self) -> Result<Option<HelperFrame>, ErrorBody> {
        let mut parts = 0;
        while parts < STALL_PARTS {
            match timeout(self.stall / STALL_PARTS, self.frame()).await {
                Ok(result) => return result,
                // The runner itself has stopped all processes, for a snapshot.
                Err(_) if self.reaper.ignores_stops() => {}
                Err(_) => parts += 1,
            }
        }
        Err(self.stalled())
    }

    async fn head(&mut self) -> Result<Bytes, ErrorBody> {
        loop {
            match self.frame_in_time().await? {
                Some(HelperFrame::Head(bytes)) => return Ok(bytes),
                Some(HelperFrame::Progress) => {}
                Some(_) => return Err(self.failed("it sent a frame out of order")),
                None => return Err(self.failed("it ended without a reply; its memory may have run out")),
            }
        }
    }

    /// Sends the request's body. If the helper replies before the body's end, which means a failure, returns that reply.
    async fn feed<B>(&mut self, body: &mut B) -> Result<Option<Bytes>, ErrorBody>
    where
        B: http_body::Body<Data = Bytes> + Unpin,
    {
        // Polling the body sends `100 Continue` to a client that waits for it, so it begins when the helper is ready for the
        // body.
        loop {
            match self.frame_in_time().await? {
                Some(HelperFrame::Ready) => break,
                Some(HelperFrame::Head(bytes)) => return Ok(Some(bytes)),
                Some(HelperFrame::Progress) => {}
                Some(_) => return Err(self.failed("it sent a frame out of order")),
                None => return Err(self.failed("it ended without a reply; its memory may have run out")),
            }
        }
        loop {
            let next = tokio::select! {
                biased;
                frame = self.frame() => match frame? {
                    Some(HelperFrame::Progress) => continue,
                    Some(HelperFrame::Head(bytes)) => return Ok(Some(bytes)),
                    Some(_) => return Err(self.failed("it sent a frame out of order")),
                    None => return Err(self.failed("it ended while it was being written to; its memory may have run out")),
                },
                next = timeout(CLIENT_STALL, body.frame()) => next,
            };
            match next {
                Ok(Some(Ok(frame))) => {
                    let Ok(mut bytes) = frame.into_data() else { continue };
                    while !bytes.is_empty() {
                        let chunk = bytes.split_to(bytes.len().min(MAX_FRAME));
                        let prefix = protocol::data_prefix(chunk.len());
                        if let Some(early) = self.send(Buf::chain(&prefix[..], chunk)).await? {
                            return Ok(Some(early));
                        }
                    }
                }
                Ok(None) => return self.send(&protocol::end_frame()[..]).await,
                Ok(Some(Err(_))) => return Err(invalid("the request was cut before its end")),
                Err(_) => return Err(invalid("the request stood still for too long")),
            }
        }
    }

    /// Writes to the helper while it reads the helper's frames. A closed pipe is no error yet: either the helper's reply is
    /// on the way, or its output ends without one.
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
                    HelperFrame::Progress => {}
                    HelperFrame::Head(bytes) => return Ok(Some(bytes)),
                    _ => return Err(self.failed("it sent a frame out of order")),
                }
            }
        }
        Ok(None)
    }

    fn into_data(self, length: Option<u64>) -> DataStream {
        let (sender, data) = mpsc::channel(DATA_DEPTH);
        tokio::task::spawn_local(self.pump(sender, length));
        data
    }

    /// Passes the data on, as fast as the client takes it. Unless the helper sends the end, the reply is cut.
    async fn pump(mut self, to: mpsc::Sender<io::Result<Bytes>>, length: Option<u64>) {
        let mut passed = 0u64;
        loop {
            let frame = tokio::select! {
                () = to.closed() => return,
                frame = self.frame_in_time() => frame,
            };
            let failure = match frame {
                Ok(Some(HelperFrame::Data(bytes))) => {
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
                Ok(Some(HelperFrame::Progress)) => continue,
                Ok(Some(HelperFrame::End)) if length.is_none_or(|length| passed == length) => return,
                Ok(Some(HelperFrame::Head(bytes))) => match serde_json::from_slice(&bytes) {
                    Ok(HelperResult::Failed(error)) => error,
                    _ => self.failed("it sent a frame out of order"),
                },
                Ok(Some(_)) => self.failed("it sent a frame out of order"),
                Ok(None) => self.failed("it ended in the middle of its reply"),
                Err(error) => error,
            };
            tracing::warn!(job = self.job, error_code = ?failure.error_code, "the reply of a file helper was cut");
            let _ = timeout(CLIENT_STALL, to.send(Err(io::Error::other(failure)))).await;
            return;
        }
    }

    fn stalled(&mut self) -> ErrorBody {
        self.failed(&format!("it made no progress for {:?}, as on a filesystem that does not respond", self.stall))
    }

    /// Makes `supervise` kill the helper, and returns the error for the client.
    fn failed(&mut self, why: &str) -> ErrorBody {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        tracing::warn!(job = self.job, why, "a file helper failed");
        ErrorBody::new(ErrorCode::InternalError, format!("the process of the file operation failed: {why}"))
    }
}

/// Owns the process: ends it soon after its request, and keeps its slot until it has ended.
async fn supervise(mut watch: Watch, end: oneshot::Receiver<()>, slot: impl Sized, job: &'static str) {
    let told = tokio::select! {
        exit = watch.exit() => {
            // The signal PIPE ends a helper whose client disconnected.
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
