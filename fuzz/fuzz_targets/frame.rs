//! The parser of frames: any line gives a frame or an error, and any bytes of output come out of their frame as they went in.
#![no_main]

use libfuzzer_sys::fuzz_target;
use shared_protocol::runner::{Frame, Stream, encode_output, parse_frame};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(frame) = parse_frame(bytes) {
        assert_eq!(parse_frame(&frame.to_line()).expect("a frame is read again"), frame);
    }
    let mut line = Vec::new();
    encode_output(Stream::Merged, 7, bytes, &mut line);
    match parse_frame(&line) {
        Ok(Frame::Output { offset: 7, payload, .. }) => assert_eq!(payload.into_bytes().expect("valid"), bytes),
        other => panic!("{other:?}"),
    }
});
