//! The parser of query strings.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| shared_protocol::fuzz::query(bytes));
