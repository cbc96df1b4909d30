//! A streaming answer. Every reader checks the offsets: a missing or repeated byte fails the test that reads it.

use std::borrow::Cow;
use std::path::PathBuf;
use std::time::Duration;

use hyper::body::Incoming;
use serde::Deserialize;
use shared_protocol::ExecId;
use shared_protocol::runner::{ExecOutcome, Frame, Payload, Stream, parse_frame};

use crate::http::Lines;
use crate::wait::DEADLINE;

/// The most bytes of output that the message of a failed wait shows.
const SHOWN_BYTES: usize = 2000;

/// How an exec ended, and everything that came before its end.
#[derive(Debug)]
pub struct Finished {
    pub outcome: ExecOutcome,
    pub seen: Transcript,
}

/// Everything that a reader has received so far.
#[derive(Debug, Default)]
pub struct Transcript {
    /// The output of all streams, in order.
    pub output: Vec<u8>,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    pub tty: Vec<u8>,
    /// The offset and length of each gap.
    pub gaps: Vec<(u64, u64)>,
    /// The number of received bytes of output, whether or not they are kept.
    pub received: u64,
    pub output_frames: usize,
    pub awaiting_input: usize,
    pub started: Option<ExecId>,
    /// The exec that was in front of this one in the queue.
    pub queued_behind: Option<ExecId>,
}

impl std::ops::Deref for Finished {
    type Target = Transcript;
    fn deref(&self) -> &Transcript {
        &self.seen
    }
}

impl Finished {
    pub fn code(&self) -> i32 {
        self.outcome.exit_code
    }
}

impl Transcript {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.output).into_owned()
    }

    pub fn stdout_text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    pub fn stderr_text(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// The terminal's output with the line ends that the program wrote.
    pub fn tty_text(&self) -> String {
        String::from_utf8_lossy(&self.tty).replace("\r\n", "\n")
    }
}

/// An output frame of plain text, read without the copies of a tagged enum: otherwise a reader in a debug build would be far
/// slower than the runner.
#[derive(Deserialize)]
struct Counted<'a> {
    r#type: &'a str,
    stream: Stream,
    offset: u64,
    #[serde(borrow)]
    data: Cow<'a, str>,
}

impl Counted<'_> {
    fn parse(line: &[u8]) -> Option<Frame> {
        let counted: Counted<'_> = serde_json::from_slice(line).ok().filter(|c: &Counted<'_>| c.r#type == "output")?;
        let payload = Payload::Text { data: counted.data.into_owned() };
        Some(Frame::Output { stream: counted.stream, offset: counted.offset, at_ms: None, payload })
    }
}

pub struct FrameStream {
    lines: Lines,
    next_offset: u64,
    keeps_output: bool,
    ended: bool,
    log: PathBuf,
    pub seen: Transcript,
}

impl FrameStream {
    pub(crate) fn new(body: Incoming, from: u64, log: PathBuf) -> Self {
        Self {
            lines: Lines::new(body),
            next_offset: from,
            keeps_output: true,
            ended: false,
            log,
            seen: Transcript::default(),
        }
    }

    /// Counts output without keeping it, for output that is larger than a test wants to hold.
    pub fn counting(mut self) -> Self {
        self.keeps_output = false;
        self
    }

    /// The offset from which a reader that comes back continues.
    pub fn next_offset(&self) -> u64 {
        self.next_offset
    }

