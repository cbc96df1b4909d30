//! The parser of what bash reports.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| runner::shell::fuzz::control(bytes));
