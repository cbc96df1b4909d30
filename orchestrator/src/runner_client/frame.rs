//! Parses one frame of a runner's stream from its line. Pure.
//!
//! The caller has limited the line's length; `sequence` checks whether the frame may come at this point.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use shared_protocol::runner::{self, ExecOutcome, Payload, Stream};
use shared_protocol::{ErrorBody, ExecId};

/// The output of a command. Text is valid UTF-8; bytes may be anything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Data {
    Text(String),
    Bytes(Vec<u8>),
}

impl Data {
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Text(text) => text.as_bytes(),
            Self::Bytes(bytes) => bytes,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    Queued { running_exec_id: ExecId },
    Started { exec_id: ExecId },
    Output { stream: Stream, offset: u64, at_ms: Option<u64>, data: Data },
    Gap { offset: u64, bytes: u64 },
    AwaitingInput,
    Exit(ExecOutcome),
    Error(ErrorBody),
}

/// The start of an output frame's line, as a runner writes it. A line in another form is parsed too, only more slowly.
const OUTPUT_START: &[u8] = br#"{"type":"output","#;

/// An output frame as a type of its own. Every byte of output goes through it, and serde copies a tagged, flattened enum
/// twice.
#[derive(Deserialize)]
struct OutputLine {
    stream: Stream,
    offset: u64,
    #[serde(default)]
    at_ms: Option<u64>,
    #[serde(default)]
    data: Option<String>,
    #[serde(default)]
    data_base64: Option<String>,
}

/// Parses one line.
pub fn parse(line: &[u8]) -> Result<Frame, String> {
    if line.starts_with(OUTPUT_START) {
        let output: OutputLine = serde_json::from_slice(line).map_err(|error| error.to_string())?;
        let data = match (output.data, output.data_base64) {
            (Some(text), None) => Data::Text(text),
            (None, Some(encoded)) => decode(&encoded)?,
            _ => return Err("an output frame has data or data_base64".to_owned()),
        };
        return Ok(Frame::Output { stream: output.stream, offset: output.offset, at_ms: output.at_ms, data });
    }
    Ok(match runner::parse_frame(line).map_err(|error| error.to_string())? {
        runner::Frame::Queued { running_exec_id } => Frame::Queued { running_exec_id },
        runner::Frame::Started { exec_id, shell: _ } => Frame::Started { exec_id },
        runner::Frame::Output { stream, offset, at_ms, payload } => {
            let data = match payload {
                Payload::Text { data } => Data::Text(data),
                Payload::Base64 { data_base64 } => decode(&data_base64)?,
            };
            Frame::Output { stream, offset, at_ms, data }
        }
        runner::Frame::Gap { offset, bytes } => Frame::Gap { offset, bytes },
        runner::Frame::AwaitingInput => Frame::AwaitingInput,
        runner::Frame::Exit(outcome) => Frame::Exit(outcome),
        runner::Frame::Error(error) => Frame::Error(error),
    })
}

fn decode(encoded: &str) -> Result<Data, String> {
    let bytes = STANDARD.decode(encoded).map_err(|error| format!("output is not valid base64: {error}"))?;
    // A runner also sends text as base64 if that is shorter.
    Ok(String::from_utf8(bytes).map_or_else(|error| Data::Bytes(error.into_bytes()), Data::Text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn output_is_the_same_in_any_order_of_its_fields() {
        let quick = parse(br#"{"type":"output","stream":"merged","offset":7,"at_ms":5,"data":"a\n\u00e9"}"#).unwrap();
        let slow = parse(br#"{"data":"a\n\u00e9","at_ms":5,"offset":7,"stream":"merged","type":"output"}"#).unwrap();
        assert_eq!(quick, slow);
        let data = Data::Text("a\né".into());
        assert_eq!(quick, Frame::Output { stream: Stream::Merged, offset: 7, at_ms: Some(5), data });
    }

    #[test]
    fn output_with_both_forms_or_none_is_refused() {
        for bad in [
            &br#"{"type":"output","stream":"merged","offset":7,"data":"a","data_base64":"YQ=="}"#[..],
            br#"{"type":"output","stream":"merged","offset":7}"#,
            br#"{"type":"output","stream":"merged","offset":7,"data_base64":"Y"}"#,
            br#"{"type":"output","stream":"merged","offset":-7,"data":"a"}"#,
            br#"{"type":"output","stream":"stdin","offset":7,"data":"a"}"#,
            br#"{"type":"output","type":"output","stream":"merged","offset":7,"offset":8,"data":"a"}"#,
        ] {
            assert!(parse(bad).is_err(), "{}", String::from_utf8_lossy(bad));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_survive(bytes in proptest::collection::vec(any::<u8>(), 0..2000), offset in any::<u64>()) {
            let mut line = Vec::new();
            runner::encode_output(Stream::Tty, offset, 9, &bytes, &mut line);
            match parse(&line).unwrap() {
                Frame::Output { stream: Stream::Tty, offset: at, at_ms: Some(9), data } => {
                    prop_assert_eq!(at, offset);
                    prop_assert_eq!(data.as_bytes(), bytes);
                }
                other => prop_assert!(false, "{other:?}"),
            }
        }

        #[test]
        fn nothing_makes_it_panic(tail in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&tail);
            let _ = parse(&[OUTPUT_START, &tail].concat());
        }
    }
}
