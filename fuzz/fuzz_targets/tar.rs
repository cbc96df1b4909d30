//! The unpacker of tar streams.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tar_unpack::fuzz::tar(bytes));
