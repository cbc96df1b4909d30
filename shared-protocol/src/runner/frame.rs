//! The frames of a streaming response: one JSON object per line.
//!
//! ```text
//! queued?  started  (output | gap | awaiting_input)*  (exit | error)
//! queued   (exit | error)                                             it left the queue and never ran
//! ```
//!
//! Exactly one terminal frame ends a stream. If a stream stops without one, the connection was lost, and the reader asks again
//! from the offset that it has. An offset counts the bytes of all streams of the exec together, in the order in which the runner
//! read them. Output that is not UTF-8 is sent as base64, so that the reader gets the exact bytes.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use crate::{ErrorBody, ExecId, ShellName};

/// The longest frame. A reader may refuse a longer line. Chunks of output are much shorter.
pub const MAX_FRAME_BYTES: usize = 1 << 20;

/// The stream that output came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Stream {
    /// Standard output and standard error in their order, in the mode `merged`.
    Merged,
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// The terminal: all output in the mode `tty`, and what a program writes to `/dev/tty` in the other modes.
    Tty,
}

/// The bytes of an output frame.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum Payload {
    /// UTF-8 text.
    Text {
        /// The text.
        data: String,
    },
    /// Any bytes.
    Base64 {
        /// The bytes in base64.
        data_base64: String,
    },
}

impl Payload {
    pub fn into_bytes(self) -> Result<Vec<u8>, FrameError> {
        match self {
            Self::Text { data } => Ok(data.into_bytes()),
            Self::Base64 { data_base64 } => STANDARD.decode(data_base64).map_err(|e| FrameError(e.to_string())),
        }
    }
}

/// The way in which a command ended. There are exactly these five, and callers treat each differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum OutcomeKind {
    /// It ended by itself with an exit status.
    Exited,
    /// A signal killed the process itself: the shell in which the command ran, or the program of a run.
    Signaled,
    /// It reached its time limit and was ended.
    TimedOut,
    /// It never began: the shell was closed or reset first, or no shell could be started.
    NeverRan,
    /// It began, and how it ended is not known.
    Lost,
}

/// How a command or run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct ExecOutcome {
    /// The id of the command or run.
    pub exec_id: ExecId,
    /// The way in which it ended.
    pub kind: OutcomeKind,
    /// The exit status as bash shows it in `$?`: 128+n after signal n, 124 after a timeout, 126 or 127 if nothing could be run.
    pub exit_code: i32,
    /// The signal that killed the shell or the program, if `kind` is `signaled`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// The shell's directory after the command; absent for a run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// How many bytes of output there were when the command ended. Background jobs may write more later.
    pub output_bytes: u64,
    /// Whether it reached its time limit.
    pub timed_out: bool,
    /// Whether the shell died or was replaced during or before this command. Its state was restored.
    pub shell_restarted: bool,
    /// Whether the kernel killed a process of the sandbox because memory ran out: while this ran, also if it went on itself, or
    /// since the command before it.
    pub oom_killed: bool,
    /// Whether a foreground program was waiting for input at the terminal when the command ended.
    pub awaiting_input: bool,
    /// How long it ran, in milliseconds.
    pub duration_ms: u64,
    /// The reason, if `kind` is `never_ran` or `lost`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// One line of a streaming response.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Frame {
    /// The command waits in the shell's queue, because another one runs. It is sent once, before `started`.
    Queued {
        /// The command that runs, or is about to.
        running_exec_id: ExecId,
    },
    /// The command or run has begun, or has ended without that.
    Started {
        /// The id of the command or run.
        exec_id: ExecId,
        /// The shell that runs the command; absent for a run.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        shell: Option<ShellName>,
    },
    /// A piece of output.
    Output {
        /// The stream that the bytes came from.
        stream: Stream,
        /// The offset of the first byte.
        offset: u64,
        /// When the runner read the bytes from the command: Unix time in milliseconds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        at_ms: Option<u64>,
        /// The bytes.
        #[serde(flatten)]
        payload: Payload,
    },
    /// Output that is no longer kept, because this reader was too slow or came too late.
    Gap {
        /// The offset of the first missing byte.
        offset: u64,
        /// How many bytes are missing.
        bytes: u64,
    },
    /// A foreground program waits for input at the terminal. This is a hint, sent once each time the runner sees a wait begin.
    AwaitingInput,
    /// The command or run has ended. This is the last frame.
    Exit(ExecOutcome),
    /// The request failed after the stream had begun. This is the last frame.
    Error(ErrorBody),
}

impl Frame {
    pub fn is_terminal(&self) -> bool {
        matches!(self, Self::Exit(_) | Self::Error(_))
    }

    /// Encodes the frame as a line that ends with a newline.
    pub fn to_line(&self) -> Vec<u8> {
        let mut line = serde_json::to_vec(self).unwrap_or_else(|e| {
            // A frame has no map with non-string keys and no Serialize that fails. If that ever changes, report it and do not panic.
            format!(r#"{{"type":"error","error_code":"INTERNAL_ERROR","message":"frame not serializable: {e}"}}"#)
                .into_bytes()
        });
        line.push(b'\n');
        line
    }
}

/// A line that is not a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrameError(pub String);

impl std::fmt::Display for FrameError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "not a frame: {}", self.0)
    }
}

impl std::error::Error for FrameError {}

/// Parses one line, with or without its newline. The sender may be hostile, so length and shape are checked.
pub fn parse_frame(line: &[u8]) -> Result<Frame, FrameError> {
    if line.len() > MAX_FRAME_BYTES {
        return Err(FrameError(format!("{} bytes, at most {MAX_FRAME_BYTES} are allowed", line.len())));
    }
    serde_json::from_slice(line).map_err(|e| FrameError(e.to_string()))
}

