//! The decoder of requests to the runner.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| runner::http::fuzz::request(bytes));
