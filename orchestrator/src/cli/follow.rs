//! Follows an exec or a run to its end: output to standard output and error, every byte once.
//!
//! A connection that is lost is made again a bounded number of times, from the offset that was reached; the command goes
//! on meanwhile. What the daemon no longer keeps is said, not passed over.

use std::time::Duration;

use shared_protocol::runner::{OutcomeKind, Stream};
use shared_protocol::{ExecId, SessionId};
use tokio::io::{AsyncWrite, AsyncWriteExt};

use super::exit::{Ending, Failure};
use super::output::say;
use super::private::random_hex;
use super::tty::Screen;
use crate::client::{Client, ClientError, FrameReader, Piece, StreamDone, StreamFrame};

/// In a row, without a byte between them.
const MAX_REATTACHES: u32 = 6;
/// Doubled with each try: some six seconds in all.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// An id of our own, so that the exec can be found again even if its beginning was never answered.
pub fn new_exec_id() -> Result<ExecId, Failure> {
    ExecId::new(format!("cli-{}", random_hex(8)?)).map_err(|e| Failure::failed(e.to_string()))
}

type Sink = Box<dyn AsyncWrite + Unpin>;

/// Where output goes.
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

/// What is next, and what of a piece is new.
#[derive(Debug, Default, PartialEq, Eq)]
struct Cursor {
    next: u64,
}

#[derive(Debug, PartialEq, Eq)]
struct Fresh<'a> {
    /// Bytes before these that never came.
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

    /// The number of bytes that a gap takes from us.
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
    /// Where the output is a terminal's: what it did to the caller's.
    screen: Screen,
}

impl<'a> Follower<'a> {
    pub fn new(client: &'a Client, session: &'a SessionId, exec: ExecId) -> Self {
        Self { client, session, exec, cursor: Cursor::default(), sinks: Sinks::new(), screen: Screen::default() }
    }

    pub fn screen(&self) -> &Screen {
        &self.screen
    }

    /// `begun` is the answer to the request that began it, or to one that asked for it again.
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
            // The daemon that refuses, or that cannot be reached before anything was begun, is not asked again.
            let again = matches!(&error, ClientError::Lost(_)) || (tries > 0 && is_absence(&error));
            if !again || tries == MAX_REATTACHES {
                return Err(self.given_up(error, tries));
            }
            tokio::time::sleep(FIRST_PAUSE * 2u32.saturating_pow(tries)).await;
            tries += 1;
            attempt = self.client.reattach(self.session, &self.exec, self.cursor.next).await;
        }
    }

    /// Until the end, or until the connection fails: that is the inner error. The outer one is ours.
    async fn read(&mut self, mut reader: FrameReader) -> Result<Result<StreamDone, ClientError>, Failure> {
        loop {
            let frame = match reader.next().await {
                Ok(frame) => frame,
                Err(error) => return Ok(Err(error)),
            };
            match frame {
                StreamFrame::Started { .. } | StreamFrame::AwaitingInput | StreamFrame::Unknown => {}
                StreamFrame::Chunk(chunk) => {
                    let piece = Piece::of(chunk)?;
                    let fresh = self.cursor.take(piece.offset, &piece.bytes);
                    if fresh.missing > 0 {
                        say(format!("{} bytes of output are missing here", fresh.missing));
                    }
                    if piece.stream == Stream::Tty {
                        self.screen.printed(fresh.bytes);
                    }
                    self.sinks.write(piece.stream, fresh.bytes).await?;
                }
                StreamFrame::Gap { offset, bytes } => {
                    let lost = self.cursor.skip(offset, bytes);
                    say(format!("{lost} bytes of output are missing here: they were no longer kept"));
                }
                StreamFrame::Done(done) => return Ok(Ok(done)),
                StreamFrame::Error { error, error_code } => {
                    return Err(Failure::failed(format!("{error} ({error_code})")));
                }
            }
        }
    }

    fn given_up(&self, error: ClientError, tries: u32) -> Failure {
        if tries == 0 {
            return error.into();
        }
        if error.is("EXEC_NOT_FOUND") {
            return Failure::failed("the connection was lost before the command began; it did not run");
        }
        let Self { session, exec, .. } = self;
        Failure::failed(format!(
            "{error}; the command may go on: `cove exec {session} --attach {exec}` follows it again"
        ))
    }
}

fn is_absence(error: &ClientError) -> bool {
    matches!(error, ClientError::Unreachable { .. })
}

/// The exit code, after saying what the code alone does not.
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
        say("memory ran out in the sandbox, and the kernel killed something; give it more with --memory-mb");
    }
    Ending { kind: done.kind, exit_code: done.exit_code, signal: done.signal }.code()
}

#[cfg(test)]
#[path = "follow_test.rs"]
mod tests;
