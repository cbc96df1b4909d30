//! The unpacker of image archives.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| orchestrator::image::fuzz::image(bytes));
