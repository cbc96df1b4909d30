//! The frames of a streaming answer, one JSON object a line.
//!
//! ```text
//! started  (output | gap | awaiting_input)*  (exit | error)
//! ```
//!
//! Exactly one terminal frame ends a stream; a stream that stops without one was cut, and the reader asks again from the
//! offset it has. Offsets count the bytes of the exec, all its streams together, in the order the runner read them.
//! Output that is not UTF-8 travels as base64, so that it arrives byte for byte.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use crate::{ErrorBody, ExecId, ShellName};

/// No frame is longer: a reader may refuse a longer line. Output is cut into chunks far below it.
pub const MAX_FRAME_BYTES: usize = 1 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Stream {
    /// Both, in order: the `merged` mode.
    Merged,
    Stdout,
    Stderr,
    /// The terminal: the `tty` mode, and what a program writes to `/dev/tty` in the other modes.
    Tty,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum Payload {
    Text { data: String },
    Base64 { data_base64: String },
}

impl Payload {
    pub fn into_bytes(self) -> Result<Vec<u8>, FrameError> {
        match self {
            Self::Text { data } => Ok(data.into_bytes()),
            Self::Base64 { data_base64 } => STANDARD.decode(data_base64).map_err(|e| FrameError(e.to_string())),
        }
    }
}

/// How a command ended. Five cases that a caller treats differently; a sixth does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum OutcomeKind {
    Exited,
    /// The process that stood for the command was killed: the shell itself, or a run's program.
    Signaled,
    TimedOut,
    /// It was queued, and the shell was closed or reset before its turn, or no shell could be started for it.
    NeverRan,
    /// It had begun, and the runner can no longer tell how it ended.
    Lost,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct ExecOutcome {
    pub exec_id: ExecId,
    pub kind: OutcomeKind,
    /// As bash has it in `$?`: 128+n for a signal, 124 for a timeout, 126 and 127 where nothing could be run.
    pub exit_code: i32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Of the shell after the command; absent for a run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Bytes of output at the command's end. Late output of background jobs comes on top.
    pub output_bytes: u64,
    pub timed_out: bool,
    /// The shell died, or had to be replaced, in or before this command; its state was restored.
    pub shell_restarted: bool,
    pub oom_killed: bool,
    /// A foreground program was waiting at the terminal when the command ended or was cut off.
    pub awaiting_input: bool,
    pub duration_ms: u64,
    /// For `never_ran` and `lost`: why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Frame {
    Started {
        exec_id: ExecId,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        shell: Option<ShellName>,
    },
    Output {
        stream: Stream,
        offset: u64,
        #[serde(flatten)]
        payload: Payload,
    },
    /// This reader was too slow, or came too late: `bytes` from `offset` on are no longer kept.
    Gap {
        offset: u64,
        bytes: u64,
    },
    /// A foreground program waits at the terminal. A hint: sent once each time it is seen to begin.
    AwaitingInput,
    Exit(ExecOutcome),
    /// The request itself failed after the stream had begun.
    Error(ErrorBody),
}

impl Frame {
    pub fn is_terminal(&self) -> bool {
        matches!(self, Self::Exit(_) | Self::Error(_))
    }

    /// The frame as its line, newline included.
    pub fn to_line(&self) -> Vec<u8> {
        let mut line = serde_json::to_vec(self).unwrap_or_else(|e| {
            // No map with non-string keys and no failing Serialize exists in a frame; say so rather than panic.
            format!(r#"{{"type":"error","error_code":"INTERNAL_ERROR","message":"frame not serializable: {e}"}}"#)
                .into_bytes()
        });
        line.push(b'\n');
        line
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrameError(pub String);

impl std::fmt::Display for FrameError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "not a frame: {}", self.0)
    }
}

impl std::error::Error for FrameError {}

/// Parses one line, with or without its newline. The other side may be hostile: length and shape are checked.
pub fn parse_frame(line: &[u8]) -> Result<Frame, FrameError> {
    if line.len() > MAX_FRAME_BYTES {
        return Err(FrameError(format!("{} bytes, at most {MAX_FRAME_BYTES} are allowed", line.len())));
    }
    serde_json::from_slice(line).map_err(|e| FrameError(e.to_string()))
}

/// Appends the line of an output frame for `bytes`. By hand, since every byte of output passes here: serde_json hands the
/// pieces between two escapes to the writer one by one, which for lines of text is a call every few bytes.
pub fn encode_output(stream: Stream, offset: u64, bytes: &[u8], line: &mut Vec<u8>) {
    let stream = match stream {
        Stream::Merged => "merged",
        Stream::Stdout => "stdout",
        Stream::Stderr => "stderr",
        Stream::Tty => "tty",
    };
    line.reserve(bytes.len() + bytes.len() / 4 + 96);
    line.extend_from_slice(format!(r#"{{"type":"output","stream":"{stream}","offset":{offset},"data"#).as_bytes());
    if std::str::from_utf8(bytes).is_ok() && !is_cheaper_as_base64(bytes) {
        line.extend_from_slice(b"\":\"");
        escape(bytes, line);
    } else {
        line.extend_from_slice(b"_base64\":\"");
        line.extend_from_slice(STANDARD.encode(bytes).as_bytes());
    }
    line.extend_from_slice(b"\"}\n");
}

/// Appends text as the inside of a JSON string. Eight bytes at a time and otherwise one by one: a call to copy a few bytes
/// costs more than the bytes.
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

/// Which of eight bytes is the first that needs an escape: a control, a quote or a backslash.
fn first_special(word: u64) -> Option<usize> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const TOPS: u64 = 0x8080_8080_8080_8080;
    // A top bit where a byte is below `bound`; bytes above 127 never count. The lowest mark is exact: a borrow can only make
    // false ones above a true one.
    let below = |word: u64, bound: u64| word.wrapping_sub(ONES * bound) & !word & TOPS;
    let equals = |byte: u8| below(word ^ (ONES * u64::from(byte)), 1);
    let special = below(word, 0x20) | equals(b'"') | equals(b'\\');
    (special != 0).then_some((special.trailing_zeros() / 8) as usize)
}

/// Control characters take six bytes each in JSON. Text with some stays readable; what is mostly controls is no text.
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
            encode_output(Stream::Merged, 0, &[byte; 6000], &mut line);
            assert!(line.len() < 12_100, "{byte}: {}", line.len());
        }
    }

    proptest! {
        #[test]
        fn any_bytes_survive_an_output_frame(bytes in proptest::collection::vec(any::<u8>(), 0..4096), offset in any::<u64>()) {
            let mut line = Vec::new();
            encode_output(Stream::Stderr, offset, &bytes, &mut line);
            prop_assert_eq!(line.iter().filter(|b| **b == b'\n').count(), 1);
            match parse_frame(&line).unwrap() {
                Frame::Output { stream, offset: at, payload } => {
                    prop_assert_eq!(stream, Stream::Stderr);
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
