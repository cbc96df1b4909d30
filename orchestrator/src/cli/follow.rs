//! Follows an exec or a run to its end, and copies its output to standard output and standard error, every byte once.
//!
//! If the connection is lost, it is made again from the offset that was reached, a bounded number of times. The command keeps
//! running meanwhile. Output that the daemon no longer has is reported as missing.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use shared_protocol::api::ChunkEvent;
use shared_protocol::runner::{OutcomeKind, Stream};
use shared_protocol::{ExecId, SessionId};
use tokio::io::{AsyncWrite, AsyncWriteExt};

use super::exit::{CommandEnd, Failure};
use super::output::{escape_control, say};
use super::private::random_hex;
use super::tail::Tail;
use super::tty::Screen;
use crate::client::{Client, ClientError, FrameReader, Piece, StreamDone, StreamFrame};

/// How often to connect again without receiving a byte.
const MAX_REATTACHES: u32 = 6;
/// The pause before the first try. It doubles with each: about six seconds in all.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// An id that the client chooses, so that the exec can be found again even if the answer to its start was lost.
pub fn new_exec_id() -> Result<ExecId, Failure> {
    ExecId::new(format!("cli-{}", random_hex(8)?)).map_err(|e| Failure::failed(e.to_string()))
}

type Sink = Box<dyn AsyncWrite + Unpin>;

/// Where the output goes.
struct Sinks {
    stdout: Sink,
    stderr: Sink,
}

impl Sinks {
    fn new() -> Self {
        Self { stdout: Box::new(tokio::io::stdout()), stderr: Box::new(tokio::io::stderr()) }
    }

    async fn write(&mut self, stream: Stream, bytes: &[u8]) -> Result<(), Failure> {
        let written = match stream {
            Stream::Stderr => write_out(&mut self.stderr, bytes).await,
            Stream::Stdout | Stream::Merged | Stream::Tty => write_out(&mut self.stdout, bytes).await,
        };
        written.map_err(|e| Failure::stdout(&e))
    }
}

async fn write_out(to: &mut Sink, bytes: &[u8]) -> std::io::Result<()> {
    to.write_all(bytes).await?;
    to.flush().await
}

/// The offset of the next byte, by which it is known what is new in a piece of output.
#[derive(Debug, Default, PartialEq, Eq)]
struct Cursor {
    next: u64,
}

#[derive(Debug, PartialEq, Eq)]
struct Fresh<'a> {
    /// How many bytes before these never came.
    missing: u64,
    bytes: &'a [u8],
}

impl Cursor {
    fn take<'a>(&mut self, offset: u64, bytes: &'a [u8]) -> Fresh<'a> {
        let missing = offset.saturating_sub(self.next);
        let known = usize::try_from(self.next.saturating_sub(offset)).unwrap_or(usize::MAX).min(bytes.len());
        let bytes = &bytes[known..];
        self.next = self.next.saturating_add(missing).saturating_add(bytes.len() as u64);
        Fresh { missing, bytes }
    }

    /// Skips a gap, and returns how many bytes are lost by it.
    fn skip(&mut self, offset: u64, bytes: u64) -> u64 {
        let end = offset.saturating_add(bytes);
        let lost = end.saturating_sub(self.next);
        self.next = self.next.max(end);
        lost
    }
}

pub struct Follower<'a> {
    client: &'a Client,
    session: &'a SessionId,
    exec: ExecId,
    cursor: Cursor,
    sinks: Sinks,
    /// The state of the caller's terminal, if the output goes to it.
    screen: Screen,
    /// Whether the command waits in the shell's queue.
    is_waiting: Rc<Cell<bool>>,
    /// Whether the caller's terminal is in raw mode, in which a newline does not return the cursor.
    is_raw: bool,
}

impl<'a> Follower<'a> {
    pub fn new(client: &'a Client, session: &'a SessionId, exec: ExecId) -> Self {
        Self {
            client,
            session,
            exec,
            cursor: Cursor::default(),
            sinks: Sinks::new(),
            screen: Screen::default(),
            is_waiting: Rc::default(),
            is_raw: false,
        }
    }

    /// Follows a command at the caller's terminal, and tells in `is_waiting` whether it waits in the queue.
    pub fn in_raw_mode(self, is_waiting: Rc<Cell<bool>>) -> Self {
        Self { is_waiting, is_raw: true, ..self }
    }

    /// Copies all output to standard error.
    pub fn on_stderr(self) -> Self {
        Self { sinks: Sinks { stdout: Box::new(tokio::io::stderr()), ..self.sinks }, ..self }
    }

    /// The offset of the next byte that is copied.
    pub fn next_offset(&self) -> u64 {
        self.cursor.next
    }

    pub fn screen(&self) -> &Screen {
        &self.screen
    }

    /// `begun` is the answer to the request that started the command, or to one that asked for its output again.
    pub async fn follow(&mut self, begun: Result<FrameReader, ClientError>) -> Result<StreamDone, Failure> {
        let mut attempt = begun;
        let mut tries = 0;
        loop {
            let before = self.cursor.next;
            let error = match attempt {
                Ok(reader) => match self.read(reader).await? {
                    Ok(done) => return Ok(done),
                    Err(error) => error,
                },
                Err(error) => error,
            };
            if self.cursor.next > before {
                tries = 0;
            }
            // If the daemon refuses, or cannot be reached before the command was started, there is no second try.
            let again = matches!(&error, ClientError::Lost(_)) || (tries > 0 && is_unreachable(&error));
            if !again || tries == MAX_REATTACHES {
                return Err(self.given_up(error, tries));
            }
            tokio::time::sleep(FIRST_PAUSE * 2u32.saturating_pow(tries)).await;
            tries += 1;
            attempt = self.client.reattach(self.session, &self.exec, self.cursor.next).await;
        }
    }

