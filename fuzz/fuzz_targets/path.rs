//! The resolver of paths in a sandbox.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| runner::files::fuzz::path(bytes));