    /// The next frame. `None` at the end of the stream, after a terminal frame, or if the stream was cut.
    pub async fn next_frame(&mut self) -> Option<Frame> {
        let line = self.lines.next().await.ok()??;
        let frame = match Counted::parse(&line).filter(|_| !self.keeps_output) {
            Some(frame) => frame,
            None => parse_frame(&line).unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&line))),
        };
        assert!(!self.ended, "a frame after the terminal one: {frame:?}");
        self.absorb(&frame);
        Some(frame)
    }

    fn absorb(&mut self, frame: &Frame) {
        match frame {
            Frame::Started { exec_id, .. } => self.seen.started = Some(exec_id.clone()),
            Frame::Output { stream, offset, payload, at_ms: _ } => {
                assert_eq!(*offset, self.next_offset, "output was lost or doubled");
                let bytes = payload.clone().into_bytes().expect("valid base64");
                let length = u64::try_from(bytes.len()).expect("fits");
                self.next_offset += length;
                self.seen.received += length;
                self.seen.output_frames += 1;
                if self.keeps_output {
                    self.seen.output.extend_from_slice(&bytes);
                    match stream {
                        Stream::Merged => {}
                        Stream::Stdout => self.seen.stdout.extend_from_slice(&bytes),
                        Stream::Stderr => self.seen.stderr.extend_from_slice(&bytes),
                        Stream::Tty => self.seen.tty.extend_from_slice(&bytes),
                    }
                }
            }
            Frame::Gap { offset, bytes } => {
                assert_eq!(*offset, self.next_offset, "a gap begins where the last byte ended");
                self.next_offset += bytes;
                self.seen.gaps.push((*offset, *bytes));
            }
            Frame::Queued { running_exec_id } => self.seen.queued_behind = Some(running_exec_id.clone()),
            Frame::AwaitingInput => self.seen.awaiting_input += 1,
            Frame::Exit(_) | Frame::Error(_) => self.ended = true,
        }
    }

    /// Reads frames until `wanted` accepts a frame together with the transcript so far.
    pub async fn until(&mut self, what: &str, mut wanted: impl FnMut(&Frame, &Transcript) -> bool) {
        let reading = async {
            while let Some(frame) = self.next_frame().await {
                if wanted(&frame, &self.seen) {
                    return;
                }
            }
            panic!("the stream ended before {what}");
        };
        if tokio::time::timeout(DEADLINE, reading).await.is_err() {
            self.give_up(what, DEADLINE);
        }
    }

    pub async fn until_output(&mut self, needle: &str) {
        if !self.seen.text().contains(needle) {
            self.until(&format!("{needle:?} came"), |_, seen| seen.text().contains(needle)).await;
        }
    }

    pub async fn until_started(&mut self) {
        if self.seen.started.is_none() {
            self.until("it started", |frame, _| matches!(frame, Frame::Started { .. })).await;
        }
    }

    pub async fn until_awaiting_input(&mut self) {
        self.until("it awaits input", |frame, _| *frame == Frame::AwaitingInput).await;
    }

    /// Reads to the end within the usual deadline.
    pub async fn finish(self) -> Finished {
        self.finish_within(DEADLINE).await
    }

    pub async fn finish_within(mut self, deadline: Duration) -> Finished {
        let reading = async {
            let mut last = None;
            while let Some(frame) = self.next_frame().await {
                last = Some(frame);
            }
            last
        };
        match tokio::time::timeout(deadline, reading).await {
            Ok(Some(Frame::Exit(outcome))) => Finished { outcome, seen: self.seen },
            Ok(last) => panic!("the stream ended with {last:?}\n{}", self.report()),
            Err(_) => self.give_up("the end of the command", deadline),
        }
    }

    /// Reads until the stream ends or is cut, for a reattach that does not follow.
    pub async fn drain(mut self) -> (Transcript, Option<ExecOutcome>) {
        let mut outcome = None;
        while let Some(frame) = self.next_frame().await {
            if let Frame::Exit(end) = frame {
                outcome = Some(end);
            }
        }
        (self.seen, outcome)
    }

    fn give_up(&self, what: &str, deadline: Duration) -> ! {
        panic!("waited {deadline:?} for {what}\n{}", self.report())
    }

    fn report(&self) -> String {
        let text = self.seen.text();
        let start = text.char_indices().rev().nth(SHOWN_BYTES).map_or(0, |(i, _)| i);
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        format!(
            "started: {:?}, {} bytes in {} frames, gaps {:?}, awaiting input {}x\n-- output:\n{}\n-- the runner's log:\n{log}",
            self.seen.started,
            self.seen.received,
            self.seen.output_frames,
            self.seen.gaps,
            self.seen.awaiting_input,
            &text[start..],
        )
    }
}