    /// Copies output until the command ends. The inner error is a failed connection, the outer one a failure of our own.
    async fn read(&mut self, mut reader: FrameReader) -> Result<Result<StreamDone, ClientError>, Failure> {
        self.is_waiting.set(false);
        loop {
            let frame = match reader.next().await {
                Ok(frame) => frame,
                Err(error) => return Ok(Err(error)),
            };
            match frame {
                StreamFrame::Queued { running_exec_id } => self.wait_behind(&running_exec_id),
                StreamFrame::Running {} => self.is_waiting.set(false),
                StreamFrame::Started { .. } | StreamFrame::AwaitingInput | StreamFrame::Unknown => {}
                StreamFrame::Chunk(chunk) => self.copy(chunk).await?,
                StreamFrame::Gap { offset, bytes } => self.skip(offset, bytes),
                StreamFrame::Done(done) => return Ok(Ok(done)),
                StreamFrame::Error { error, error_code } => {
                    return Err(Failure::failed(format!("{error} ({error_code})")));
                }
            }
        }
    }

    /// Skips to the last lines of the output up to an offset that was reached already.
    pub async fn skip_to_tail(&mut self, end: u64, lines: u64) -> Result<(), Failure> {
        let mut tail = Tail::new(lines);
        let mut seen = Cursor::default();
        let mut reader = self.client.reattach(self.session, &self.exec, seen.next).await?;
        while seen.next < end {
            match reader.next().await? {
                StreamFrame::Chunk(chunk) => {
                    let piece = Piece::of(chunk)?;
                    let fresh = seen.take(piece.offset, &piece.bytes);
                    tail.add(seen.next - fresh.bytes.len() as u64, fresh.bytes);
                }
                StreamFrame::Gap { offset, bytes } => {
                    seen.skip(offset, bytes);
                    tail.gap();
                }
                StreamFrame::Done(_) => break,
                StreamFrame::Error { error, error_code } => {
                    return Err(Failure::failed(format!("{error} ({error_code})")));
                }
                _ => {}
            }
        }
        self.cursor.next = tail.start(seen.next);
        Ok(())
    }

    /// Copies the output up to an offset that was reached already, and does not wait for more.
    pub async fn copy_until(&mut self, end: u64) -> Result<(), Failure> {
        let mut reader = self.client.reattach(self.session, &self.exec, self.cursor.next).await?;
        while self.cursor.next < end {
            match reader.next().await? {
                StreamFrame::Chunk(chunk) => self.copy(chunk).await?,
                StreamFrame::Gap { offset, bytes } => self.skip(offset, bytes),
                StreamFrame::Done(_) => return Ok(()),
                StreamFrame::Error { error, error_code } => {
                    return Err(Failure::failed(format!("{error} ({error_code})")));
                }
                _ => {}
            }
        }
        Ok(())
    }

    async fn copy(&mut self, chunk: ChunkEvent) -> Result<(), Failure> {
        let piece = Piece::of(chunk)?;
        let fresh = self.cursor.take(piece.offset, &piece.bytes);
        if fresh.missing > 0 {
            say(format!("{} bytes of output are missing here", fresh.missing));
        }
        if piece.stream == Stream::Tty {
            self.screen.printed(fresh.bytes);
        }
        self.sinks.write(piece.stream, fresh.bytes).await
    }

    fn skip(&mut self, offset: u64, bytes: u64) {
        let lost = self.cursor.skip(offset, bytes);
        say(format!("{lost} bytes of output are missing here: the session no longer has them"));
    }

    fn wait_behind(&self, running: &ExecId) {
        self.is_waiting.set(true);
        let line_end = if self.is_raw { "\r" } else { "" };
        say(format!(
            "the shell is busy with exec {running}; waiting (Ctrl-C takes this command out of the queue){line_end}"
        ));
    }

    fn given_up(&self, error: ClientError, tries: u32) -> Failure {
        if tries == 0 {
            return error.into();
        }
        if error.is("EXEC_NOT_FOUND") {
            return Failure::failed("the connection was lost before the command started; it did not run");
        }
        let Self { session, exec, .. } = self;
        Failure::failed(format!(
            "{error}; the command may still run: `cove exec {session} --attach {exec}` follows it again"
        ))
    }
}

fn is_unreachable(error: &ClientError) -> bool {
    matches!(error, ClientError::Unreachable { .. })
}

/// Prints what the exit code alone does not tell, and returns the exit code.
pub fn conclude(done: &StreamDone) -> u8 {
    match done.kind {
        OutcomeKind::TimedOut => say(format!("timed out after {:.1} s", done.duration_ms as f64 / 1000.0)),
        OutcomeKind::NeverRan | OutcomeKind::Lost => {
            let what = if done.kind == OutcomeKind::Lost { "the command was lost" } else { "the command did not run" };
            say(done.reason.as_ref().map_or_else(|| what.to_owned(), |why| format!("{what}: {why}")));
        }
        OutcomeKind::Exited | OutcomeKind::Signaled => {}
    }
    if done.oom_killed {
        say(
            "the sandbox ran out of memory, and the kernel killed a process; a session with more memory needs --memory-mb",
        );
    }
    if !done.network_denied.is_empty() {
        let denied: Vec<String> = done.network_denied.iter().map(|rule| escape_control(rule)).collect();
        say(format!(
            "the session's network does not allow: {}; see --network and `cove network set`",
            denied.join(", ")
        ));
    }
    CommandEnd { kind: done.kind, exit_code: done.exit_code, signal: done.signal }.code()
}

#[cfg(test)]
#[path = "follow_test.rs"]
mod tests;