/// Appends an output frame for `bytes` to `line`. This is written by hand because every byte of output passes through it:
/// serde_json calls the writer for each piece between two escapes, which for lines of text is every few bytes.
pub fn encode_output(stream: Stream, offset: u64, at_ms: u64, bytes: &[u8], line: &mut Vec<u8>) {
    let stream = match stream {
        Stream::Merged => "merged",
        Stream::Stdout => "stdout",
        Stream::Stderr => "stderr",
        Stream::Tty => "tty",
    };
    line.reserve(bytes.len() + bytes.len() / 4 + 96);
    let head = format!(r#"{{"type":"output","stream":"{stream}","offset":{offset},"at_ms":{at_ms},"data"#);
    line.extend_from_slice(head.as_bytes());
    if std::str::from_utf8(bytes).is_ok() && !is_cheaper_as_base64(bytes) {
        line.extend_from_slice(b"\":\"");
        escape(bytes, line);
    } else {
        line.extend_from_slice(b"_base64\":\"");
        line.extend_from_slice(STANDARD.encode(bytes).as_bytes());
    }
    line.extend_from_slice(b"\"}\n");
}

/// Appends text as the inside of a JSON string. It copies eight bytes at a time, and single bytes around an escape: a call to
/// copy a few bytes costs more than copying them here.
fn escape(text: &[u8], line: &mut Vec<u8>) {
    let mut rest = text;
    while let Some((word, behind)) = rest.split_first_chunk::<8>() {
        match first_special(u64::from_le_bytes(*word)) {
            None => {
                line.extend_from_slice(word);
                rest = behind;
            }
            Some(at) => {
                for byte in &word[..=at] {
                    escape_byte(*byte, line);
                }
                rest = &rest[at + 1..];
            }
        }
    }
    for byte in rest {
        escape_byte(*byte, line);
    }
}

fn escape_byte(byte: u8, line: &mut Vec<u8>) {
    let short = match byte {
        b'\n' => b'n',
        b'\r' => b'r',
        b'\t' => b't',
        b'"' | b'\\' => byte,
        0..0x20 => {
            line.extend_from_slice(format!("\\u{byte:04x}").as_bytes());
            return;
        }
        _ => {
            line.push(byte);
            return;
        }
    };
    line.extend_from_slice(&[b'\\', short]);
}

/// Finds the first of eight bytes that needs an escape: a control character, a quote or a backslash.
fn first_special(word: u64) -> Option<usize> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const TOPS: u64 = 0x8080_8080_8080_8080;
    // Sets the top bit of each byte that is below `bound`; bytes above 127 are never marked. The lowest mark is exact, because a
    // borrow can only add false marks above a true one.
    let below = |word: u64, bound: u64| word.wrapping_sub(ONES * bound) & !word & TOPS;
    let equals = |byte: u8| below(word ^ (ONES * u64::from(byte)), 1);
    let special = below(word, 0x20) | equals(b'"') | equals(b'\\');
    (special != 0).then_some((special.trailing_zeros() / 8) as usize)
}

/// Whether base64 is shorter than JSON text. A control character takes six bytes in JSON, so bytes with many of them are sent as
/// base64, and text with a few stays readable.
fn is_cheaper_as_base64(bytes: &[u8]) -> bool {
    let controls = bytes.iter().filter(|b| **b < 0x20 && !matches!(**b, b'\n' | b'\r' | b'\t')).count();
    controls * 5 > bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn no_chunk_grows_to_more_than_twice_its_size() {
        for byte in [0, b'a', b'"', b'\n', 0x1b, 0xff] {
            let mut line = Vec::new();
            encode_output(Stream::Merged, 0, 7, &[byte; 6000], &mut line);
            assert!(line.len() < 12_100, "{byte}: {}", line.len());
        }
    }

    proptest! {
        #[test]
        fn any_bytes_survive_an_output_frame(bytes in proptest::collection::vec(any::<u8>(), 0..4096), offset in any::<u64>()) {
            let mut line = Vec::new();
            encode_output(Stream::Stderr, offset, u64::MAX, &bytes, &mut line);
            prop_assert_eq!(line.iter().filter(|b| **b == b'\n').count(), 1);
            match parse_frame(&line).unwrap() {
                Frame::Output { stream, offset: at, at_ms, payload } => {
                    prop_assert_eq!((stream, at_ms), (Stream::Stderr, Some(u64::MAX)));
                    prop_assert_eq!(at, offset);
                    prop_assert_eq!(payload.into_bytes().unwrap(), bytes);
                }
                other => prop_assert!(false, "{other:?}"),
            }
        }

        #[test]
        fn any_text_is_escaped_as_serde_would(text in any::<String>(), ascii in "[ -~\\n\\t\\r]{0,100}") {
            for text in [text, ascii] {
                let mut line = Vec::new();
                escape(text.as_bytes(), &mut line);
                let quoted = format!("\"{}\"", String::from_utf8(line).unwrap());
                prop_assert_eq!(serde_json::from_str::<String>(&quoted).unwrap(), text);
            }
        }

        #[test]
        fn the_parser_never_panics(line in proptest::collection::vec(any::<u8>(), 0..512)) {
            let _ = parse_frame(&line);
        }
    }

    #[test]
    fn a_line_over_the_limit_is_refused_before_it_is_parsed() {
        let line = vec![b' '; MAX_FRAME_BYTES + 1];
        assert!(parse_frame(&line).unwrap_err().0.contains("at most"));
    }
}
