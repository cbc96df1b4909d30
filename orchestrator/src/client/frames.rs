//! Reads a streamed answer frame by frame: one JSON object per line.
//!
//! A line has a maximum length. A stream that stops before its terminal frame was cut off, which is an error; the reader
//! knows the offset to continue from.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Buf, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde::Deserialize;
use shared_protocol::ExecId;
use shared_protocol::api::ChunkEvent;
use shared_protocol::runner::{OutcomeKind, Stream};

use super::ClientError;

/// The longest line. A frame of the daemon contains a frame of the runner, as text and as base64.
const MAX_LINE_BYTES: usize = 4 << 20;

/// `AttachedFrame` as a client reads it: the ends of execs and runs look alike, and frames of a newer daemon are ignored.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum StreamFrame {
    Started {
        exec_id: ExecId,
    },
    /// The command waits until this one has ended.
    Queued {
        running_exec_id: ExecId,
    },
    /// A command that waited has begun.
    Running {},
    Chunk(ChunkEvent),
    Gap {
        offset: u64,
        bytes: u64,
    },
    AwaitingInput,
    Done(StreamDone),
    Error {
        error: String,
        error_code: String,
    },
    #[serde(other)]
    Unknown,
}

/// What the end of an exec and the end of a run have in common.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct StreamDone {
    pub kind: OutcomeKind,
    pub exit_code: i32,
    #[serde(default)]
    pub signal: Option<i32>,
    #[serde(default)]
    pub oom_killed: bool,
    #[serde(default)]
    pub duration_ms: u64,
    #[serde(default)]
    pub reason: Option<String>,
}

/// A piece of output, exactly as it was written.
#[derive(Debug, PartialEq, Eq)]
pub struct Piece {
    pub stream: Stream,
    pub offset: u64,
    pub bytes: Vec<u8>,
}

impl Piece {
    pub fn of(chunk: ChunkEvent) -> Result<Self, ClientError> {
        let ChunkEvent { chunk, chunk_base64, stream, offset, .. } = chunk;
        let bytes = match chunk_base64 {
            None => chunk.into_bytes(),
            Some(text) => {
                STANDARD.decode(text).map_err(|e| ClientError::Protocol(format!("a chunk is not base64: {e}")))?
            }
        };
        Ok(Self { stream, offset, bytes })
    }
}

pub struct FrameReader {
    body: Incoming,
    lines: Lines,
}

impl FrameReader {
    pub(super) fn new(body: Incoming) -> Self {
        Self { body, lines: Lines::default() }
    }

    /// The next frame. The end of the stream is `Lost`, because nobody asks for a frame after the terminal one.
    pub async fn next(&mut self) -> Result<StreamFrame, ClientError> {
        loop {
            if let Some(frame) = self.lines.take()? {
                return Ok(frame);
            }
            match self.body.frame().await {
                None => return Err(ClientError::Lost("the stream stopped before its end".into())),
                Some(Err(error)) => return Err(ClientError::lost(error)),
                Some(Ok(frame)) => {
                    if let Ok(bytes) = frame.into_data() {
                        self.lines.push(&bytes);
                    }
                }
            }
        }
    }
}

/// Received bytes that are not yet a complete line.
#[derive(Default)]
struct Lines {
    buffer: BytesMut,
    /// There is no newline before this index, so a long line is not searched again for each new piece.
    searched: usize,
}

impl Lines {
    fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    fn take(&mut self) -> Result<Option<StreamFrame>, ClientError> {
        loop {
            let Some(at) = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n') else {
                self.searched = self.buffer.len();
                if self.searched > MAX_LINE_BYTES {
                    return Err(ClientError::Protocol(format!("a line is longer than {MAX_LINE_BYTES} bytes")));
                }
                return Ok(None);
            };
            let line = self.buffer.split_to(self.searched + at);
            self.buffer.advance(1);
            self.searched = 0;
            // An empty line only keeps the connection alive.
            if !line.iter().all(u8::is_ascii_whitespace) {
                let frame = serde_json::from_slice(&line);
                return frame.map(Some).map_err(|e| ClientError::Protocol(format!("a line is not a frame: {e}")));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use shared_protocol::api::{AttachedFrame, ExecDone};

    use super::*;

    #[test]
    fn frames_come_whole_however_the_bytes_were_cut() {
        let text = b"{\"event\":\"awaiting_input\"}\n\n{\"event\":\"gap\",\"offset\":1,\"bytes\":2}\n{\"event\":\"new\",\"x\":[1]}\n";
        for size in 1..text.len() {
            let mut lines = Lines::default();
            let mut frames = Vec::new();
            for piece in text.chunks(size) {
                lines.push(piece);
                while let Some(frame) = lines.take().unwrap() {
                    frames.push(frame);
                }
            }
            let expected = [StreamFrame::AwaitingInput, StreamFrame::Gap { offset: 1, bytes: 2 }, StreamFrame::Unknown];
            assert_eq!(frames, expected, "{size}");
        }
    }

    #[test]
    fn a_line_without_end_is_refused() {
        let mut lines = Lines::default();
        lines.push(&vec![b'x'; MAX_LINE_BYTES + 1]);
        assert!(matches!(lines.take(), Err(ClientError::Protocol(_))));
    }

    #[test]
    fn what_the_wire_calls_done_is_understood() {
        let done = ExecDone {
            exec_id: ExecId::new("e").unwrap(),
            kind: OutcomeKind::Signaled,
            exit_code: 137,
            signal: Some(9),
            cwd: "/".into(),
            output_bytes: 1,
            truncated: false,
            timed_out: false,
            shell_restarted: true,
            oom_killed: true,
            awaiting_input: false,
            network_denied: Vec::new(),
            duration_ms: 5,
            reason: None,
        };
        let mut lines = Lines::default();
        lines.push(&serde_json::to_vec(&AttachedFrame::Done(done)).unwrap());
        lines.push(b"\n");
        let Some(StreamFrame::Done(read)) = lines.take().unwrap() else { panic!("not done") };
        assert_eq!((read.kind, read.signal, read.oom_killed), (OutcomeKind::Signaled, Some(9), true));
    }

    #[test]
    fn bytes_that_are_no_text_are_exact() {
        let chunk =
            r#"{"event":"chunk","chunk":"\ufffd","chunk_base64":"/w==","stream":"stdout","offset":7,"timestamp":1}"#;
        let StreamFrame::Chunk(chunk) = serde_json::from_str(chunk).unwrap() else { panic!("not a chunk") };
        assert_eq!(Piece::of(chunk).unwrap(), Piece { stream: Stream::Stdout, offset: 7, bytes: vec![0xff] });
    }
}
