//! The script that restores a shell from what bash wrote.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| runner::shell::fuzz::state(bytes));
