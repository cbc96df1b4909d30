//! The parser of frames.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| shared_protocol::fuzz::frame(bytes));
