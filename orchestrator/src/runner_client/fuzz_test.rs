//! What the fuzzer of a hostile runner's frames asserts; see `fuzz/`. The test replays its inputs.

use bytes::Bytes;
use shared_protocol::ExecId;
use shared_protocol::runner::{MAX_FRAME_BYTES, StreamMode};

use super::frame::Frame;
use super::sequence::{Sequence, Streams};
use super::stream::Frames;

/// Whatever a runner sends, the frames that come through are in the one order that can be true, their output is contiguous,
/// and nothing comes after the last.
///
/// The first byte of an input is the size of the pieces that the rest arrives in, the second the kind of exec.
pub fn runner_stream(bytes: &[u8]) {
    let [size, kind, wire @ ..] = bytes else { return };
    let streams = match kind % 4 {
        0 => Streams::Any,
        1 => Streams::Run,
        2 => Streams::Exec(StreamMode::Merged),
        _ => Streams::Exec(StreamMode::Split),
    };
    let exec = ExecId::new("a").expect("a valid id");
    let mut frames = Frames::new(Sequence::new(exec.clone(), streams, 0));
    let (mut offset, mut was_queued, mut has_begun, mut is_over) = (0_u64, false, false, false);
    for piece in wire.chunks(usize::from(*size) + 1) {
        frames.push(Bytes::copy_from_slice(piece));
        loop {
            let frame = match frames.next() {
                // The daemon ends the connection.
                Err(error) => return assert!(error.to_string().len() < MAX_FRAME_BYTES),
                Ok(None) => break,
                Ok(Some(frame)) => frame,
            };
            assert!(!is_over, "{frame:?} came after the end");
            match frame {
                Frame::Queued { running_exec_id } => {
                    assert!(!has_begun && running_exec_id != exec);
                    was_queued = true;
                }
                Frame::Started { exec_id } => {
                    assert!(!has_begun && exec_id == exec);
                    has_begun = true;
                }
                Frame::Output { offset: at, data, .. } => {
                    assert!(has_begun && at == offset && !data.as_bytes().is_empty());
                    offset += data.as_bytes().len() as u64;
                }
                Frame::Gap { offset: at, bytes } => {
                    assert!(has_begun && at == offset && bytes > 0);
                    offset = offset.checked_add(bytes).expect("an offset that exists");
                }
                Frame::AwaitingInput => assert!(has_begun),
                Frame::Exit(outcome) => {
                    assert!((has_begun || was_queued) && outcome.exec_id == exec && outcome.output_bytes <= offset);
                    assert!((0..=255).contains(&outcome.exit_code));
                    is_over = true;
                }
                Frame::Error(error) => {
                    let _ = super::error::checked(error);
                    is_over = true;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fuzzers_inputs_are_replayed() {
        corpus::replay("runner_stream", runner_stream);
    }
}
